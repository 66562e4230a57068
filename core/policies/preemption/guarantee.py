"""Guarantee-driven preemption between queues: who makes room for an ask whose queue is below its guarantee.

Rules: preemption.md A (the laws), B.2-B.6. When an ask may try at all (B.1) and what becomes of the plan (B.7) is the
partition's business.
"""

from __future__ import annotations

from typing import Final

from core.domain.reasons import Outcome
from core.model.allocations import Allocation
from core.policies.preemption.candidates import Candidates, gather, outside
from core.policies.preemption.entitlement import entitlement
from core.policies.preemption.fences import fence_root
from core.policies.preemption.needs import Needs
from core.policies.preemption.plan import PreemptionPlan, PreemptionPredicate, Refusal
from core.policies.preemption.predicates import Approval
from core.policies.preemption.search import Search
from core.policies.preemption.terms import Terms
from core.policies.view import PartitionView

KIND: Final = "guarantee"


def plan(
    view: PartitionView, ask: Allocation, *, predicate: PreemptionPredicate | None = None, now_ns: int
) -> PreemptionPlan | Refusal:
    """Victims for *ask* and the node to reserve, or why nobody goes. Changes nothing.

    The same state gives the same answer in whatever order maps hold their entries. *now_ns* only ages reservations
    that would have to give way.
    """
    names = view.types.names
    entitled = entitlement(ask, view.guarantee_mode, names)
    if isinstance(entitled, Refusal):
        return entitled
    fence = fence_root(ask)
    if fence is ask.queue:
        return Refusal(Outcome.FENCED_AT_LEAF, f"no victim outside {fence.path} may help")
    needs = Needs(ask, fence, entitled)
    terms = Terms(ask, fence, entitled, needs)
    candidates = gather(ask, fence, terms)
    if not candidates.any():
        candidates.dropped["law 7"] = outside(ask, fence, view.root)
        return Refusal(Outcome.NO_CANDIDATES, f"below {fence.path}: {_counts(candidates.dropped)}")
    search = Search(view, ask, needs, terms, candidates, now_ns)
    extended = False
    if predicate is None:
        solution = search.best()
    else:
        solutions = search.all()
        approved = Approval(ask, needs, terms.room, search, predicate).first(solutions)
        if approved is None and solutions:
            return Refusal(Outcome.PREDICATE_REFUSED, f"{len(solutions)} nodes refused by the predicate")
        solution, extended = (None, False) if approved is None else approved
    if solution is None:
        return Refusal(Outcome.NO_NODE, _no_node(view, candidates, search))
    return PreemptionPlan(
        kind=KIND,
        ask=ask,
        node=solution.node,
        victims=tuple(victim[4] for victim in solution.victims),
        fence=fence,
        cancelled=search.cancelled(solution.node),
        needs=needs.described(solution.node, names),
        adjusted=tuple(victim[0] for victim in solution.victims),
        extended=extended,
    )


def _no_node(view: PartitionView, candidates: Candidates, search: Search) -> str:
    """What became of the nodes: those without a candidate, those not usable, and those that stay too full."""
    with_candidates = len({node for buckets in candidates.by_class for node in buckets})
    search.verdicts["no candidate"] = len(view.nodes) - with_candidates
    unsolved = with_candidates - sum(n for verdict, n in search.verdicts.items() if verdict != "no candidate")
    search.verdicts["need left"] += unsolved
    return f"nodes: {_counts(search.verdicts)}; allocations: {_counts(candidates.dropped)}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "none"
