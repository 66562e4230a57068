"""Priorities: signed 32-bit integers, higher is more important. Rules: preemption.md G, scheduling.md 13."""

from __future__ import annotations

from typing import Final

PRIORITY_MIN: Final = -(2**31)
"""Also means "nothing pending": it takes no offset and hides nothing."""

PRIORITY_MAX: Final = 2**31 - 1


def exposed(base: int, offset: int, *, fenced: bool) -> int:
    """What a queue shows its parent when *base* is the highest priority waiting below it."""
    if base == PRIORITY_MIN:
        return PRIORITY_MIN
    if fenced:
        return offset
    return max(PRIORITY_MIN, min(PRIORITY_MAX, base + offset))
