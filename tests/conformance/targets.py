"""What contract cases run against, and the time that passes there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kornel.conformance.clock import Clock
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from tests.e2e.harness import Core

SETTLE_S = 0.02
TURNS = 20
"""Turns of the event loop in that time, or in however long they take on a busy machine."""


class MovedClock:
    """The kit's clock, which moves that of a core in this process."""

    patience_s = float("inf")

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def now_ns(self) -> int:
        return self._clock.now_ns()

    async def advance_time(self, seconds: float) -> None:
        # Let the core take in what is on its way to it, or it would arrive after the time it was sent at.
        for _ in range(TURNS):
            await asyncio.sleep(SETTLE_S / TURNS)
        self._clock.advance(int(seconds * SECOND_NS))


@dataclass(frozen=True)
class Target:
    """A core by its address. *core* is set for one in this process."""

    address: str
    clock: Clock
    core: Core | None
