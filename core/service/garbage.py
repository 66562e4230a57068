"""Keeping the cyclic garbage collector away from state that lives long.

A full collection with half a million asks alive stops the process for half a second and finds next to nothing: asks,
nodes and queues die by reference count. So what survived a young collection is moved out of the collector's sight.
The price is that a cycle which dies after that is never found; the engine builds none per ask.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG_THRESHOLD: Final = 50_000
FREEZE_EVERY: Final = 4_000
"""Entries: so few that a collection takes a few milliseconds, and the young objects mostly see this one only."""


class GarbageKeeper:
    """Freezes what has settled, between slices and never inside one."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._since = 0
        self._building = 0

    def start(self) -> None:
        """Set everything loaded so far aside, and let young objects grow a little older than by default."""
        if self._enabled:
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG_THRESHOLD, 20, 1_000)

    @contextmanager
    def building(self) -> Iterator[None]:
        """While something large that will live long is made in another thread: nobody looks at it half done.

        Afterwards it is set aside at once.
        """
        if not self._enabled:
            yield
            return
        self._building += 1
        gc.disable()
        try:
            yield
        finally:
            self._building -= 1
            gc.freeze()
            if not self._building:
                gc.enable()

    def grown(self, entries: int) -> None:
        """*entries* were taken in; after enough of them, set aside what survived."""
        self._since += entries
        if self._enabled and self._since >= FREEZE_EVERY:
            self._since = 0
            gc.collect(1)
            gc.freeze()
