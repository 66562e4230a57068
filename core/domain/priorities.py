"""Priorities: signed 32-bit integers, higher is more important. Rules: preemption.md G, scheduling.md 13."""

from __future__ import annotations

from typing import Final, TypeVar

PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1

NOTHING_WAITS: Final = PRIORITY_MIN - 1
"""The rank of a queue or application without an ask that lends it a priority: below every priority, so that orders need
no special case."""


REPAIR: Final = 0.25
"""The part of 1 by which the turn of an ask that repairs a gang comes before those of the same priority."""

Rank = TypeVar("Rank", int, float)
"""A priority, or one to which a part of 1 may be added."""


def exposed_priority(base: Rank, offset: int, *, fenced: bool) -> Rank:
    """Returns the priority that a queue shows its parent when *base* is the highest that is lent below it. A fence
    hides that a gang is repaired, too."""
    if base == NOTHING_WAITS:
        return NOTHING_WAITS
    if fenced:
        return offset
    return max(PRIORITY_MIN, min(PRIORITY_MAX, base + offset))


def as_reported(priority: int) -> int:
    """Returns *priority* for a field of 32 bits on the wire: the lowest one if nothing waits, as in YuniKorn."""
    return max(PRIORITY_MIN, priority)
