"""Clocks."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from core.service.clock import SECOND_NS, ManualClock, SystemClock


def test_system_time_never_goes_back() -> None:
    """Setting the machine's clock back holds time still until it has caught up."""
    clock = SystemClock()
    with patch("time.time_ns", side_effect=[100, 50, 120]):
        assert [clock.now_ns() for _ in range(3)] == [100, 100, 120]


async def test_system_clock_calls_soon_for_the_past() -> None:
    """A time that is over is due at once."""
    called = asyncio.Event()
    clock = SystemClock()
    clock.call_at(clock.now_ns() - SECOND_NS, called.set)
    await asyncio.wait_for(called.wait(), 5)


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
    await asyncio.wait_for(done.wait(), 5)
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
    await asyncio.wait_for(called.wait(), 5)


def test_manual_clock_does_not_go_back() -> None:
    """Time only moves forward."""
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(-1)
