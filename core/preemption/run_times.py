"""Says how long a task is protected from preemption because it has not run for its minimum run time yet
(preemption.md L). All kinds of preemption ask here, but for that on a required node, which it does not bind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.run_times import read_min_runtime
from kornel.shared.quantities import SECOND_NS
from kornel.shared.readable_amounts import format_time


def guard_of(leaf: Queue, common: Queue) -> Queue:
    """Returns the queue whose setting counts for tasks of *leaf*, if *common* is the lowest queue that it shares with
    whoever wants their room: the child of *common* on the path of *leaf*, or *leaf* if that is *common*."""
    return leaf if leaf is common else leaf.lineage()[leaf.depth - common.depth - 1]


def protected_until(task: Allocation, guard: Queue) -> int:
    """Returns the time until which *task*, which runs, is protected by the setting of *guard*; 0: it is not.

    The members of a gang that leaves as a whole count from when it first ran with its minimum, and are not protected
    before.
    """
    properties = guard.properties
    if not properties.min_runtime_most_ns:
        return 0
    application, spec = task.application, task.spec
    since_ns = task.bound_ns
    if application.leaves_whole and spec.task_group:
        since_ns = application.whole_ns
        if not since_ns:
            return 0
    stated_ns = read_min_runtime(spec.tags)
    if stated_ns is None:
        return since_ns + properties.min_runtime_ns
    return since_ns + min(stated_ns, properties.min_runtime_most_ns)


def last_end(tasks: Iterable[Allocation], guard: Queue) -> int:
    """Returns the time until which one of *tasks*, which leave together, is protected by *guard*; 0: none is."""
    return max([protected_until(task, guard) for task in tasks], default=0)


def ends_of(task: Allocation) -> Iterator[int]:
    """Yields the times at which the protection of *task* ends, by whoever wants its room; 0: from them it has none."""
    return (protected_until(task, queue) for queue in task.queue.lineage()[:-1])


def next_end(node: Node, now_ns: int) -> int | None:
    """Returns the first time after *now_ns* at which the protection of a task on *node* ends; ``None``: there is
    none."""
    ends = (end_ns for task in node.allocations.values() for end_ns in ends_of(task))
    return min((end_ns for end_ns in ends if end_ns > now_ns), default=None)


def patience_end(ask: Allocation) -> int | None:
    """Returns the time from which minimum run times keep nobody back from *ask* any more; ``None``: they always do."""
    properties = ask.queue.properties
    wait_ns = properties.max_wait_ns
    return ask.created_ns + properties.preemption_delay_ns + wait_ns if wait_ns else None


def is_impatient(ask: Allocation, now_ns: int) -> bool:
    """Tells whether minimum run times keep nobody back from *ask* any more."""
    end_ns = patience_end(ask)
    return end_ns is not None and now_ns >= end_ns


def say_until(until_ns: int) -> str:
    """Describes a protection that ends at *until_ns*, for people: ``protected until 2026-05-01T14:05:00Z``."""
    return f"protected until {format_time(until_ns + SECOND_NS - 1)}"
