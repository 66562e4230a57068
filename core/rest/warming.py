"""Before anybody asks: an engine with nothing to do leaves time to encode what was never shown.

The first long list after a restart would otherwise cost several times what later ones do. Nothing is encoded while the
engine works, or for a cluster so large that it should be asked for pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from core.rest.documents.applications import head
from core.rest.documents.work import joined
from core.rest.turns import Turns
from core.service.runner import PartitionRunner
from core.service.sharing import Sharing

PAUSE_S: Final = 2.0
MOST: Final = 200_000
"""Allocations and applications; about half a KiB each."""


class Warmer:
    """Runs until it is cancelled."""

    def __init__(self, runner: PartitionRunner) -> None:
        self._runner = runner

    async def run(self) -> None:
        """Look every :data:`PAUSE_S` whether something has changed, and nothing goes on."""
        sharing, seen = Sharing.of_loop(), 0
        while True:
            await asyncio.sleep(PAUSE_S)
            if not sharing.busy and self._runner.turns_taken != seen:
                seen = self._runner.turns_taken
                await self.encode(sharing)

    async def encode(self, sharing: Sharing) -> int:
        """All allocations and what else is kept of applications, until the engine has something to do. How many."""
        turns, count = Turns(), 0
        for size in self._encoded():
            count += size
            if count >= MOST or sharing.busy:
                break
            if turns.over():
                await turns.pause()
        return count

    def _encoded(self) -> Iterator[int]:
        for views in self._runner.all_views():
            for allocations in views.allocations():
                joined(allocations)
                yield len(allocations)
            for _ in views.application_parts("", head):
                yield 1
