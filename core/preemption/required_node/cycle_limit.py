"""Limits victims on required nodes: the policy must be on, and the limit of one interval must not be used up."""

from __future__ import annotations

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Reservation
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.rooms import look_again
from kornel.core.preemption import pacing
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.required_node.planner import KIND


def hold_back(state: PartitionState, reservation: Reservation, now_ns: int) -> Refusal | None:
    """Returns why the ask of *reservation* may not preempt on its required node now; ``None``: an attempt may be made.

    An ask that the limit holds back is tried again later.
    """
    if KIND not in state.preemption.policies:
        return _refuse_unlisted()
    held = pacing.check_victim_limit(state, KIND, pacing.current_window(state, KIND, now_ns))
    if held is not None and held.retry_ns is not None:
        pacing.wait_until(state, KIND, reservation, held.retry_ns, _look_again)
    return held


def foresee_limit(state: PartitionState, now_ns: int) -> Refusal | None:
    """Forecasts the result of :func:`hold_back` without dropping or noting anything."""
    if KIND not in state.preemption.policies:
        return _refuse_unlisted()
    return pacing.check_victim_limit(state, KIND, pacing.foreseen_window(state, KIND, now_ns))


def _refuse_unlisted() -> Refusal:
    return Refusal(Outcome.POLICY_OFF, f"preemption.policies does not list {KIND}")


def _look_again(state: PartitionState, now_ns: int) -> None:
    """Tries as many of the asks that were held back as the limit has room for, those held back for longest first; the
    others go on waiting."""
    pace, window = state.pace.of_kind(KIND), pacing.current_window(state, KIND, now_ns)
    most = state.preemption.governor.bound_of(KIND).interval
    room = most - window.totals.victims if most else len(pace.waiting)
    # Each ask may need a victim, so more asks than the limit has room for would only be held back again.
    while room > 0 and pace.waiting:
        reservation = next(iter(pace.waiting))
        del pace.waiting[reservation]
        if isinstance(reservation, Reservation) and state.reservations.get(reservation.ask.key) is reservation:
            look_again(state, reservation)
            room -= 1
    if pace.waiting:
        interval_ns = state.preemption.cycle_interval_ns
        pacing.wake_at(state, now_ns + max(1, interval_ns // pacing.WAKES_PER_INTERVAL))
