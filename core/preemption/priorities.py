"""Priorities as another queue sees them: every queue in between shifts them, or hides them behind its own.

Rule: preemption.md B.3. Plain integers: the clamping of exposed queue priorities (part G) plays no part here.
"""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.domain.settings import PriorityPolicy
from kornel.core.model.queues import Queue


class Adjustment(NamedTuple):
    """The effect of a path of queues on a priority: ``(fixed, or the priority itself) + offset``."""

    fixed: int | None
    offset: int

    def of(self, priority: int) -> int:
        """Returns *priority* as the top of the path sees it."""
        return (priority if self.fixed is None else self.fixed) + self.offset


def adjustment_of(leaf: Queue, above: Queue) -> Adjustment:
    """Returns what the queues from *leaf* up to, but not including, *above* make of a priority in *leaf*.

    *above* is *leaf* or one of its ancestors; its own settings have no effect, so neither have those of the root.
    """
    fixed: int | None = None
    offset = 0
    queue: Queue | None = leaf
    while queue is not None and queue is not above:
        properties = queue.properties
        if properties.priority_policy is PriorityPolicy.FENCE:
            fixed, offset = properties.priority_offset, 0
        else:
            offset += properties.priority_offset
        queue = queue.parent
    return Adjustment(fixed, offset)


def adjust_within(leaf: Queue, outer: Adjustment) -> Adjustment:
    """Returns what the path from *leaf* on makes of a priority there, if that from its parent on does *outer*."""
    properties = leaf.properties
    if outer.fixed is not None:
        return outer
    if properties.priority_policy is PriorityPolicy.FENCE:
        return Adjustment(properties.priority_offset, outer.offset)
    if not properties.priority_offset:
        return outer
    return Adjustment(None, properties.priority_offset + outer.offset)
