"""The limits of kinds of preemption: how much each may take within one interval of its cycle (preemption.md F4, F7).

A kind checks its limit before an attempt, and counts what it takes once that is decided. An ask that the limit holds
back is offered again when the window has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.readable_amounts import format_count
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting import failing
from kornel.core.preemption.governor.bounds import NAME, SECOND_NS
from kornel.core.preemption.pace import Taken, Totals, Window
from kornel.core.preemption.plan import PreemptionPlan, Refusal

WAKES_PER_INTERVAL: Final = 10
"""The number of times within one interval that the asks held back are tried: the window moves with every decision in
it, and to try them each time would cost more than the attempts themselves."""
QUIET_NS: Final = 15 * SECOND_NS
"""If no ask has been held back for this time, the next one is reported again."""


def current_window(state: PartitionState, kind: str, now_ns: int) -> Window:
    """Returns what *kind* took within the interval that ends at *now_ns*, and drops what is older."""
    window = state.pace.of_kind(kind).window
    window.drop_until(now_ns - state.preemption.cycle_interval_ns)
    return window


def foreseen_window(state: PartitionState, kind: str, now_ns: int) -> Window:
    """Returns a copy of the window that :func:`current_window` would return, for forecasts, and changes nothing."""
    return state.pace.copy_window(kind, now_ns - state.preemption.cycle_interval_ns)


def count_taken(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Count the victims of *plan*, whose release is asked for, for one interval. A plan without victims takes
    nothing."""
    if plan.victims:
        taken = Taken(now_ns, plan.ask.shape.pairs, len(plan.victims))
        current_window(state, plan.kind, now_ns).add(taken)


def check_victim_limit(state: PartitionState, kind: str, window: Window) -> Refusal | None:
    """Returns why *kind* may take no more victims than those in *window*; ``None``: it may."""
    most = state.preemption.governor.bound_of(kind).interval
    if not most or window.totals.victims < most:
        return None
    seconds = state.preemption.cycle_interval_ns / SECOND_NS
    detail = f"{format_count(window.totals.victims, 'victim')} within {seconds:g} s, the limit is {most}"
    return refuse_until(state, window, lambda totals: totals.victims < most, detail)


def refuse_until(state: PartitionState, window: Window, fits: Callable[[Totals], bool], detail: str) -> Refusal:
    """Returns a refusal by a limit, which *detail* describes, until enough has left *window* that the rest *fits*."""
    interval_ns, at_ns = state.preemption.cycle_interval_ns, 0
    for at_ns, left in window.shrinking_sums():  # noqa: B007 - the last value is needed below
        if fits(left):
            break
    again_ns = max(at_ns + interval_ns, state.pace.woke_ns + interval_ns // WAKES_PER_INTERVAL)
    return Refusal(Outcome.ROUND_LIMIT, detail, again_ns)


def note_held_back(state: PartitionState, kind: str, ask: Allocation, held: Refusal, now_ns: int) -> None:
    """Note that *kind* may not preempt for *ask*, and record the reason if it has not been recorded lately."""
    failing.note_preemption(ask, held.outcome, now_ns)
    if held.outcome is Outcome.ROUND_LIMIT:
        say_held_back(state, kind, held.detail, now_ns)
        if state.recording:
            state.events.preemption_bounded(ask, held.detail)
    if ask.outcome is not held.outcome:
        ask.outcome = held.outcome
        key, application = ask.spec.key, ask.application
        decided = PreemptionDecided(
            now_ns, state.name, kind, key, application.application_id, ask.queue.path, held.outcome, held.detail, "", ()
        )
        state.report_decision(decided)


def say_held_back(state: PartitionState, kind: str, detail: str, now_ns: int) -> None:
    """Record that the limit of *kind* holds asks back, once for each time that this begins."""
    pace = state.pace.of_kind(kind)
    before_ns, pace.held_ns = pace.held_ns, now_ns
    if before_ns is None or now_ns - before_ns > max(QUIET_NS, 2 * state.preemption.cycle_interval_ns):
        outcome = Outcome.ROUND_LIMIT
        said = PreemptionDecided(now_ns, state.name, NAME, "", "", "", outcome, f"{kind}: {detail}", "", ())
        state.report_decision(said)


def wait_until(
    state: PartitionState,
    kind: str,
    waiter: AskGroup | Reservation,
    when_ns: int,
    resume: Callable[[PartitionState, int], None],
) -> None:
    """Make *waiter* wait for the window of *kind* to move; *resume* offers all its waiters again, from *when_ns* on."""
    pace = state.pace.of_kind(kind)
    pace.waiting[waiter] = None
    pace.resume = resume
    wake_at(state, when_ns)


def wake_at(state: PartitionState, when_ns: int) -> None:
    """Make sure that waiters are offered again at *when_ns* at the latest."""
    pace = state.pace
    if pace.wakes_ns is None or when_ns < pace.wakes_ns:
        pace.wakes_ns = when_ns
        state.run_at(when_ns, partial(_offer_again, state, when_ns))


def _offer_again(state: PartitionState, meant_ns: int, now_ns: int) -> None:
    """Make every kind offer its waiters again, because the window has moved."""
    pace = state.pace
    if pace.wakes_ns != meant_ns:
        return
    pace.wakes_ns, pace.woke_ns = None, now_ns
    for _, of_kind in pace.in_order():
        if of_kind.resume is not None:
            of_kind.resume(state, now_ns)
