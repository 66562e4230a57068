"""Explains how allocations are protected from an ask: for every queue with allocations, by the first rule that protects
them."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption.entitlement import fence_root, find_entitlement
from kornel.core.preemption.foresight import LawTally
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.rules.candidates import leaves_below
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.run_times import protected_until, say_until
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.victim_index import VictimIndex

OWN_QUEUE = "own queue"
LAW_7 = "law 7 (fence)"
_NAMES = {"disabled": "preemption disabled", "inherited": "law 5 (inherited guarantee)"}


def tally_protection(state: PartitionState, ask: Allocation, index: VictimIndex, now_ns: int) -> tuple[LawTally, ...]:
    """Returns the rules that protect queues from *ask*, with the number of queues; the rule that protects most
    allocations comes first. The cost is linear in the number of sizes, for a queue in which every size is protected."""
    fence = fence_root(ask)
    inside = set(leaves_below(fence))
    entitled = find_entitlement(ask, state.guarantee_mode, state.types.names)
    terms: Terms | None = None
    if not isinstance(entitled, Refusal):
        terms = Terms(ask, fence, entitled, Needs(ask, fence, entitled))
    found: dict[str, list[Queue]] = {}
    for leaf in sorted(leaves_below(state.root), key=lambda queue: queue.path):
        if leaf is ask.queue:
            law: str | None = OWN_QUEUE
        elif leaf not in inside:
            law = LAW_7
        else:
            law = _first_law(terms, leaf, ask, index, now_ns) if terms is not None else None
        if law is not None:
            found.setdefault(_NAMES.get(law, law), []).append(leaf)
    tallies = [
        LawTally(law, len(leaves), sum(map(_count_allocations, leaves)), leaves[0].path)
        for law, leaves in found.items()
    ]
    return tuple(sorted(tallies, key=lambda tally: (-tally.allocations, tally.law)))


def _first_law(terms: Terms, leaf: Queue, ask: Allocation, index: VictimIndex, now_ns: int) -> str | None:
    """Returns the first rule by which *leaf* is protected as a whole; ``None``: it has possible victims. A minimum run
    time counts if it alone keeps somebody back."""
    leaf_terms = terms.terms_of(leaf)
    if isinstance(leaf_terms, str):
        return leaf_terms
    by_size = [terms.effects_of(leaf, shape) for shape in index.rank_leaf(leaf).sizes]
    blocked = [law for law in by_size if isinstance(law, str)]
    if blocked and len(blocked) == len(by_size):
        return blocked[0]
    first: str | None = None
    ends_ns = 0
    guard = leaf_terms.branch.guard or leaf
    for allocation in _allocations_of(leaf):
        law = _find_law(terms, leaf_terms, allocation, ask)
        if law is None:
            until_ns = protected_until(allocation, guard)
            if until_ns <= now_ns:
                return None
            ends_ns = min(until_ns, ends_ns or until_ns)
        first = first or law
    return say_until(ends_ns) if ends_ns else first


def _find_law(terms: Terms, leaf_terms: LeafTerms, allocation: Allocation, ask: Allocation) -> str | None:
    if leaf_terms.highest is not None and allocation.priority > leaf_terms.highest:
        return "law 6"
    if allocation.spec.required_node:
        return "required node"
    effects = terms.effects_of(allocation.queue, allocation.shape)
    if isinstance(effects, str):
        return effects
    if allocation.preempted or allocation.released:
        return "leaving already"
    return "law 3" if allocation.application is ask.application else None


def _allocations_of(leaf: Queue) -> Iterator[Allocation]:
    for application in leaf.applications.values():
        yield from application.allocations.values()


def _count_allocations(leaf: Queue) -> int:
    return sum(len(application.allocations) for application in leaf.applications.values())
