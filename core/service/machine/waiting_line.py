"""Serves callers who want what takes long one after the other, however many there are at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kornel.core.service.wire.status_codes import TooMany


class WaitingLine:
    """A line of callers. ``waiting``: how many are in it, those who are being served included."""

    def __init__(self, most: int, refusal: str, *, at_once: int = 1) -> None:
        """Makes an empty line for *most* callers, of whom *at_once* are served at a time. *refusal* is what a caller
        reads who finds it full."""
        self._most = most
        self._refusal = refusal
        self._places = asyncio.Semaphore(at_once)
        self.waiting = 0

    @asynccontextmanager
    async def take_turn(self) -> AsyncIterator[None]:
        """Waits for the caller's turn, which lasts as long as the context. Raises :class:`TooMany`."""
        if self.waiting >= self._most:
            raise TooMany(self._refusal)
        self.waiting += 1
        try:
            async with self._places:
                yield
        finally:
            self.waiting -= 1
