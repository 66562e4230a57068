"""What a queue shows of the priorities below it (preemption.md G, scheduling.md examples 31 and 32)."""

from __future__ import annotations

import pytest

from kornel.core.domain.priorities import NOTHING_WAITS, PRIORITY_MAX, PRIORITY_MIN, as_reported, exposed_priority


@pytest.mark.parametrize(
    ("base", "offset", "fenced", "expected"),
    [
        (10, 5, False, 15),
        (10, 5, True, 5),
        (PRIORITY_MIN, 5, False, PRIORITY_MIN + 5),
        (PRIORITY_MIN, 5, True, 5),
        (NOTHING_WAITS, 5, False, NOTHING_WAITS),
        (NOTHING_WAITS, 5, True, NOTHING_WAITS),
        (10, PRIORITY_MAX, False, PRIORITY_MAX),
        (-1, PRIORITY_MIN, False, PRIORITY_MIN),
        (2 * 10**9, 10**9, False, PRIORITY_MAX),
        (-2 * 10**9, -(10**9), False, PRIORITY_MIN),
    ],
)
def test_exposed(base: int, offset: int, fenced: bool, expected: int) -> None:
    """Plus the offset, or behind a fence the offset alone, held within 32 bits; nothing waiting shows nothing."""
    assert exposed_priority(base, offset, fenced=fenced) == expected


def test_nothing_is_reported_as_the_lowest_priority() -> None:
    """Fields of 32 bits have no room for less, and YuniKorn shows the same."""
    assert as_reported(NOTHING_WAITS) == PRIORITY_MIN
    assert [as_reported(priority) for priority in (PRIORITY_MIN, 0, PRIORITY_MAX)] == [PRIORITY_MIN, 0, PRIORITY_MAX]
