"""Room on the one node that an ask must run on: whoever is in the way there has to go (preemption.md C).

The ask holds a reservation of the node by then. It needs no age, no guarantee and no attempt left, and
``preemption.enabled`` does not matter.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting import failing
from kornel.core.partition.waiting.rooms import look_again
from kornel.core.preemption import eviction, pacing
from kornel.core.preemption.governor import governing
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.preemption.required_node import cycle_limit, laws
from kornel.core.preemption.required_node import planner as required_node

ATTEMPT_COST: Final = 10
"""Decisions that one such search counts for in a slice's budget."""


def has_asks(state: PartitionState) -> bool:
    """Tells whether anybody waits."""
    return state.root.waiting > 0


def must_run_there(reservation: Reservation) -> bool:
    """Tells whether the ask of *reservation* must run on its node."""
    return bool(reservation.ask.spec.required_node)


def attempt_preemption(state: PartitionState, reservation: Reservation, now_ns: int) -> bool:
    """Have the least important tasks leave the node so that the ask fits. Returns whether any do.

    To be called when the quotas admit the ask. Nothing happens if it fits already, or preempted before.
    """
    found = find_plan(state, reservation, now_ns)
    if not isinstance(found, PreemptionPlan):
        return False
    apply_plan(state, reservation, found, now_ns)
    return True


def find_plan(state: PartitionState, reservation: Reservation, now_ns: int) -> PreemptionPlan | Refusal | None:
    """Returns whom the ask of *reservation* may have leave its node now, or why nobody, which is noted.

    ``None``: nobody has to, because the room is there, or about to be.
    """
    ask, node = reservation.ask, reservation.node
    if ask.triggered:
        return None
    if required_node.room_is_coming(node, ask):
        _rank_claim(state, reservation, now_ns, last=False)
        return None
    # No room is coming, so whoever preempts on this node comes first until victims leave for this ask.
    _rank_claim(state, reservation, now_ns, last=True)
    held = cycle_limit.hold_back(state, reservation, now_ns)
    if held is not None:
        pacing.note_held_back(state, required_node.KIND, ask, held, now_ns)
        return held
    state.preemption_attempts += 1
    state.search_cost += ATTEMPT_COST
    would_be: PreemptionPlan | None = None
    result = required_node.plan_preemption(state, ask, node)
    if isinstance(result, PreemptionPlan):
        refusal = eviction.check_lawful(state, result, laws.check) or governing.refuse_too_many(state, result)
        if refusal is None and not governing.is_shadowed(state, required_node.KIND):
            return result
        # A plan that is only watched is recorded with those who would have left.
        would_be = result if refusal is None else None
        result = refusal or Refusal(Outcome.SHADOW)
    failing.note_preemption(ask, result.outcome, now_ns)
    if state.recording and result.outcome is Outcome.NO_VICTIM_REQUIRED_NODE:
        state.events.no_victim_on_required_node(ask)
    # Said once: every change on the node is another chance (scheduling.md 8.4), and most end the same way.
    if ask.outcome is not result.outcome:
        ask.outcome = result.outcome
        eviction.record_decision(state, required_node.KIND, ask, now_ns, result.outcome, result.detail, would_be)
    return result


def apply_plan(state: PartitionState, reservation: Reservation, plan: PreemptionPlan, now_ns: int) -> None:
    """Has the victims of *plan* leave for *reservation*, which comes first on its node from now on."""
    eviction.apply_plan(state, plan, now_ns)
    _rank_claim(state, reservation, now_ns, last=False)


def _rank_claim(state: PartitionState, reservation: Reservation, now_ns: int, *, last: bool) -> None:
    """Ranks the claim of *reservation*: before all who preempt on its node while room is leaving for it, or *last*."""
    node = reservation.node
    if reservation.comes_last is not last:
        node.rank_claim(reservation, last=last)
        state.node_order.refresh_node(node)
        state.changes += 1
        if last and node.claims is not None:
            # What it held first is for those who preempt there now.
            for other in node.claims.to_wake(node.free):
                if other is not reservation:
                    look_again(state, other)
    if not last:
        eviction.end_excess_claims(state, node, now_ns)


def serve_reserved(state: PartitionState, reservation: Reservation, limited: NotPlaced | None, now_ns: int) -> bool:
    """Try to make room for the ask of *reservation* on the node that it must run on, if no limit keeps it back.

    Returns whether victims were asked to leave.
    """
    return (
        limited is None and bool(reservation.ask.spec.required_node) and attempt_preemption(state, reservation, now_ns)
    )


def look_at_node(state: PartitionState, allocation: Allocation, _now_ns: int) -> None:
    """Look again at those who must run on the node of *allocation*, which may be in their way and was not placed there,
    or may have to go for them from now on."""
    if allocation.node is None:
        return
    for reservation in allocation.node.reservations.values():
        if reservation.ask.spec.required_node:
            look_again(state, reservation)
