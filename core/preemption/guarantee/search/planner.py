"""Plans preemption between queues, where it finds victims for an ask whose queue is below its guarantee, and within the
leaf of an ask.

Rules: preemption.md A (the laws), B.2-B.6. :mod:`..attempts.drive` decides when an ask may try (B.1) and applies the
plan (B.7).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kornel.core.domain.preemption_kinds import GUARANTEE, WITHIN
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.entitlement import fence_root, find_entitlement
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.rules.candidates import Candidates, Ranking, Solution
from kornel.core.preemption.guarantee.rules.cost import COSTS
from kornel.core.preemption.guarantee.rules.needs import NOTHING_LENT, Needs
from kornel.core.preemption.guarantee.rules.own_leaf import OwnLeafTerms
from kornel.core.preemption.guarantee.search.device_predicate import DevicePredicate
from kornel.core.preemption.guarantee.search.predicates import Approval
from kornel.core.preemption.guarantee.search.prospects import KnownProspects, Prospects
from kornel.core.preemption.guarantee.search.search import Search
from kornel.core.preemption.plan import (
    NOBODY_SPARED,
    FreedAmounts,
    PreemptionPlan,
    PreemptionPredicate,
    Refusal,
    Spared,
)
from kornel.core.preemption.run_times import is_impatient, say_until
from kornel.core.state.records.victim_index import CLASSES, VictimIndex
from kornel.shared.readable_amounts import format_count

KIND: Final = GUARANTEE.name


class Within(NamedTuple):
    """The bounds of an ask that is a member of a gang: the fence of the whole gang, the nodes that it *allows*, and the
    nodes *among* which it has to run if it needs a domain; *near* keeps the prospects of just these. *mode* is the
    reading of law 4 for the gang; ``None``: that of the partition."""

    fence: Queue
    allows: Callable[[Node], bool]
    among: Sequence[Node] | None = None
    near: KnownProspects | None = None
    mode: GuaranteeMode | None = None


def plan_preemption(
    view: PartitionView,
    ask: Allocation,
    *,
    predicate: PreemptionPredicate | None = None,
    index: VictimIndex | None = None,
    known: KnownProspects | None = None,
    spared: Spared = NOBODY_SPARED,
    now_ns: int,
    within: Within | None = None,
    kind: str = KIND,
    patient: bool = False,
) -> PreemptionPlan | Refusal:
    """Returns the victims for *ask* and the node to reserve, or why there are none. Changes nothing in *view*.

    The same state gives the same answer, whatever the order of entries in maps. *now_ns* only matters for minimum run
    times, and if the price of a victim is the work that it has done. *index* and *known* belong to the partition; they
    make an attempt much cheaper and do not change its result. Raises the error of *predicate* if an answer is still to
    come, once all questions have been asked, and :class:`Unprepared` if *known* needs another step to be brought up to
    date. *within*: the further bounds of a member of a gang. *kind*: the one that plans, for a guarantee or within the
    leaf. *patient*: minimum run times count, however long *ask* has waited. Nodes that the shim once refused for *ask*
    are tried when no other is left.
    """
    refused = Refusal(Outcome.NO_NODE)
    last = ask.tried_last
    for spares in (last, None) if last else (None,):
        found = _plan_on_nodes(view, ask, spares, predicate, index, known, spared, now_ns, within, kind)
        if isinstance(found, PreemptionPlan):
            return found
        refused = found
    if refused.protected and not patient and is_impatient(ask, now_ns):
        late = _plan_on_nodes(view, ask, None, predicate, index, None, spared, now_ns, within, kind, late=True)
        return late if isinstance(late, PreemptionPlan) else refused
    return refused


def _plan_on_nodes(
    view: PartitionView,
    ask: Allocation,
    left_out: Container[str] | None,
    predicate: PreemptionPredicate | None,
    index: VictimIndex | None,
    known: KnownProspects | None,
    spared: Spared,
    now_ns: int,
    within: Within | None,
    kind: str,
    *,
    late: bool = False,
) -> PreemptionPlan | Refusal:
    """Plans as :func:`plan_preemption`, without the nodes *left_out*. *late*: minimum run times keep nobody back."""
    names = view.types.names
    inside = kind == WITHIN.name
    # The claims that lend to a gang are off the books while its members are planned.
    lent = view.find_lent(ask) if within is None else NOTHING_LENT
    terms = OwnLeafTerms(ask, lent) if inside else _find_terms(view, ask, lent, within)
    if isinstance(terms, Refusal):
        return terms
    fence, needs = terms.fence, terms.needs
    pricing = COSTS[view.victim_order]
    candidates = Candidates(ask, fence, terms, index or VictimIndex(), spared, now_ns=now_ns, late=late)
    if pricing is not None:
        candidates.order_by_price(pricing, now_ns, view.checkpoints)
    prospects: Prospects | None = None
    among = None if within is None else within.among
    nodes = view.nodes
    if within is not None and among is not None:
        known, nodes = None if late else within.near, {node.node_id: node for node in among}
    if known is not None and pricing is None and spared is NOBODY_SPARED:
        prospects = known.refreshed_for(ask, fence, nodes, terms, needs)
    by_class = candidates.rank_classes()
    if inside and not needs.needs_victims_everywhere():
        # Only nodes where somebody may go, alone or with his gang, are looked at, which are few or none.
        gangs = [application for application in ask.queue.applications.values() if application.leaves_whole]
        going = [victim[4] for ranking in by_class for victim in ranking]
        going += [member for gang in gangs for member in gang.allocations.values()]
        there = dict.fromkeys(task.node for task in going)
        among = [node for node in there if node is not None and (among is None or node in among)]
        if not among:
            detail = f"in {fence.path}: {_name_kept_back(candidates, candidates.dropped)}"
            protected = candidates.ends_ns > 0
            by_law_3 = protected or "law 3" in candidates.dropped
            return Refusal(Outcome.NO_CANDIDATES, detail, protected=protected, by_law_3=by_law_3)
    search = Search(view, ask, needs, terms, candidates, by_class, prospects)
    shim_asked = predicate is not None
    shape, allows = ask.shape, _allowed_nodes(within, left_out)
    if shape.devices is not None:
        # The member of a gang also gets open room that the victims for members before it leave.
        search.keep_to(
            lambda node: node.could_hold_shape(shape) and (allows is None or allows(node)), among,
            open_too=within is not None,
        )  # fmt: skip
        predicate = DevicePredicate(predicate, view.given_up, lent)
    elif allows is not None or among is not None:
        search.keep_to(allows or _allow_any, among)
    extended = False
    if predicate is None:
        solution = search.find_best()
    else:
        approval = Approval(ask, needs, terms.room, candidates, predicate)
        approved = approval.first_approved(search.list_solutions())
        if approved is None and approval.asked and shim_asked:
            detail = f"{approval.asked} nodes refused by the predicate"
            return Refusal(Outcome.PREDICATE_REFUSED, detail, protected=candidates.ends_ns > 0)
        solution, extended = (None, False) if approved is None else approved
    if solution is None or (within is None and solution.level and not late):
        milder = _find_whole_gang(ask, search, predicate, solution)
        solution, extended = (solution, extended) if milder is None else (milder, False)
    if solution is None:
        if among is None:
            nobody = _explain_failure(view, fence, candidates, by_class, search, prospects)
        else:
            nobody = _explain_failure_among(among, candidates, search)
        return replace(
            nobody,
            anywhere=needs.needs_victims_everywhere(),
            cut_short=search.cut_short,
            protected=candidates.ends_ns > 0,
            by_law_3=candidates.ends_ns > 0 or "law 3" in candidates.dropped,
        )
    return PreemptionPlan(
        kind=kind,
        ask=ask,
        node=solution.node,
        victims=tuple(victim[4] for victim in solution.victims),
        fence=fence,
        needs=FreedAmounts(needs.describe_needs(solution.node, names)),
        adjusted=tuple(candidates.adjusted_priority(victim[4]) for victim in solution.victims),
        extended=extended and shim_asked,
        weighed=search.describe_weighed(),
        spared=spared,
    )


def _find_terms(
    view: PartitionView, ask: Allocation, lent: Mapping[Node, Sequence[Reservation]], within: Within | None
) -> Terms | Refusal:
    """Returns what the laws let *ask* take for a guarantee, or why nothing."""
    mode = None if within is None else within.mode
    entitled = find_entitlement(ask, mode or view.guarantee_mode, view.types.names)
    if isinstance(entitled, Refusal):
        return entitled
    fence = fence_root(ask) if within is None else within.fence
    if fence is ask.queue:
        return Refusal(Outcome.FENCED_AT_LEAF, f"no victim outside {fence.path} may help")
    return Terms(ask, fence, entitled, Needs(ask, fence, entitled, lent))


def _allow_any(_node: Node) -> bool:
    return True


def _allowed_nodes(within: Within | None, left_out: Container[str] | None) -> Callable[[Node], bool] | None:
    """Returns what tells the nodes *within* bounds that are not *left_out*; ``None``: all nodes are."""
    allows = None if within is None else within.allows
    if left_out is None:
        return allows
    return lambda node: node.node_id not in left_out and (allows is None or allows(node))


def _find_whole_gang(
    ask: Allocation, search: Search, predicate: PreemptionPredicate | None, without: Solution | None
) -> Solution | None:
    """Returns the best solution that takes a whole gang and that *predicate* allows without further victims. Only
    victims of milder classes than those of the best solution *without* gangs count."""
    for solution in search.list_with_gangs(search.levels if without is None else CLASSES[: without.level]):
        here = tuple(victim[4] for victim in solution.victims if victim[4].node is solution.node)
        last = len(here) - 1
        answer = last if predicate is None else predicate(ask, solution.node, here, last)
        if answer is not None and answer <= last:
            return solution
    return None


def _explain_failure(
    view: PartitionView,
    fence: Queue,
    candidates: Candidates,
    by_class: Sequence[Ranking],
    search: Search,
    prospects: Prospects | None,
) -> Refusal:
    """Returns why there is no solution: no allocation may be a victim, or those that may do not make enough room on any
    node."""
    candidates.count_closed_leaves()
    if prospects is not None and candidates.may_give() and candidates.any_on(view.nodes.values()):
        detail = f"nodes: {_name_counts(search.verdicts)}; kept back: {_name_kept_back(candidates, candidates.dropped)}"
        return Refusal(Outcome.NO_NODE, detail)
    for ranking in by_class:
        for _ in ranking:
            pass
    if not candidates.found:
        candidates.dropped["law 7"] = candidates.count_outside(view.root)
        return Refusal(Outcome.NO_CANDIDATES, f"below {fence.path}: {_name_kept_back(candidates, candidates.dropped)}")
    search.verdicts["need left"] += len(view.nodes) - search.verdicts.total()
    detail = (
        f"nodes: {_name_counts(search.verdicts)}; candidates {candidates.found},"
        f" kept back: {_name_kept_back(candidates, candidates.dropped)}"
    )
    return Refusal(Outcome.NO_NODE, detail)


def _explain_failure_among(among: Sequence[Node], candidates: Candidates, search: Search) -> Refusal:
    """Returns why none of the few nodes *among* which the ask is to run can be freed, without a look at others."""
    kept_back = _name_kept_back(candidates, candidates.count_kept_back(among))
    if not candidates.any_on(among):
        return Refusal(Outcome.NO_CANDIDATES, f"on {format_count(len(among), 'node')}: {kept_back}")
    return Refusal(Outcome.NO_NODE, f"nodes: {_name_counts(search.verdicts)}; kept back: {kept_back}")


def _name_kept_back(candidates: Candidates, counts: Mapping[str, int]) -> str:
    return _name_counts(counts) + (f", {say_until(candidates.ends_ns)}" if candidates.ends_ns else "")


def _name_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "none"
