"""Keeping the cyclic garbage collector away from state that lives long.

A full collection with half a million asks alive stops the process for half a second and finds next to nothing: asks,
nodes and queues die by reference count. So what survived a young collection is moved out of the collector's sight.
The price is that a cycle which dies after that is not found. The engine builds none, which a test makes sure of
(``tests/properties/test_no_garbage.py``), but libraries may, and so may a bug. So the keeper looks now and then how
much more memory is in use than what the engine holds accounts for: too much of it brings everything back into sight
once, when the core is idle if it can wait.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from structlog.typing import FilteringBoundLogger

YOUNG_THRESHOLD: Final = 20_000
"""New objects until the collector looks at them: 3 to 5 ms during which nothing else is done, wherever that falls."""
OLDER_THRESHOLDS: Final = (50, 1_000)
FREEZE_EVERY: Final = 500
"""The number of entries after which all objects are set aside: before the collector would look at them by itself."""
LOOK_EVERY: Final = 8
"""The collector looks at one in so many of these lots before it is set aside, as a sample. Setting aside costs nothing,
but a look takes a millisecond, and it hardly ever finds anything."""
FEW_FOUND: Final = 100
"""If a sample finds more garbage, the collector looks at what comes next, too, until it finds no more."""
LOOK_EVERY_S: Final = 10.0
RECORDS_PER_QUEUE: Final = 4
"""A queue takes as many pieces as so many records do, with what the configuration says of it."""
BLOCKS_PER_RECORD: Final = 25
"""Pieces of memory that an ask, a node or an application takes at most, with what is kept to show it."""
QUIET_PART: Final = 0.03
"""The part of a processor below which a core has no traffic to speak of, not even many probes."""
FEW_OBJECTS: Final = 1_000
LONG_PAUSE_S: Final = 0.005
"""Collecting what is not set aside should take no longer: what is left of it is set aside then."""
IDLE_EXCESS: Final = 200_000
BUSY_EXCESS: Final = 1_000_000
IDLE_PART: Final = 4
BUSY_PART: Final = 2
"""Pieces of memory nobody accounts for, about 70 bytes each, that are collected when the core is idle, or busy. Of a
larger heap it is such a part, so that what a full collection costs is spread over what led to it."""


class GarbageKeeper:
    """Freezes what has settled, between slices and never inside one."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._since = 0
        self._unseen = 0
        """The number of times that objects were set aside since the last sample."""
        self._building = 0
        self._blocks = self._records = 0
        """Pieces of memory in use, and records they were for, at the last full collection, or the least since."""
        self.full_collections = 0

    def start(self) -> None:
        """Set everything loaded so far aside, and let young objects grow a little older than by default."""
        if self._enabled:
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG_THRESHOLD, *OLDER_THRESHOLDS)
            self._blocks = sys.getallocatedblocks()

    @contextmanager
    def pause_while_building(self) -> Iterator[None]:
        """Keeps the collector off while something large that will live long is made in another thread, then sets it
        aside."""
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

    def count_stored(self, entries: int) -> None:
        """Count *entries* that were stored; after enough of them, set aside what survived."""
        self._since += entries
        if self._enabled and self._since >= FREEZE_EVERY:
            self._since = 0
            self._unseen += 1
            if self._unseen >= LOOK_EVERY:
                found = gc.collect(1)
                self._unseen = LOOK_EVERY if found > FEW_FOUND else 0
            gc.freeze()

    def collect_unseen(self, records: int, *, idle: bool) -> int:
        """Collect what has piled up unseen, if there can be much of it. Returns how many objects that freed.

        *records*: what the engine holds. *idle*: nobody waits for the core, so it may take its time.
        """
        if not self._enabled or self._building:
            return 0
        if idle:
            self._collect_recent()
        blocks = sys.getallocatedblocks()
        shrunk = records < self._records // 2
        if shrunk and idle:
            return self._collect_all(records)  # Once most of it is gone, looking through the rest takes little time.
        if shrunk or blocks < self._blocks:
            self._blocks, self._records = min(blocks, self._blocks), min(records, self._records)
        excess = blocks - self._blocks - BLOCKS_PER_RECORD * max(0, records - self._records)
        ceiling, part = (IDLE_EXCESS, IDLE_PART) if idle else (BUSY_EXCESS, BUSY_PART)
        if excess < max(ceiling, self._blocks // part):
            return 0
        return self._collect_all(records)

    def _collect_recent(self) -> None:
        """Collect among what has come since the last freeze, before it settles and is never seen again."""
        young, older, oldest = gc.get_count()
        if young < FEW_OBJECTS and not older and not oldest:
            return
        began = time.perf_counter()
        gc.collect()
        if time.perf_counter() - began > LONG_PAUSE_S:
            gc.freeze()

    def _collect_all(self, records: int) -> int:
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self.full_collections += 1
        self._blocks, self._records = sys.getallocatedblocks(), records
        return found


class GarbageRounds:
    """Has a keeper look every :data:`LOOK_EVERY_S`. *records*: as :meth:`GarbageKeeper.collect_unseen` wants them.

    *idle*: nothing is under way now. The core counts as idle if nearly nothing was since the last look, either: between
    two of many calls that come one after the other nothing is under way, and the next one would wait. *spent_s*: the
    processor time of the core so far.
    """

    def __init__(
        self,
        keeper: GarbageKeeper,
        *,
        records: Callable[[], int],
        idle: Callable[[], bool],
        logger: FilteringBoundLogger,
        spent_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._keeper = keeper
        self._records = records
        self._idle = idle
        self._logger = logger
        self._spent_s = spent_s
        self._spent_before_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the rounds."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look_and_restart)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_and_restart(self) -> None:
        self.look_once()
        self.start()

    def look_once(self) -> None:
        """Have the keeper look once, and tell what a full collection cost."""
        idle = self._is_quiet() and self._idle()
        before, began = self._keeper.full_collections, time.perf_counter()
        found = self._keeper.collect_unseen(self._records(), idle=idle)
        if self._keeper.full_collections > before:
            took_ms = round((time.perf_counter() - began) * 1_000, 1)
            self._logger.info("memory nobody accounted for was looked through", freed_objects=found, took_ms=took_ms)
        self._spent_before_s = self._spent_s()  # What was spent on garbage is no traffic.

    def _is_quiet(self) -> bool:
        return self._spent_s() - self._spent_before_s <= QUIET_PART * LOOK_EVERY_S
