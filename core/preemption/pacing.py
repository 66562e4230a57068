"""How much preemption for asks may take within one interval, and which kinds act at all, whatever path asks (F4, F7).

Every attempt asks here first, wherever it comes from: the allocation cycle, a reserved ask, a round, a required node.
What was taken is reported here once it is decided. Those held back are offered again when the window has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.shapes import Pairs
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting import failing
from kornel.core.partition.waiting.rooms import UNSERVED, activate, look_again
from kornel.core.preemption.governor import governing
from kornel.core.preemption.governor.bounds import CLUSTER, NAME, SECOND_NS, Denial
from kornel.core.preemption.guarantee import planner as guarantee
from kornel.core.preemption.guarantee.entitlement import entitlement
from kornel.core.preemption.pace import Taken, Totals, Window
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.required_node import planner as required_node

WAKES_PER_INTERVAL: Final = 10
"""How often those held back are looked at within one interval: the window moves with every decision it holds, and to
look each time would cost more than the attempts themselves."""
QUIET_NS: Final = 15 * SECOND_NS
"""After so long without anybody held back, the next time is news."""


def hold_back(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns why nobody may preempt for *ask* now, by whatever path; ``None``: an attempt may be made.

    The limit is tested before an attempt, so the last one may exceed it by its own result (F7).
    """
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, why_off(state))
    if ask.dialogue is not None and ask.dialogue.waits:
        return None  # Nothing is decided before the shim has answered, and then it is asked here again.
    window = state.pace.guarantee
    window.forget(now_ns - state.preemption.cycle_interval_ns)
    held = _guarantee_limit(state, window, ask.shape.pairs)
    if held is not None and isinstance(entitlement(ask, state.guarantee_mode, state.types.names), Refusal):
        return None  # It may not preempt at all: that is found without a search, and says more.
    return held


def foresee(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """As :func:`hold_back`, for a question: nothing is forgotten, noted or said."""
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, why_off(state))
    window = state.pace.guarantee.without(now_ns - state.preemption.cycle_interval_ns)
    return _guarantee_limit(state, window, ask.shape.pairs)


def why_off(state: PartitionState) -> str:
    """Returns what keeps asks from preempting for guarantees in this partition as it is configured."""
    if not state.preemption.enabled:
        return "preemption.enabled is off"
    if guarantee.KIND not in state.preemption.policies:
        return f"preemption.policies does not list {guarantee.KIND}"
    return "the periodic monitor is on: asks do not preempt by themselves"


def keep_waiting(state: PartitionState, group: AskGroup, now_ns: int) -> bool:
    """Whether the limit holds back the asks of *group* that are due. They stay due, and are offered again in time."""
    ask = next(iter(group.due), None)
    held = hold_back(state, ask, now_ns) if ask is not None else None
    if ask is None or held is None:
        return False
    note(state, guarantee.KIND, ask, held, now_ns)
    if held.retry_ns is not None:
        state.pace.waiting[group] = None
        _wake_at(state, held.retry_ns)
    return True


def is_open(state: PartitionState, now_ns: int) -> bool:
    """Tells whether a round may go on: nothing of the limit is used up, of whatever type."""
    window = state.pace.guarantee
    window.forget(now_ns - state.preemption.cycle_interval_ns)
    return _guarantee_limit(state, window, tuple(state.root.max.items())) is None


