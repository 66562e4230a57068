"""Keeps the cyclic garbage collector away from objects that live long.

A full collection with half a million asks stops the process for half a second and finds almost nothing, because asks,
nodes and queues are freed by reference count. So objects that survived a young collection are *set aside*
(``gc.freeze``), and the collector does not look at them again. The price is that garbage in reference cycles among them
is not found. The engine makes none, which a test checks (``tests/properties/test_no_garbage.py``). gRPC makes one for
each call, about a kilobyte and the call's headers, so after a call the keeper has recent objects collected before it
sets them aside. Other libraries or a bug may make more. So from time to time the keeper compares the memory in use with
what the records of the engine account for. If the difference is too large, it has everything collected once, if
possible when the core is idle.
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
"""The number of new objects after which the collector looks at them, which takes 3 to 5 ms in which nothing else is
done."""
OLDER_THRESHOLDS: Final = (50, 1_000)
FREEZE_EVERY: Final = 500
"""The number of entries after which all objects are set aside: before the collector would look at them by itself."""
LOOK_EVERY: Final = 8
"""Each time after this many lots of objects were set aside, the collector looks at one lot as a sample first. Setting
aside costs nothing, but a look takes a millisecond, and it hardly ever finds anything."""
FEW_FOUND: Final = 100
"""If a sample finds more garbage, the collector looks at what comes next, too, until it finds no more."""
LOOK_EVERY_S: Final = 10.0
RECORDS_PER_QUEUE: Final = 4
"""The number of records that take as many blocks of memory as a queue with its configuration."""
BLOCKS_PER_RECORD: Final = 25
"""The most blocks of memory that an ask, a node or an application takes, including what is kept to show it."""
QUIET_PART: Final = 0.03
"""The part of a processor below which a core has hardly any traffic."""
FEW_OBJECTS: Final = 1_000
LONG_PAUSE_S: Final = 0.005
"""The longest time that a collection of recent objects should take; after a longer one, they are set aside."""
IDLE_EXCESS: Final = 200_000
BUSY_EXCESS: Final = 1_000_000
IDLE_PART: Final = 4
BUSY_PART: Final = 2
"""A full collection is made when so many blocks are unaccounted for, of about 70 bytes each: ``IDLE_EXCESS`` while the
core is idle, ``BUSY_EXCESS`` while it is busy. For a large heap, the limit is one ``PART``-th of the heap, so that the
cost of full collections stays in proportion."""


class GarbageKeeper:
    """Sets long-lived objects aside, always between slices."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._since = 0
        self._unseen = 0
        """The number of times that objects were set aside since the last sample; ``LOOK_EVERY``: recent objects contain
        garbage."""
        self._building = 0
        self._blocks = self._records = 0
        """The blocks of memory in use, and the records that the engine held, at the last full collection; or the least
        since then."""
        self.full_collections = 0

    def start(self) -> None:
        """Sets everything loaded so far aside, and makes the collector look at young objects less often than by
        default."""
        if self._enabled:
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG_THRESHOLD, *OLDER_THRESHOLDS)
            self._blocks = sys.getallocatedblocks()

    @contextmanager
    def pause_while_building(self) -> Iterator[None]:
        """Stops the collector while a large and long-lived object is built in another thread, and sets the object aside
        afterwards."""
        self._building += 1
        if self._enabled:
            gc.disable()
        try:
            yield
        finally:
            self._building -= 1
            if self._enabled:
                gc.freeze()
                if not self._building:
                    gc.enable()

    def expect_garbage(self) -> None:
        """Has the collector look at recent objects before they are set aside, because a call has left a reference
        cycle among them."""
        self._unseen = LOOK_EVERY

    def count_stored(self, entries: int) -> None:
        """Counts *entries* that were stored; after enough of them, sets aside the objects that survived."""
        self._since += entries
        if self._enabled and self._since >= FREEZE_EVERY:
            self._since = 0
            self._unseen += 1
            if self._unseen >= LOOK_EVERY:
                found = gc.collect(1)
                self._unseen = LOOK_EVERY if found > FEW_FOUND else 0
            gc.freeze()

    def collect_unseen(self, records: int, *, idle: bool) -> int:
        """Collects all objects if there may be much garbage among those set aside. Returns how many objects were freed.

        *records*: the number of records that the engine holds. *idle*: no caller waits for the core, so it may take
        longer.
        """
        if not self._enabled or self._building:
            return 0
        if idle:
            self._collect_recent()
        blocks = sys.getallocatedblocks()
        shrunk = records < self._records // 2
        if shrunk and idle:
            return self._collect_all(records)  # Most records are gone, so a look at the rest takes little time.
        if shrunk or blocks < self._blocks:
            self._blocks, self._records = min(blocks, self._blocks), min(records, self._records)
        excess = blocks - self._blocks - BLOCKS_PER_RECORD * max(0, records - self._records)
        ceiling, part = (IDLE_EXCESS, IDLE_PART) if idle else (BUSY_EXCESS, BUSY_PART)
        if excess < max(ceiling, self._blocks // part):
            return 0
        return self._collect_all(records)

    def _collect_recent(self) -> None:
        """Collects among the objects that came since the last freeze, before they are set aside."""
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
    """Calls a keeper every :data:`LOOK_EVERY_S`. *records* returns the number of records for
    :meth:`GarbageKeeper.collect_unseen`.

    *idle* tells whether nothing is under way now. The core only counts as idle if it has also done nearly nothing since
    the last look, because between two of many successive calls nothing is under way either, and the next one would have
    to wait. *spent_s* returns the processor time of the core so far.
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

    async def look_for_ever(self) -> None:
        """Has the keeper look every :data:`LOOK_EVERY_S`."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look_once()

    def look_once(self) -> None:
        """Has the keeper look once, and logs the cost of a full collection."""
        idle = self._is_quiet() and self._idle()
        before, began = self._keeper.full_collections, time.perf_counter()
        found = self._keeper.collect_unseen(self._records(), idle=idle)
        if self._keeper.full_collections > before:
            took_ms = round((time.perf_counter() - began) * 1_000, 1)
            self._logger.info("memory nobody accounted for was looked through", freed_objects=found, took_ms=took_ms)
        self._spent_before_s = self._spent_s()  # The time spent on garbage does not count as traffic.

    def _is_quiet(self) -> bool:
        return self._spent_s() - self._spent_before_s <= QUIET_PART * LOOK_EVERY_S
