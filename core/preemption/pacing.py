"""The limit of each kind of preemption: how much it may take within one interval of its cycle (preemption.md F4, F7).

A kind asks its limit before an attempt, and counts here what it took once that is decided. Whoever its limit holds back
is offered again when the window has moved.
"""

from __future__ import annotations

from collections.abc import Callable
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
"""The number of times within one interval that those held back are looked at: the window moves with every decision it
holds, and to look each time would cost more than the attempts themselves."""
QUIET_NS: Final = 15 * SECOND_NS
"""After so long without anybody held back, the next time is news."""


def current_window(state: PartitionState, kind: str, now_ns: int) -> Window:
    """Returns what *kind* took within the interval that ends at *now_ns*; drops what is older."""
    window = state.pace.of_kind(kind).window
    window.drop_until(now_ns - state.preemption.cycle_interval_ns)
    return window


def foreseen_window(state: PartitionState, kind: str, now_ns: int) -> Window:
    """Returns a copy of :func:`current_window`, for a question: nothing is dropped."""
    return state.pace.copy_window(kind, now_ns - state.preemption.cycle_interval_ns)


def count_taken(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Count the victims of *plan*, who are asked to leave, for one interval. Without victims nothing was taken."""
    if plan.victims:
        taken = Taken(now_ns, plan.ask.shape.pairs, len(plan.victims))
        current_window(state, plan.kind, now_ns).add(taken)


def check_victim_limit(state: PartitionState, kind: str, window: Window) -> Refusal | None:
    """Returns why *kind* may take no more victims beside those in *window*; ``None``: it may."""
    most = state.preemption.governor.bound_of(kind).interval
    if not most or window.totals.victims < most:
        return None
    seconds = state.preemption.cycle_interval_ns / SECOND_NS
    detail = f"{format_count(window.totals.victims, 'victim')} within {seconds:g} s, the limit is {most}"
    return refuse_until(state, window, lambda totals: totals.victims < most, detail)


def refuse_until(state: PartitionState, window: Window, fits: Callable[[Totals], bool], detail: str) -> Refusal:
    """Returns a refusal by a limit, which *detail* describes, until enough has left *window* that the rest *fits*."""
    interval_ns, at_ns = state.preemption.cycle_interval_ns, 0
    for at_ns, left in window.shrinking_sums():  # noqa: B007 - the last one looked at is what is needed
        if fits(left):
            break
    again_ns = max(at_ns + interval_ns, state.pace.woke_ns + interval_ns // WAKES_PER_INTERVAL)
    return Refusal(Outcome.ROUND_LIMIT, detail, again_ns)


def note_held_back(state: PartitionState, kind: str, ask: Allocation, held: Refusal, now_ns: int) -> None:
    """Put down that *kind* may not preempt for *ask*, and say why where it is news."""
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
        state.effects.append(decided)


def say_held_back(state: PartitionState, kind: str, detail: str, now_ns: int) -> None:
    """Say once, each time that the limit of *kind* begins to hold somebody back, that it does."""
    pace = state.pace.of_kind(kind)
    before_ns, pace.held_ns = pace.held_ns, now_ns
    if before_ns is None or now_ns - before_ns > max(QUIET_NS, 2 * state.preemption.cycle_interval_ns):
        outcome = Outcome.ROUND_LIMIT
        said = PreemptionDecided(now_ns, state.name, NAME, "", "", "", outcome, f"{kind}: {detail}", "", ())
        state.effects.append(said)


def wait_until(
    state: PartitionState,
    kind: str,
    waiter: AskGroup | Reservation,
    when_ns: int,
    resume: Callable[[PartitionState, int], None],
) -> None:
    """Have *waiter* wait for the window of *kind* to move; *resume* offers all who wait for it again, from *when_ns*
    on."""
    pace = state.pace.of_kind(kind)
    pace.waiting[waiter] = None
    pace.resume = resume
    wake_at(state, when_ns)


def wake_at(state: PartitionState, when_ns: int) -> None:
    """See that those held back are offered again at *when_ns* at the latest."""
    pace = state.pace
    if pace.wakes_ns is None or when_ns < pace.wakes_ns:
        pace.wakes_ns = when_ns
        state.run_at(when_ns, lambda at_ns: _offer_again(state, when_ns, at_ns))


def _offer_again(state: PartitionState, meant_ns: int, now_ns: int) -> None:
    """Have every kind offer those again whom it held back: the window has moved."""
    pace = state.pace
    if pace.wakes_ns != meant_ns:
        return
    pace.wakes_ns, pace.woke_ns = None, now_ns
    for _, of_kind in pace.in_order():
        if of_kind.resume is not None:
            of_kind.resume(state, now_ns)
