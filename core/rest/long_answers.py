"""Bounds the memory of long answers while they are being made, and until their clients have read them.

A few answers are made at a time, and others wait in a queue. All answers that clients have not read completely share a
budget. When it is used up, an answer that has been sent for long is aborted for a new one, however quickly its client
reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from kornel.core.service.machine.loop_time import WaitingLine

MOST_BYTES: Final = 24 * 2**20
"""The most bytes of answers that were made and not read completely yet. A single answer may be longer."""

COUNTED_FROM: Final = 64 * 1024
"""The size from which an answer counts; shorter answers are bounded by the number of connections."""

MADE_AT_ONCE: Final = 2
MOST_WAITING: Final = 64
"""The most requests for long answers that wait for others."""

PATIENCE_S: Final = 5.0
"""The time for which an answer may be sent although others wait for its room."""


class _Held:
    def __init__(self, size: int, since: float, abort: Callable[[], None] | None) -> None:
        self.size = size
        self.since = since
        self.abort = abort


class LongAnswers:
    """Bounds the long answers that are made and sent at the same time. ``held``: the bytes of long answers that are
    being sent."""

    def __init__(self) -> None:
        self.held = 0
        self._on_their_way: dict[_Held, None] = {}
        self._line = WaitingLine(
            MADE_AT_ONCE + MOST_WAITING, "too many long answers are being made", at_once=MADE_AT_ONCE
        )
        self._less = asyncio.Event()

    @asynccontextmanager
    async def count_making(self) -> AsyncIterator[None]:
        """Counts a long answer as being made. Raises TooMany if many wait for that already."""
        async with self._line.take_turn():
            await self._make_room()
            yield

    @contextmanager
    def on_its_way(self, size: int, abort: Callable[[], None] | None) -> Iterator[None]:
        """Counts an answer of *size* bytes as being sent. *abort* ends its connection."""
        if size < COUNTED_FROM:
            yield
            return
        held = _Held(size, asyncio.get_running_loop().time(), abort)
        self._on_their_way[held] = None
        self.held += size
        try:
            yield
        finally:
            self._let_go(held)

    async def _make_room(self) -> None:
        """Waits until the bytes that are being sent are within the budget. Aborts answers whose time is over."""
        loop = asyncio.get_running_loop()
        while self.held >= MOST_BYTES:
            oldest = next(iter(self._on_their_way))
            left = oldest.since + PATIENCE_S - loop.time()
            if left <= 0:
                self._let_go(oldest)
                if oldest.abort is not None:
                    oldest.abort()
                continue
            self._less.clear()
            timer = loop.call_later(left, self._less.set)
            await self._less.wait()
            timer.cancel()

    def _let_go(self, held: _Held) -> None:
        if held in self._on_their_way:
            del self._on_their_way[held]
            self.held -= held.size
            self._less.set()
