"""Simulated time: *speed* simulated seconds pass per real second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class SimulatedClock:
    """A clock that starts at 0 when it is made, inside a running event loop."""

    def __init__(self, speed: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._speed = speed
        self._started = self._loop.time()
        self.timers = 0

    @property
    def real_s(self) -> float:
        """The real seconds since the start."""
        return self._loop.time() - self._started

    @property
    def now_s(self) -> float:
        """The simulated seconds since the start."""
        return self.real_s * self._speed

    @property
    def wall_ns(self) -> int:
        """The time of this machine's clock, which that of the core is taken to show too."""
        return time.time_ns()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Run *callback* in *delay_s* simulated seconds. ``timers`` is the number of pending calls."""
        self.timers += 1

        def run() -> None:
            self.timers -= 1
            callback()

        self._loop.call_later(max(0.0, delay_s) / self._speed, run)

    def call_at(self, at_s: float, callback: Callable[[], None]) -> None:
        """Run *callback* at the simulated time *at_s*."""
        self.call_later(at_s - self.now_s, callback)
