"""A bounded queue of the entries to be written to one stream, which are taken in order and in batches.

Sending costs time per message and not per entry, so all entries that were queued while the last message was being
written are sent in one message. No entry waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from google.protobuf.message import Message

Entry = TypeVar("Entry", bound=Message)

# A quarter of the 64 MiB that both ends accept, which leaves room for field headers, and suits a core that accepts
# less.
MAX_BATCH_BYTES = 16 * 1024 * 1024


class OutboxClosed(Exception):
    """The outbox is closed, so nothing more can be sent."""


class Outbox(Generic[Entry]):
    """Holds the entries of one stream until they are written, or until the core has applied them
    (:meth:`begin_keeping`).

    *rank* returns the order in which the core handles the lists of one request. A batch ends where the rank would
    decrease, so packing entries into requests never changes their order.
    """

    def __init__(self, *, capacity: int, batch: int, rank: Callable[[Entry], int]) -> None:
        self._entries: deque[Entry] = deque()
        self._capacity = capacity
        self._batch = batch
        self._rank = rank
        self._changed = asyncio.Condition()
        self._closed = False
        self._kept: deque[Entry] | None = None
        """The entries that were written and are not yet known to be applied; ``None`` if such entries are not kept."""
        self._applied = 0
        self._on_kept: Callable[[], None] = lambda: None
        self._told_from = 0

    @property
    def closed(self) -> bool:
        """Tells whether :meth:`close` was called."""
        return self._closed

    async def put(self, entries: Iterable[Entry]) -> None:
        """Queue *entries* in order, and wait while the outbox is full. Raises OutboxClosed if it is closed."""
        async with self._changed:
            for entry in entries:
                while len(self._entries) >= self._capacity and not self._closed:
                    self._changed.notify_all()
                    await self._changed.wait()
                if self._closed:
                    raise OutboxClosed
                self._entries.append(entry)
            self._changed.notify_all()

    async def next_batch(self) -> list[Entry]:
        """Returns the entries for the next request. They stay queued until :meth:`mark_written` removes them.

        The result is empty if the outbox is closed and drained.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or (bool(self._entries) and self._has_room()))
            taken: list[Entry] = []
            size = 0
            for entry in self._entries:
                size += entry.ByteSize()
                if taken and (
                    len(taken) >= self._batch or size > MAX_BATCH_BYTES or self._rank(entry) < self._rank(taken[-1])
                ):
                    break
                taken.append(entry)
            return taken

    async def mark_written(self, count: int) -> None:
        """Remove the first *count* entries from those to be written, because gRPC has taken them."""
        async with self._changed:
            for _ in range(count):
                entry = self._entries.popleft()
                if self._kept is not None:
                    self._kept.append(entry)
            if self._kept is not None and len(self._kept) >= self._told_from:
                self._on_kept()
            self._changed.notify_all()

    def begin_keeping(self, on_kept: Callable[[], None] | None, told_from: int) -> None:
        """From now on keep entries until the core has applied them, and count the applied ones from 0. *on_kept* is
        called whenever entries were written and at least *told_from* are kept; without *on_kept*, nothing is kept."""
        self._kept = deque() if on_kept is not None else None
        self._applied = 0
        self._on_kept = on_kept or (lambda: None)
        self._told_from = told_from

    async def note_applied(self, applied: int) -> None:
        """Remove those of the first *applied* entries that were kept after writing."""
        async with self._changed:
            while self._kept and self._applied < applied:
                self._kept.popleft()
                self._applied += 1
            self._changed.notify_all()

    async def write_again(self, applied: int) -> bool:
        """Queue all entries after the first *applied* ones for writing again. Returns false if they are no longer
        there, or have never been."""
        async with self._changed:
            if self._kept is None:
                return True
            self._entries.extendleft(reversed(self._kept))
            self._kept.clear()
            found = 0 <= applied - self._applied <= len(self._entries)
            while found and self._applied < applied:
                # The batch that was being written when the stream broke may have arrived as well.
                self._entries.popleft()
                self._applied += 1
            self._changed.notify_all()
            return found

    def _has_room(self) -> bool:
        return self._kept is None or len(self._kept) < self._capacity

    async def wait_until_drained(self) -> None:
        """Wait until everything has been written, including entries queued meanwhile, or until the outbox is closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._entries or self._closed)

    async def close(self) -> None:
        """Accept no more entries; those that are queued can still be taken."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
