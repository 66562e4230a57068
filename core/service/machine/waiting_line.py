"""Serves callers who want what takes long one after the other, however many there are at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class WaitingLine:
    """A line of callers. ``waiting``: how many are in it, those who are being served included."""

    def __init__(self, most: int, refuse: Callable[[], Exception], *, at_once: int = 1) -> None:
        """Makes an empty line for *most* callers, of whom *at_once* are served at a time. *refuse* makes the error for
        a caller who finds it full."""
        self._most = most
        self._refuse = refuse
        self._places = asyncio.Semaphore(at_once)
        self.waiting = 0

    @asynccontextmanager
    async def take_turn(self) -> AsyncIterator[None]:
        """Waits for the caller's turn, which lasts as long as the context."""
        if self.waiting >= self._most:
            raise self._refuse()
        self.waiting += 1
        try:
            async with self._places:
                yield
        finally:
            self.waiting -= 1
