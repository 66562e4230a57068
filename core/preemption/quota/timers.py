"""The timers after which maxima are enforced. They are started by a change of configuration or by unchecked additions
(preemption.md D.4).

After a restart, the full delay begins again: when the allocations are recovered, or at once if the core continues from
a journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import QuotaTimer
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption import eviction
from kornel.core.preemption.quota import above_max
from kornel.core.preemption.quota.above_max import is_enforceable
from kornel.core.preemption.quota.plan import KIND
from kornel.core.preemption.quota.run import run_of
from kornel.core.preemption.quota.shares import find_excess
from kornel.core.preemption.quota.timer_rules import Terms, next_start, over_max
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.shared.readable_amounts import format_count

TICK_NS: Final = 10**9
MOST_POSTPONED: Final = 3
NO_TERMS: Final = Terms({}, 0)


def take_follow_steps(
    state: PartitionState, enabled_before: bool, before: Mapping[Queue, Terms], now_ns: int
) -> Iterator[None]:
    """Arm, move or clear the timers of the configured queues that a new configuration concerns. Yields after each
    queue.

    *before*: the earlier terms of changed queues, ``NO_TERMS`` for new queues and those that were dynamic. If the
    change switches enforcement on, it concerns every queue.
    """
    enforcement = state.enforcement
    for queue in (*before, *enforcement.above):
        above_max.note_changes(state, (queue,), now_ns)
        yield
    if enforcement.above:
        _tick_soon(state, now_ns)
    running = enforcement.run.queue if enforcement.run is not None else None
    for queue in list(enforcement.armed):
        stays = state.preemption.quota_enabled and is_enforceable(state, queue)
        if not stays and queue is not running:
            _set(state, queue, None, now_ns)
    for queue, overuse in enforcement.above.items():
        limited_as_before = queue not in before or before[queue].max == queue.max
        if not (state.preemption.quota_enabled and limited_as_before and queue.properties.quota_preemption_delay_ns):
            overuse.drop_result()
    if not state.preemption.quota_enabled:
        return
    for queue in before if enabled_before else state.queues.values():
        yield
        if not is_enforceable(state, queue):
            continue
        old = before[queue] if enabled_before else Terms(queue.max, 0)
        run = run_of(state)
        if run is not None and queue is run.queue:
            if queue.properties.quota_preemption_timer is QuotaTimer.RESET and run.changed is None:
                run.changed = old
            continue
        before_ns = enforcement.armed.get(queue)
        _set(state, queue, next_start(queue, old, before_ns, now_ns), now_ns)
        _warn_if_put_off(state, queue, before_ns, now_ns)


def _warn_if_put_off(state: PartitionState, queue: Queue, before_ns: int | None, now_ns: int) -> None:
    """Record a warning, once, if changes have put off the enforcement of *queue* too often or for too long (K9)."""
    enforcement = state.enforcement
    start_ns = enforcement.armed.get(queue)
    if before_ns is None or start_ns is None or start_ns <= before_ns:
        return
    first_ns, times = enforcement.postponed.get(queue, (before_ns, 0))
    delay_ns = queue.properties.quota_preemption_delay_ns
    warned = times > MOST_POSTPONED or before_ns - first_ns > 2 * delay_ns
    enforcement.postponed[queue] = (first_ns, times + 1)
    if warned or (times + 1 <= MOST_POSTPONED and start_ns - first_ns <= 2 * delay_ns):
        return
    later_s = (start_ns - first_ns) / 10**9
    detail = f"put off {times + 1} times, by {later_s:g} s in all; quota.preemption.timer adjust keeps the first start"
    outcome = Outcome.TIMER_POSTPONED
    state.report_decision(PreemptionDecided(now_ns, state.name, KIND, "", "", queue.path, outcome, detail, "", ()))


def begin_again(state: PartitionState, now_ns: int) -> None:
    """Start the full delay of every running timer again, except for a queue whose max is already being enforced."""
    enforcement = state.enforcement
    running = enforcement.run.queue if enforcement.run is not None else None
    for queue in enforcement.armed:
        delay_ns = queue.properties.quota_preemption_delay_ns
        if queue is not running and delay_ns:
            enforcement.armed[queue] = now_ns + delay_ns
            if queue in enforcement.above:
                enforcement.above[queue].began_again = True
            if queue in enforcement.due:
                enforcement.due.remove(queue)
    enforcement.postponed.clear()
    _tick_soon(state, now_ns)


def note_arrival(state: PartitionState, allocation: Allocation, now_ns: int) -> None:
    """Arm the queues of *allocation* if needed, which was added without checking any max: recovered, or enlarged in
    place."""
    enforcement, leaf = state.enforcement, allocation.queue
    for queue in leaf.lineage():
        # This runs for every recovered allocation, and most queues are below their max.
        if queue.ceilings and above_max.holds_more(queue) and queue not in enforcement.above:
            above_max.note_changes(state, (queue,), now_ns)
            _tick_soon(state, now_ns)
    if not state.preemption.quota_enabled:
        return
    run = run_of(state)
    for queue in leaf.lineage():
        if run is not None and queue is run.queue:
            run.grew = True
        elif queue not in enforcement.armed:
            _arm_if_over(state, queue, now_ns)


def note_run_ended(
    state: PartitionState, queue: Queue, changed: Terms | None, grown: bool, now_ns: int, *, again: bool = False
) -> None:
    """Handle what happened while *queue* was enforced. *again*: the run tried a remainder, so its timer was not
    announced."""
    if again:
        state.enforcement.armed.pop(queue, None)
    _set(state, queue, None, now_ns)
    if not state.preemption.quota_enabled or not is_enforceable(state, queue):
        return
    if changed is not None:
        _set(state, queue, next_start(queue, changed, None, now_ns), now_ns)
    if grown and queue not in state.enforcement.armed:
        _arm_if_over(state, queue, now_ns)


def resume_run(state: PartitionState, queue: Queue, retry_ns: int | None, now_ns: int) -> None:
    """Continue the run of *queue*, which the governor stopped, as soon as it is allowed, unless the queue becomes due
    earlier."""
    if not state.preemption.quota_enabled or not is_enforceable(state, queue):
        return
    if queue not in state.enforcement.armed and over_max(queue):
        at_ns = retry_ns if retry_ns is not None else now_ns + state.preemption.governor.window_ns
        _set(state, queue, at_ns, now_ns)


def _arm_if_over(state: PartitionState, queue: Queue, now_ns: int) -> None:
    delay_ns = queue.properties.quota_preemption_delay_ns
    if delay_ns and queue.ceilings and over_max(queue) and is_enforceable(state, queue):
        _set(state, queue, now_ns + delay_ns, now_ns)


def _set(state: PartitionState, queue: Queue, start_ns: int | None, now_ns: int) -> None:
    """Set the time at which *queue* becomes due to *start_ns*; ``None``: it is no longer due."""
    enforcement = state.enforcement
    if state.recording:
        state.events.queues.quota_timer_set(queue, enforcement.armed.get(queue), start_ns)
    if queue in enforcement.above and enforcement.armed.get(queue) != start_ns:
        enforcement.above[queue].began_again = False
    if start_ns is None:
        enforcement.armed.pop(queue, None)
        enforcement.postponed.pop(queue, None)
    elif enforcement.armed.get(queue) != start_ns:
        enforcement.armed[queue] = start_ns
        if queue in enforcement.above:
            enforcement.above[queue].drop_result()
        _tick_soon(state, now_ns)
    else:
        return
    if queue in enforcement.due:
        enforcement.due.remove(queue)


def _tick_soon(state: PartitionState, now_ns: int) -> None:
    enforcement = state.enforcement
    if (enforcement.armed or enforcement.above) and not enforcement.ticking:
        enforcement.ticking = True
        state.run_at(now_ns + TICK_NS, partial(_look_at_queues, state))


def _look_at_queues(state: PartitionState, now_ns: int) -> None:
    state.enforcement.ticking = False
    line_up_due(state, now_ns)
    _tick_soon(state, now_ns)


def line_up_due(state: PartitionState, now_ns: int) -> None:
    """Drop queues that came below their max by themselves, and line up those that are due, the deepest first."""
    enforcement = state.enforcement
    running = enforcement.run.queue if enforcement.run is not None else None
    above_max.note_changes(state, list(enforcement.above), now_ns)
    _look_again(state, now_ns)
    for queue, start_ns in list(enforcement.armed.items()):
        if queue is running or queue in enforcement.due:
            continue
        if not is_enforceable(state, queue) or not _is_over(state, queue):
            _set(state, queue, None, now_ns)
        elif now_ns >= start_ns:
            enforcement.due.append(queue)
            if queue in enforcement.above and not enforcement.above[queue].due_ns:
                enforcement.above[queue].due_ns = now_ns
    enforcement.due.sort(key=lambda queue: (-queue.depth, queue.path))


def _is_over(state: PartitionState, queue: Queue) -> bool:
    return over_max(queue) or bool(find_excess(queue, queue.max, above_max.staying_amounts(state, queue)))


def _look_again(state: PartitionState, now_ns: int) -> None:
    """Line up queues with a remainder that can be tried now; their delay is over already."""
    enforcement = state.enforcement
    running = enforcement.run.queue if enforcement.run is not None else None
    for queue, overuse in enforcement.above.items():
        if queue is running or queue in enforcement.armed or not state.preemption.quota_enabled:
            continue
        if above_max.wants_another_look(state, queue, overuse, now_ns):
            enforcement.armed[queue] = now_ns


def watch_exits(state: PartitionState, queue: Queue, victims: Sequence[Allocation], now_ns: int) -> None:
    """Check after ``preemption.victim.timeout`` whether *victims* have left, and enforce *queue* again without those
    that have not.

    Victims that replace stuck ones are only reported; otherwise a shim that ends nothing would be asked to end
    everything.
    """
    state.run_at(now_ns + state.preemption.victim_timeout_ns, partial(_look_at_victims, state, queue, victims))


def _look_at_victims(state: PartitionState, queue: Queue, victims: Sequence[Allocation], now_ns: int) -> None:
    stuck = [victim for victim in victims if victim.preempted and victim not in state.stuck]
    if not stuck:
        return
    enforcement = state.enforcement
    state.stuck.update(dict.fromkeys(stuck, queue))
    for victim in stuck:
        ledger.expect_no_exit(state, victim)
    waited_s = state.preemption.victim_timeout_ns / 10**9
    detail = f"not gone after {waited_s:g} s"
    records = tuple(eviction.victim_record(victim, victim.priority) for victim in stuck)
    outcome = Outcome.VICTIM_STUCK
    state.report_decision(PreemptionDecided(now_ns, state.name, KIND, "", "", queue.path, outcome, detail, "", records))
    if state.recording:
        state.events.queues.quota_enforced(queue, outcome, f"{format_count(len(stuck), 'victim')} {detail}")
    enforcement.replacing = {victim: None for victim in enforcement.replacing if victim.preempted}
    busy = enforcement.run is not None and enforcement.run.queue is queue
    if not state.preemption.quota_enabled or not queue.properties.quota_preemption_delay_ns or busy:
        return
    if is_enforceable(state, queue) and queue not in enforcement.armed and _is_over(state, queue):
        _set(state, queue, now_ns, now_ns)
