"""Keeps a record of each queue that uses more than its max: since when it does, what protects the amounts that could
not be freed, and when to try again.

A queue is above its max from the moment that the max is lowered, or an allocation is added without a check, until
enough allocations have left. It is shown for all that time, whether or not the max is enforced. The part that a run
could not free is tried again when its protection may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kornel.core.model.allocations import sum_amounts
from kornel.core.model.queues import Queue
from kornel.core.preemption.quota.plan import QuotaPlan
from kornel.core.preemption.quota.run import QuotaRun
from kornel.core.preemption.quota.shares import Amounts, find_attainable, find_excess, leaf_shares, net_usage
from kornel.core.preemption.quota.timer_rules import is_late
from kornel.core.preemption.run_times import say_until
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.enforcement import Numbers, Overuse, ProtectedBy, Protection, Remainder
from kornel.shared.readable_amounts import format_quantities

FIRST_PAUSE_NS: Final = 10**9
MOST_PAUSE_NS: Final = 60 * 10**9
"""The longest pause between two attempts: the pause doubles each time a queue gave nothing."""


def is_enforceable(state: PartitionState, queue: Queue) -> bool:
    """Tells whether the configuration in force sets the max of *queue*: the queue is not dynamic, and is still
    listed."""
    listed = queue.managed and not queue.draining and queue.parent is not None
    return listed and state.queues.get(queue.path) is queue


def holds_more(queue: Queue) -> bool:
    """Tells whether *queue* holds more than its max, including victims that have not left yet."""
    used = queue.used
    for t, most in queue.ceilings:
        if used[t] > most:
            return True
    return False


def note_changes(state: PartitionState, queues: Iterable[Queue], now_ns: int) -> None:
    """Begin or end the record of each of *queues* that came above its max, or is within it again."""
    known = state.enforcement.above
    for queue in queues:
        over = queue.above_max() if queue.max and is_enforceable(state, queue) else None
        if over and queue not in known:
            known[queue] = Overuse(now_ns)
            if state.recording:
                state.events.queues.came_above_max(queue, over)
        elif not over and queue in known:
            del known[queue]
            if state.recording:
                state.events.queues.is_within_max(queue)


def staying_amounts(state: PartitionState, queue: Queue) -> Amounts:
    """Returns what is held by stuck victims below *queue* that are to be replaced by others.

    Replacements are not replaced themselves; otherwise a shim that ends nothing for long would lose everything at once.
    """
    replacing = state.enforcement.replacing
    return sum_amounts(
        victim
        for victim in state.stuck
        if victim.preempted and victim not in replacing and queue in victim.queue.lineage()
    )


def numbers_of(queue: Queue) -> Numbers:
    """Returns the numbers that decide how far *queue* can be enforced: amounts and guarantees on its path and below,
    and the tasks and placeholders of each leaf.

    Whenever a task that was on its way out is gone, one of them has changed: a task that takes the place of a
    placeholder may be a victim, although the amounts are as before.
    """
    found: list[object] = []
    for level in (*queue.lineage()[1:], *_queues_below(queue)):
        held = [used - leaving for used, leaving in zip(level.used, level.preempting, strict=True)]
        applications = level.applications.values() if level.leaf else ()
        tasks = sum(len(application.allocations) for application in applications)
        placeholders = sum(application.placeholder_count for application in applications)
        found.append((level.path, held, level.guaranteed, tasks, placeholders))
    return found


def _queues_below(queue: Queue) -> Iterator[Queue]:
    yield queue
    for child in queue.children.values():
        yield from _queues_below(child)


def rest_of(before: Remainder | None, run: QuotaRun, plan: QuotaPlan, unmet: Amounts, now_ns: int) -> Remainder:
    """Returns the amounts that *run* left above a max. They are tried again when the numbers are others than when the
    run began, with growing pauses while the tries are in vain.

    Its own victims have changed the numbers, so a run that took some is always followed by a try: tasks may have
    changed places while it was planned.
    """
    in_vain = before is not None and not run.records
    pause_ns = min(2 * before.pause_ns, MOST_PAUSE_NS) if before is not None and in_vain else FIRST_PAUSE_NS
    return Remainder(run.numbers, pause_ns, now_ns + pause_ns, dict(unmet), plan.protected)


def wants_another_look(state: PartitionState, queue: Queue, overuse: Overuse, now_ns: int) -> bool:
    """Tells whether *queue*, for which a run left a remainder, may now be brought nearer to its max."""
    rest = overuse.rest
    if rest is None:
        return False
    late = is_late(queue, overuse.due_ns, now_ns)
    may_go = any(kept.until_ns > 0 and (late or kept.until_ns <= now_ns) for kept in rest.protected)
    if now_ns < rest.look_ns and not may_go:
        return False
    found = numbers_of(queue)
    if found == rest.numbers and not may_go:
        return False
    rest.numbers = found
    return bool(
        leaf_shares(queue, find_attainable(queue, find_excess(queue, queue.max, staying_amounts(state, queue))))
    )


def say_protection(state: PartitionState, protection: Protection) -> str:
    """Describes *protection* in one line for people, with the present usage and guarantee of the queue."""

    def write(amounts: Mapping[int, int]) -> str:
        return format_quantities(state.types.to_resources(amounts))

    amount = write({protection.t: protection.amount})
    match protection.reason:
        case ProtectedBy.REQUIRED_NODE:
            return f"{amount} is bound to its node"
        case ProtectedBy.ENDING:
            return f"{amount} is being ended or replaced by others"
        case ProtectedBy.RUN_TIME:
            return f"{amount} is protected by minimum run times, the first {say_until(protection.until_ns)}"
        case ProtectedBy.GANG:
            return f"{amount} is held by gangs that would be left with too few members, and may not leave as a whole"
    level, of = protection.queue, protection.of
    guaranteed, held = level.guaranteed.get(of, protection.guaranteed), net_usage(level, of)
    text = f"{level.path} is guaranteed {write({of: guaranteed})} and holds {write({of: held})}"
    if held > guaranteed and protection.smallest:
        text += f", the smallest task there has {write({of: protection.smallest})}"
    return text
