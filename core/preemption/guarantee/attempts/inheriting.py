"""Passes a firm claim inside a leaf, or the part that is asked for, to a more important ask, which then needs no
victims of its own (preemption.md B.7).

The more important ask takes over what it asks for, and nobody else has to leave for it; the former holder saves the
rest and may try again.
"""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.preemption_kinds import WITHIN
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import NO_VICTIMS, Allocation, Reservation
from kornel.core.model.shapes import Pairs, book_amounts, holds_pairs
from kornel.core.policies.claim_order import comes_before, owing_queues
from kornel.core.preemption import eviction
from kornel.core.preemption.budgets import may_ever_preempt
from kornel.core.preemption.entitlement import fence_root
from kornel.core.preemption.guarantee.search.planner import KIND
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.walk import Candidate, Effects, Walk
from kornel.core.state.asks import finding, group_domains, reservations
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.admission import allocates_nothing


def take_over_claim(state: PartitionState, ask: Allocation, now_ns: int) -> Reservation | None:
    """Gives *ask*, which found no room, what it asks for of the claim of the least important ask of its leaf that comes
    after it. Returns that claim, which has ended, with the amounts that are left of it, all if only devices are;
    ``None``: there is none."""
    if ask.triggered or not may_ever_preempt(ask):
        return None
    holders = [holder for holder in ask.queue.claimants if comes_before(ask, holder)]
    # Of equally important ones, one that asks for the same keeps nothing that it would have to complete.
    holders.sort(key=lambda other: (other.spec.priority, other.shape is not ask.shape, -other.created_ns, other.key))
    for holder in holders:
        claim = holder.reservation
        kind = _find_kind(state, claim, ask) if claim is not None and _may_pass_to(state, claim, ask) else None
        if claim is not None and kind is not None:
            _pass_on(state, claim, ask, kind, now_ns)
            return claim
    return None


def _may_pass_to(state: PartitionState, claim: Reservation, ask: Allocation) -> bool:
    """Tells whether *claim* may pass at all, and what is idle and leaving for it, and beside all claims on its node, is
    enough for *ask*, in a domain that its group allows."""
    holder, node = claim.ask, claim.node
    fixed = holder.place is AskPlace.HELD or holder.spec.required_node or state.gangs.hold_of(holder) is not None
    if claim.comes_last or fixed or not node.schedulable:
        return False
    if node.node_id in (ask.refused or ()) or node.node_id in ask.stuck.values():
        return False
    room = list(node.beside)
    book_amounts(room, claim.pairs)
    if not holds_pairs(room, ask.shape.pairs) or _find_devices(state, claim, ask) is None:
        return False
    among = group_domains.nodes_for_victims(state, ask)
    return among is None or node in among


def _find_devices(state: PartitionState, claim: Reservation, ask: Allocation) -> list[str] | None:
    """Returns the names of the devices that *ask* gets on the node of *claim* in place of its holder, once those that
    leave have left; ``None``: too few."""
    return device_books.find_later(claim.node, ask, (), state.stuck, instead_of=claim.ask)


def _find_kind(state: PartitionState, claim: Reservation, ask: Allocation) -> str | None:
    """Returns the kind by which the victims of *claim* would have gone for *ask*; ``None``: the limits or laws 3, 4 and
    7 would have let nobody go. The other laws bind it less than the holder, which is less important and of the same
    leaf."""
    holder = claim.ask
    swaps_in, noted = holder.swaps_in, len(state.gained)
    # An application that holds nothing else gives its slot up with the claim.
    alone = holder.application is not ask.application and allocates_nothing(holder.application, but=holder)
    slots = [queue.allocating for queue in holder.queue.lineage()] if alone else []
    for slot in slots:
        del slot[holder.application]
    ledger.unbook_claim(state, holder)
    limited, fence = finding.exceeded_limit(state, ask), fence_root(ask)
    # Every max on the path lets it have what the holder was to have once the victims have left.
    admitted = limited is None or (limited.preemption_may_help and not _subtract(ask.shape.pairs, holder.shape.pairs))
    theirs = all(fence in v.queue.lineage() and v.application is not ask.application for v in holder.victims.values())
    # Within the leaf nobody has to be owed anything.
    within = state.preempts_within(ask.queue) and all(v.queue is ask.queue for v in holder.victims.values())
    owed = bool(owing_queues(ask, state.guarantee_mode))
    ledger.book_claim(state, holder)
    for slot in slots:
        slot[holder.application] = None
    holder.swaps_in = swaps_in
    del state.gained[noted:]  # It was only supposed, so nobody has gained anything.
    if not (admitted and theirs and (within or owed)):
        return None
    # Nobody of its own leaf goes for a guarantee.
    return WITHIN.name if within and (holder.victims or not owed) else KIND


