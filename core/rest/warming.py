"""Encodes views in advance while the engine has nothing to do.

Otherwise the first long list after a restart would cost several times as much as later ones. Nothing is encoded while
the engine works, or for a cluster so large that clients should ask for pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Final

from kornel.core.rest.turns import Turns
from kornel.core.service.machine.loop_time import Sharing
from kornel.core.service.managers.managers import Managers
from kornel.core.telling.encoding.yunikorn.applications import encode_allocations, encode_head
from kornel.core.telling.reader import PartitionReader

PAUSE_S: Final = 2.0
"""The interval between two checks whether the engine has nothing to do."""

STEP_S: Final = 0.001
"""The longest time that a request may have to wait for an encoding step."""

REST_S: Final = 0.02
"""The pause after a step, which is left to requests that have arrived."""

MOST: Final = 200_000
"""The most nodes, allocations and applications that are encoded; each takes about half a KiB."""


class Warmer:
    """Encodes views in advance, until it is cancelled."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self._left: Iterator[int] | None = None
        """The rest of an interrupted round; ``None``: the last round is complete."""
        self._seen = 0
        """The exchange count when the last round began."""

    async def run(self) -> None:
        """Encode something every :data:`PAUSE_S`."""
        while True:
            await asyncio.sleep(PAUSE_S)
            await self.encode()

    async def encode(self) -> int:
        """Encodes what is new since the last call, until the engine has much to do. Returns the number of items looked
        at."""
        turns, sharing, before, count = Turns(STEP_S), Sharing.of_loop(), self._managers.turns_taken, 0
        if self._left is None:
            if self._managers.exchanged == self._seen:
                return 0
            self._seen, self._left = self._managers.exchanged, self._run_round()
        while not sharing.busy:
            size = next(self._left, 0)
            if not size:
                self._left = None
                break
            count += size
            if turns.is_over():
                await turns.pause_reading()
                if self._managers.turns_taken != before:
                    before = self._managers.turns_taken
                    await asyncio.sleep(REST_S)
        return count

    def _run_round(self) -> Iterator[int]:
        """Encodes views in steps, as many as one round may. Yields the number of items of each step, including those
        already encoded; it is never 0."""
        steps = chain.from_iterable(_take_steps(views) for views in self._managers.reader.partitions())
        count = 0
        while count < MOST and (size := next(steps, 0)):
            count += size
            yield size


def _take_steps(views: PartitionReader) -> Iterator[int]:
    for allocations in views.allocations():
        yield 1 + len(encode_allocations(allocations))
    for _ in views.keep_applications(encode_head):
        yield 1