def count(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """The victims of *plan* are asked to leave: that counts for one interval. Without victims nothing was taken."""
    if not plan.victims:
        return
    window = state.pace.guarantee if plan.kind == guarantee.KIND else state.pace.required_node
    window.forget(now_ns - state.preemption.cycle_interval_ns)
    window.add(Taken(now_ns, plan.ask.shape.pairs, len(plan.victims)))


def hold_back_required(state: PartitionState, reservation: Reservation, now_ns: int) -> Refusal | None:
    """Why nobody may leave the node that the ask of *reservation* must run on now; ``None``: an attempt may be made.

    Held back by the limit it is looked at again in time.
    """
    if required_node.KIND not in state.preemption.policies:
        return Refusal(Outcome.POLICY_OFF, f"preemption.policies does not list {required_node.KIND}")
    window = state.pace.required_node
    window.forget(now_ns - state.preemption.cycle_interval_ns)
    held = _victim_limit(state, window, state.preemption.governor.bound_of(required_node.KIND).interval)
    if held is not None and held.retry_ns is not None:
        state.pace.waiting_reservations[reservation] = None
        _wake_at(state, held.retry_ns)
    return held


def foresee_required(state: PartitionState, now_ns: int) -> Refusal | None:
    """As :func:`hold_back_required`, for a question."""
    if required_node.KIND not in state.preemption.policies:
        return Refusal(Outcome.POLICY_OFF, f"preemption.policies does not list {required_node.KIND}")
    window = state.pace.required_node.without(now_ns - state.preemption.cycle_interval_ns)
    return _victim_limit(state, window, state.preemption.governor.bound_of(required_node.KIND).interval)


def allow_enforcement(
    state: PartitionState, victims: Sequence[Allocation], now_ns: int, run: object
) -> tuple[int, Denial | None]:
    """How many of *victims*, from the first on, may leave now for the lowered max of *run*; what keeps back the rest.

    Those are counted: they are asked to leave next.
    """
    most, denial = governing.allowed(state, victims, "", now_ns, run)
    window, bound = state.pace.quota, state.preemption.governor.bound_of(quota.KIND).interval
    interval_ns = state.preemption.cycle_interval_ns
    window.forget(now_ns - interval_ns)
    room = bound - window.totals.victims
    if bound and room < most:
        # Only when all of it is open again: each part of a run costs as much as the whole.
        again_ns = (window.taken[-1].at_ns if room <= 0 else now_ns) + interval_ns
        detail = f"{bound} victims of lowered maxima may go within {interval_ns / SECOND_NS:g} s"
        most, denial = max(0, room), Denial(Outcome.ROUND_LIMIT, CLUSTER, detail, again_ns)
        _say_held_back(state, quota.KIND, detail, now_ns)
    if most:
        window.add(Taken(now_ns, (), most))
    return most, denial


def note(state: PartitionState, kind: str, ask: Allocation, held: Refusal, now_ns: int) -> None:
    """*ask* is *held* back: put down why, and say it where it is news."""
    failing.note_preemption(ask, held.outcome, now_ns)
    if held.outcome is Outcome.ROUND_LIMIT:
        _say_held_back(state, kind, held.detail, now_ns)
        if state.recording:
            state.events.preemption_bounded(ask, held.detail)
    if ask.outcome is not held.outcome:
        ask.outcome = held.outcome
        key, application = ask.spec.key, ask.application
        decided = PreemptionDecided(
            now_ns, state.name, kind, key, application.application_id, ask.queue.path, held.outcome, held.detail, "", ()
        )
        state.effects.append(decided)


def _say_held_back(state: PartitionState, kind: str, detail: str, now_ns: int) -> None:
    """One event each time that the limit of *kind* begins to hold somebody back."""
    before_ns = state.pace.held_ns.get(kind)
    state.pace.held_ns[kind] = now_ns
    if before_ns is None or now_ns - before_ns > max(QUIET_NS, 2 * state.preemption.cycle_interval_ns):
        outcome = Outcome.ROUND_LIMIT
        said = PreemptionDecided(now_ns, state.name, NAME, "", "", "", outcome, f"{kind}: {detail}", "", ())
        state.effects.append(said)


def _guarantee_limit(state: PartitionState, window: Window, pairs: Pairs) -> Refusal | None:
    """Returns what of the limit an ask for *pairs* finds used up."""
    settings = state.preemption
    share, sizes = settings.cycle_limit, state.root.max
    if share <= 0:
        return Refusal(Outcome.ROUND_LIMIT, "preemption.cycle.limit is 0: nobody preempts for a guarantee")
    most = {t: sizes[t] * share for t, amount in pairs if amount > 0 and sizes.get(t, 0) > 0}

    def reached(totals: Totals) -> int | None:
        return next((t for t, limit in most.items() if totals.amounts.get(t, 0) >= limit), None)

    t = reached(window.totals)
    if t is None:
        return _victim_limit(state, window, settings.governor.bound_of(guarantee.KIND).interval)
    seconds = settings.cycle_interval_ns / SECOND_NS
    taken, name = window.totals.amounts[t], state.types.names[t]
    detail = f"served {taken} {name} within {seconds:g} s, preemption.cycle.limit is {share:g} of {sizes[t]}"
    return _until(state, window, lambda totals: reached(totals) is None, detail)


def _victim_limit(state: PartitionState, window: Window, most: int) -> Refusal | None:
    if not most or window.totals.victims < most:
        return None
    seconds = state.preemption.cycle_interval_ns / SECOND_NS
    detail = f"{window.totals.victims} victims within {seconds:g} s, {most} are the limit"
    return _until(state, window, lambda totals: totals.victims < most, detail)


def _until(state: PartitionState, window: Window, fits: Callable[[Totals], bool], detail: str) -> Refusal:
    """The limit is reached as *detail* says; when it lets go again."""
    interval_ns, at_ns = state.preemption.cycle_interval_ns, 0
    for at_ns, left in window.shrinking():  # noqa: B007 - the last one looked at is what is needed
        if fits(left):
            break
    again_ns = max(at_ns + interval_ns, state.pace.woke_ns + interval_ns // WAKES_PER_INTERVAL)
    return Refusal(Outcome.ROUND_LIMIT, detail, again_ns)


def _wake_at(state: PartitionState, when_ns: int) -> None:
    pace = state.pace
    if pace.wakes_ns is None or when_ns < pace.wakes_ns:
        pace.wakes_ns = when_ns
        state.at(when_ns, lambda at_ns: _wake(state, when_ns, at_ns))


def _wake(state: PartitionState, meant_ns: int, now_ns: int) -> None:
    """The window has moved: whoever was held back is offered again, in the order of scheduling."""
    pace = state.pace
    if pace.wakes_ns != meant_ns:
        return
    pace.wakes_ns, pace.woke_ns = None, now_ns
    groups, pace.waiting = pace.waiting, {}
    for group in groups:
        if group.due and group.application.state not in UNSERVED:
            activate(group)
    _wake_required(state, now_ns)


def _wake_required(state: PartitionState, now_ns: int) -> None:
    """As many as there is room for are looked at again, those held back first; the others go on waiting."""
    pace, interval_ns = state.pace, state.preemption.cycle_interval_ns
    pace.required_node.forget(now_ns - interval_ns)
    most = state.preemption.governor.bound_of(required_node.KIND).interval
    room = most - pace.required_node.totals.victims if most else len(pace.waiting_reservations)
    while room > 0 and pace.waiting_reservations:
        reservation = next(iter(pace.waiting_reservations))
        del pace.waiting_reservations[reservation]
        if state.reservations.get(reservation.ask.key) is reservation:
            look_again(state, reservation)
            room -= 1
    if pace.waiting_reservations:
        _wake_at(state, now_ns + max(1, interval_ns // WAKES_PER_INTERVAL))
