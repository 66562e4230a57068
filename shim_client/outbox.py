"""A queue of entries to be written to one stream: bounded, in order, taken in batches.

Cost on the wire is paid per message and not per entry, so everything that was queued while the last message was being
written is sent as one. Nothing waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from google.protobuf.message import Message

Entry = TypeVar("Entry", bound=Message)

# A quarter of the 64 MiB that both ends accept, which leaves room for field headers and for a core that accepts less.
MAX_BATCH_BYTES = 16 * 1024 * 1024


class OutboxClosed(Exception):
    """The outbox is closed, so nothing more can be sent."""


class Outbox(Generic[Entry]):
    """The entries of one stream until they are written.

    *rank* gives the order in which the core handles the lists of one request. A batch ends where the rank would
    decrease, so packing entries into requests never changes their order.
    """

    def __init__(self, *, capacity: int, batch: int, rank: Callable[[Entry], int]) -> None:
        self._entries: deque[Entry] = deque()
        self._capacity = capacity
        self._batch = batch
        self._rank = rank
        self._changed = asyncio.Condition()
        self._closed = False

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
        """Returns the entries for the next request, still queued: :meth:`mark_written` removes them.

        The result is empty if the outbox is closed and drained.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._entries) or self._closed)
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
        """Remove the first *count* entries, which gRPC has taken."""
        async with self._changed:
            for _ in range(count):
                self._entries.popleft()
            self._changed.notify_all()

    async def wait_until_drained(self) -> None:
        """Wait until everything that is queued, or will be meanwhile, has been written, or the outbox is closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._entries or self._closed)

    async def close(self) -> None:
        """Accept no more entries; those that are queued can still be taken."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
