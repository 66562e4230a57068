"""Adjusts priorities for comparison between queues: every queue in between adds its offset or, with a fence, replaces
them by its own.

Rule: preemption.md B.3. Adjusted priorities are plain integers, which are not clamped like the exposed priorities of
queues (part G).
"""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.domain.settings import PriorityPolicy
from kornel.core.model.queues import Queue
from kornel.core.state.records.giving_queues import Alike


class Adjustment(NamedTuple):
    """The adjustment of priorities on a path of queues: ``(fixed, or the priority itself) + offset``."""

    fixed: int | None
    offset: int

    def of(self, priority: int) -> int:
        """Returns *priority* as adjusted at the top of the path."""
        return (priority if self.fixed is None else self.fixed) + self.offset


def adjustment_of(leaf: Queue, above: Queue) -> Adjustment:
    """Returns the adjustment of priorities in *leaf* by the queues from *leaf* up to, but not including, *above*.

    *above* is *leaf* or one of its ancestors. Its own settings have no effect, so those of the root never have one.
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


def adjust_within(leaves: Alike, outer: Adjustment) -> Adjustment:
    """Returns the adjustment of priorities on the path from *leaves* on, given *outer*, the adjustment from their
    parent on."""
    if outer.fixed is not None:
        return outer
    if leaves.priority_policy is PriorityPolicy.FENCE:
        return Adjustment(leaves.priority_offset, outer.offset)
    return Adjustment(None, leaves.priority_offset + outer.offset)
