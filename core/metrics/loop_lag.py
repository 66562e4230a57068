"""The delay of the event loop behind its timers, for which every message of the core waits."""

from __future__ import annotations

import asyncio
from typing import Final

from kornel.core.service.metrics.durations import Durations

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVERY_S: Final = 0.25


class LoopLag:
    """Measures the delay of the event loop. ``lag``: how late each measurement came."""

    def __init__(self) -> None:
        self.lag = Durations(BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Measure four times a second from now on."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + EVERY_S
        self._timer = loop.call_at(self._due_s, self._measure_lag, loop)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure_lag(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        self.lag.add(max(0.0, now_s - self._due_s))
        self._due_s = now_s + EVERY_S
        self._timer = loop.call_at(self._due_s, self._measure_lag, loop)
