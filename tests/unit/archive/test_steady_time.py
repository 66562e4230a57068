"""What time it is for those who remove what is old, by faked clocks: nobody believes one that has just jumped."""

from __future__ import annotations

import random

import pytest

from kornel.core.archive.steady_time import SteadyTime

S = 10**9
START = 1_700_000_000 * S


class Clocks:
    """A wall clock that somebody sets, and monotonic time."""

    def __init__(self) -> None:
        self.wall = START
        self.monotonic = 5 * S

    def wait(self, seconds: float) -> None:
        self.wall += int(seconds * S)
        self.monotonic += int(seconds * S)

    def time(self, steady_s: float = 600.0) -> SteadyTime:
        return SteadyTime([lambda: self.wall], steady_s, monotonic_ns=lambda: self.monotonic)


def test_time_is_known_after_clocks_went_evenly() -> None:
    clocks = Clocks()
    time = clocks.time()
    for _ in range(19):
        clocks.wait(30)
        assert time.read_time() is None
    clocks.wait(30)
    assert time.read_time() == clocks.wall


@pytest.mark.parametrize("by_s", [6.0, 3_600.0, -3_600.0, 400 * 86_400.0])
def test_a_jump_is_not_believed_for_a_while(by_s: float) -> None:
    """Neither there nor back again."""
    clocks = Clocks()
    time = clocks.time()
    clocks.wait(700)
    assert time.read_time() == clocks.wall
    clocks.wall += int(by_s * S)
    for _ in range(10):
        clocks.wait(2)
        assert time.read_time() is None
    clocks.wall -= int(by_s * S)
    clocks.wait(2)
    assert time.read_time() is None
    clocks.wait(599)
    assert time.read_time() is None
    clocks.wait(1)
    assert time.read_time() == clocks.wall


def test_a_clock_that_is_set_right_little_by_little_is_believed() -> None:
    """500 millionths faster or slower, as is usual, for a day; and the jitter of a busy machine."""
    clocks = Clocks()
    time = clocks.time()
    dice = random.Random(3)
    clocks.wait(700)
    for _ in range(2_880):
        clocks.wait(30)
        clocks.wall += int((0.015 + dice.uniform(-1, 1)) * S)
        assert time.read_time() == clocks.wall


def test_the_clock_that_is_behind_counts() -> None:
    clocks = Clocks()
    time = SteadyTime(
        [lambda: clocks.wall, lambda: clocks.wall - 86_400 * S], 10, monotonic_ns=lambda: clocks.monotonic
    )
    clocks.wait(11)
    assert time.read_time() == clocks.wall - 86_400 * S


def test_a_clock_that_stands_still_is_not_believed() -> None:
    """As one does that must not go back, after it was ahead for a moment."""
    clocks = Clocks()
    time = clocks.time()
    clocks.wait(700)
    time.read_time()
    for _ in range(100):
        clocks.wait(30)
        clocks.wall -= 30 * S
        assert time.read_time() is None
