"""The room that the laws leave the periodic policy: how much may leave each queue, and which tasks an ask may take
where.

Law 2 is kept by counting what leaves each queue and what is added. Laws 6 and 7 give one number for an ask's queue, its
priority and a victim's queue: the highest priority that may be taken there. Rules: preemption.md A, B.3, E.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kornel.core.domain.priorities import PRIORITY_MAX
from kornel.core.domain.settings import PreemptionPolicyKind, PriorityPolicy
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.monitor.selection.figures import Amounts, Picture, QueueFigures
from kornel.core.preemption.priorities import Adjustment, adjustment_of
from kornel.core.preemption.run_times import guard_of

EVERY: Final = PRIORITY_MAX
"""Says that tasks of every priority may be taken."""

Deficits = dict[QueueFigures, Amounts]
"""The amounts that leaves are short of, by type."""


def admits(leaf: QueueFigures, pairs: Pairs, asking: QueueFigures, coming: Pairs, *, declared: bool = False) -> bool:
    """Tells whether *pairs* may leave *leaf* for an ask of *asking* that adds *coming* (law 2)."""
    for _, t, room in list_bounds(leaf, pairs, asking, coming, declared=declared):
        for u, amount in pairs:
            if u == t and amount > room:
                return False
    return True


def list_bounds(
    leaf: QueueFigures, pairs: Pairs, asking: QueueFigures, coming: Pairs, *, declared: bool = False
) -> Iterator[tuple[QueueFigures, int, int]]:
    """Yields how much may leave *leaf* for an ask of *asking* that adds *coming*, by queue above it and type of *pairs*
    with a guarantee (law 2).

    In a queue above both, the ask makes up for the victim, and a queue that was below its guarantee before may stay
    there, but must not hold less. Derived guarantees protect leaves, unless only *declared* ones count.
    """
    shared = asking.lineage
    for figures in leaf.lineage:
        guaranteed = figures.queue.guaranteed if declared or figures is not leaf else figures.guaranteed
        if not guaranteed:
            continue
        for t, _ in pairs:
            owed = guaranteed.get(t)
            if owed is None:
                continue
            left = figures.net[t] - figures.going.get(t, 0)
            if figures in shared:
                brought = figures.coming.get(t, 0) + sum(own for u, own in coming if u == t)
                yield figures, t, left + brought - min(owed, figures.net[t])
            else:
                yield figures, t, left - owed


def count_leaving(leaf: QueueFigures, pairs: Pairs, times: int = 1) -> None:
    """Count *pairs* as leaving *leaf*; with *times* -1, take that back."""
    for figures in leaf.counted:
        going = figures.going
        for t, amount in pairs:
            going[t] = going.get(t, 0) + amount * times


def count_coming(leaf: QueueFigures, pairs: Pairs) -> None:
    """Count an ask of *pairs* as added to *leaf*."""
    for figures in leaf.counted:
        coming = figures.coming
        for t, amount in pairs:
            coming[t] = coming.get(t, 0) + amount


class Passage:
    """The priorities of a leaf that an ask of another one may take (laws 6 and 7), and the queue whose minimum run time
    keeps tasks back.

    Leaves that other queues cannot tell apart share the answers.
    """

    def __init__(self, picture: Picture) -> None:
        self._plain = all(
            figures.parent is None
            or not (
                figures.fenced
                or figures.queue.properties.priority_offset
                or figures.queue.properties.priority_policy is PriorityPolicy.FENCE
            )
            for figures in picture.queues
        )
        self._guarded = any(figures.queue.properties.min_runtime_most_ns for figures in picture.queues)
        waiting = any(figures.queue.properties.max_wait_ns for figures in picture.queues)
        self.yields_late: Final = self._guarded and waiting
        """Tells whether there are asks from which minimum run times do not always protect."""
        self._known: dict[tuple[object, QueueFigures], tuple[Adjustment, Adjustment] | None] = {}

    def outlook_of(self, leaf: QueueFigures) -> object:
        """Returns a key that is the same for leaves whose asks may take the same priorities everywhere."""
        if self._plain:
            return None
        properties = leaf.queue.properties
        return (leaf.parent, properties.priority_offset, properties.priority_policy, leaf.fenced)

    def highest_priority(self, asking: QueueFigures, priority: int, leaf: QueueFigures) -> int | None:
        """Returns the highest priority of a task of *leaf* that an ask of *asking* with *priority* may take; ``None``:
        none."""
        if leaf is asking:
            return None
        if self._plain:
            return priority
        key = (self.outlook_of(asking), leaf)
        if key not in self._known:
            self._known[key] = self._adjustments_between(asking.queue, leaf.queue)
        known = self._known[key]
        if known is None:
            return None
        ours, theirs = known
        shown = ours.of(priority)
        if theirs.fixed is None:
            return shown - theirs.offset
        return EVERY if theirs.of(0) <= shown else None

    def guard_of(self, asking: QueueFigures, leaf: QueueFigures) -> Queue | None:
        """Returns the queue whose minimum run time protects tasks of *leaf* from asks of *asking*; ``None``: they have
        none."""
        if not self._guarded or asking is leaf:
            return None
        shared = asking.queue.lineage()
        guard = guard_of(leaf.queue, next(queue for queue in leaf.queue.lineage() if queue in shared))
        return guard if guard.properties.min_runtime_most_ns else None

    @staticmethod
    def _adjustments_between(asking: Queue, leaf: Queue) -> tuple[Adjustment, Adjustment] | None:
        path = leaf.lineage()
        for queue in asking.lineage():
            if queue in path:
                return adjustment_of(asking, queue), adjustment_of(leaf, queue)
            if queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
                return None
        raise AssertionError("all queues meet at the root")
