"""Letting time pass for a core: really wait, or move the clock of a core that lets itself be driven."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

DEFAULT_PATIENCE_S: Final = 5.0
SLOW_PATIENCE_S: Final = 120.0


class Clock(Protocol):
    """The time that the core under test goes by."""

    @property
    def patience_s(self) -> float:
        """The longest :meth:`advance` it takes; cases that need more are skipped."""

    def now_ns(self) -> int:
        """The core's time, nanoseconds since the Unix epoch."""

    async def advance(self, seconds: float) -> None:
        """Return when *seconds* have passed for the core and what fell due has begun."""


class RealClock:
    """Really waits. Supposes that the core's machine has about the same time as this one."""

    def __init__(self, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        self.patience_s: Final = patience_s

    def now_ns(self) -> int:
        return time.time_ns()

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
