"""Clocks."""

from __future__ import annotations

import asyncio

import pytest

from kornel.core.service.machine.clock import SECOND_NS, ManualClock, SystemClock
from tests.patience import PATIENCE_S

HOUR_NS = 3_600 * SECOND_NS


class Machine:
    """Both clocks of a machine, standing still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.monotonic = 1_700_000_000 * SECOND_NS, 5 * SECOND_NS
        monkeypatch.setattr("time.time_ns", lambda: self.wall)
        monkeypatch.setattr("time.monotonic_ns", lambda: self.monotonic)

    def pass_time(self, ns: int) -> None:
        self.wall += ns
        self.monotonic += ns


@pytest.mark.parametrize("step_ns", [-HOUR_NS, 24 * HOUR_NS])
def test_setting_the_wall_clock_moves_nothing_that_lasts(monkeypatch: pytest.MonkeyPatch, step_ns: int) -> None:
    """Back by an hour or ahead by a day: the core's time runs on, and what the wall clock shows is told apart."""
    machine = Machine(monkeypatch)
    clock = SystemClock()
    began = clock.now_ns()
    assert began == clock.wall_ns() == machine.wall
    machine.pass_time(7 * SECOND_NS)
    machine.wall += step_ns
    assert clock.now_ns() == began + 7 * SECOND_NS
    assert clock.wall_ns() == began + 7 * SECOND_NS + step_ns
    assert clock.ahead_s == step_ns // SECOND_NS


def test_drift_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small differences leave what was noticed as it was, so that creation times stay the same when sent again."""
    machine = Machine(monkeypatch)
    clock = SystemClock()
    for drift_ns in (SECOND_NS, -SECOND_NS // 2, 19 * SECOND_NS // 10):
        machine.wall = clock.now_ns() + drift_ns
        assert clock.ahead_s == 0
    machine.wall = clock.now_ns() + 100 * SECOND_NS
    assert clock.ahead_s == 100
    machine.wall += SECOND_NS
    assert clock.ahead_s == 100


async def test_a_date_is_looked_at_again_when_the_clock_may_have_been_set() -> None:
    """Who waits for a date is called within a minute, and waits anew if it has not come."""
    clock = ManualClock()
    seen: list[int] = []
    expires_ns = clock.wall_ns() + HOUR_NS

    def look() -> None:
        seen.append(clock.wall_ns())
        if clock.wall_ns() < expires_ns:
            clock.call_at_wall(expires_ns, look)

    clock.call_at_wall(expires_ns, look)
    clock.set_wall(HOUR_NS)
    clock.advance(60 * SECOND_NS)
    assert len(seen) == 1
    assert seen[0] >= expires_ns


async def test_system_clock_calls_soon_for_the_past() -> None:
    """A time that is over is due at once."""
    called = asyncio.Event()
    clock = SystemClock()
    clock.call_at(clock.now_ns() - SECOND_NS, called.set)
    await asyncio.wait_for(called.wait(), PATIENCE_S)


async def test_cancelled_calls_are_not_made() -> None:
    """A cancelled call never comes, on either clock."""
    calls: list[str] = []
    manual = ManualClock()
    manual.call_at(manual.now_ns() + 1, lambda: calls.append("manual")).cancel()
    manual.advance(2)
    system = SystemClock()
    system.call_at(system.now_ns(), lambda: calls.append("system")).cancel()
    done = asyncio.Event()
    system.call_at(system.now_ns() + 1_000_000, done.set)
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    assert calls == []


async def test_manual_clock_makes_due_calls_in_order_of_time() -> None:
    """Moving on makes what fell due, earliest first, and nothing else."""
    clock = ManualClock(0)
    calls: list[int] = []
    for at in (30, 10, 20, 40):
        clock.call_at(at, lambda at=at: calls.append(at))  # type: ignore[misc]
    clock.advance(30)
    assert calls == [10, 20, 30]
    assert clock.now_ns() == 30


async def test_manual_clock_makes_past_calls_soon() -> None:
    """A time that is over is due at the next turn of the loop, although time stands still."""
    clock = ManualClock(10)
    called = asyncio.Event()
    clock.call_at(10, called.set)
    assert not called.is_set()
    await asyncio.wait_for(called.wait(), PATIENCE_S)


def test_manual_clock_does_not_go_back() -> None:
    """Time only moves forward."""
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(-1)