def _pass_on(state: PartitionState, claim: Reservation, ask: Allocation, kind: str, now_ns: int) -> None:
    holder, node, former = claim.ask, claim.node, claim.ask.victims
    taken = set(_find_devices(state, claim, ask) or ())
    rest = _subtract(holder.shape.pairs, ask.shape.pairs)
    if not rest and not taken.issuperset(device_books.list_kept(node, holder)):
        rest = holder.shape.pairs
    victims = _choose_victims(state, claim, ask) if rest else former
    ask.victims = {**ask.victims, **victims}  # Some may leave for it already, from a claim that a limit ended.
    holder.victims = {key: victim for key, victim in former.items() if key not in victims} or NO_VICTIMS
    for victim in victims.values():
        victim.preemptor = ask
    reservations.reserve_node(state, ask, node, now_ns, before=claim)
    eviction.rearm_ask(state, holder, now_ns)
    device_books.keep_devices(node, ask, (), state.stuck)
    ledger.book_claim(state, ask)
    ask.outcome = Outcome.TRIGGERED
    ask.attempt_due = False
    plan = PreemptionPlan(kind, ask, node, (), fence_root(ask))
    eviction.watch_exits(state, plan, now_ns, tuple(victims.values()))
    detail = f"takes over {'a part of ' * bool(rest)}what leaves for ask {holder.spec.key}, which is less important"
    eviction.record_decision(state, kind, ask, now_ns, Outcome.TRIGGERED, detail, plan)
    claim.pairs = rest


def _choose_victims(state: PartitionState, claim: Reservation, ask: Allocation) -> dict[str, Allocation]:
    """Returns the victims of *claim* that make up for what *ask* lacks of the room that is idle for it, those that hold
    its devices, and those on other nodes, which leave for a queue."""
    node = claim.node
    assert node.claims is not None, "a reservation has a claim"
    room = node.claims.room_of(claim, node.free)
    lacks = {t: amount - room[t] for t, amount in ask.shape.pairs if amount > room[t]}
    needs = {t: number for number, t in enumerate(lacks)}
    walk = Walk(list(lacks.values()), [])
    walk.take_from(_list_candidates(claim, needs))
    taken, devices = {victim[3] for victim in walk.give_back()}, _find_devices(state, claim, ask) or ()
    return {
        key: victim
        for key, victim in claim.ask.victims.items()
        if key in taken or victim.node is not node or not set(victim.devices).isdisjoint(devices)
    }


def _list_candidates(claim: Reservation, needs: dict[int, int]) -> Iterator[Candidate]:
    """Yields the victims of *claim* on its node, in the order in which they were chosen. *needs*: the number of each
    need, by type."""
    for key, victim in claim.ask.victims.items():
        if victim.node is claim.node:
            gains = tuple([(needs[t], amount) for t, amount in victim.shape.pairs if t in needs])
            yield 0, 0, 0, key, victim, Effects(gains, (), tuple([need for need, _ in gains]))


def _subtract(pairs: Pairs, other: Pairs) -> Pairs:
    """Returns by how much *pairs* exceed *other*, without the types of which they do not."""
    less = dict(other)
    return tuple([(t, amount - less.get(t, 0)) for t, amount in pairs if amount > less.get(t, 0)])
