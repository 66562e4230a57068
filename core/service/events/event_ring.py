"""Keeps the newest entries of an endless numbered sequence in a ring, and lets readers follow it.

Entries are numbered from 0 and numbers are never given twice. A full ring drops its oldest entries.

Entries may come packed: a record can stand for several entries, which are made only when they are read, which is rare.
They are kept in the pieces in which they came, so that adding them costs the same however many they are.

A reader holds only a position. The ring is the only buffer, so a slow reader costs no memory. If its next entry was
dropped, or it is further behind than allowed, its next reading raises :class:`Missed`, and it can end or go on with the
oldest kept entry. Each write to a client needs a deadline, because a reader that never reads again gets no error.

It is used from one thread only, that of the event loop. Rules: rest.md 4.2 and 5.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

ENTRY_SIZE: Final = 1_024
"""The bytes that entries may take on average if a ring is full."""

SMALL_PIECE: Final = 64
"""New entries are added to the last piece while it has fewer entries than this, because a quiet core adds them one by
one."""


class Missed(Exception):
    """A reader was too slow. ``next_id``: the number of the first entry that it has not read."""

    def __init__(self, reason: str, next_id: int) -> None:
        super().__init__(reason)
        self.next_id: Final = next_id


class _Piece(Generic[T]):
    """*count* successive entries, which are *packed* until they are read. ``size``: the bytes that they take, measured
    once no more are added; until then ``None``."""

    __slots__ = ("count", "entries", "packed", "size")

    def __init__(self, packed: list[Any], count: int) -> None:
        self.packed = packed
        self.count = count
        self.size: int | None = None
        self.entries: list[T] | None = None


class Ring(Generic[T]):
    """The newest entries, at most ``capacity`` of them.

    It keeps fewer of them if they take more than :data:`ENTRY_SIZE` bytes each on average of its capacity.
    """

    def __init__(
        self,
        capacity: int,
        unpack: Callable[[Iterable[Any]], list[Any]] = list,
        measure: Callable[[list[Any]], int] | None = None,
    ) -> None:
        """Makes an empty ring. *capacity* is at least 1. *unpack*: makes entries of records that stand for them.
        *measure*: tells how many bytes records take; ``None``: only the number of entries counts."""
        self._capacity = _check_capacity(capacity)
        self._measure = measure
        self._size = 0
        """The bytes of all pieces but the last one."""
        self._unpack = unpack
        self._pieces: list[_Piece[T]] = []
        self._firsts: list[int] = []
        """The number of the first entry of each piece."""
        self._lowest_id = 0
        self._next_id = 0
        self._waiting: list[asyncio.Future[None]] = []
        self.closed = False
        """Tells whether no more entries will come. Kept entries can still be read."""

    def __len__(self) -> int:
        return self._next_id - self._lowest_id

    @property
    def capacity(self) -> int:
        """The most entries that are kept."""
        return self._capacity

    @property
    def next_id(self) -> int:
        """The number of the next entry."""
        return self._next_id

    @property
    def lowest_id(self) -> int:
        """The number of the oldest kept entry; 0 as long as nothing was stored."""
        return self._lowest_id

    @property
    def highest_id(self) -> int:
        """The number of the newest entry; 0 as long as nothing was stored."""
        return max(0, self._next_id - 1)

    def append_entries(self, entries: Sequence[T]) -> None:
        """Append *entries*, in order, and wake the readers that wait."""
        self.append_packed(entries, len(entries))

    def append_packed(self, records: Sequence[Any], count: int) -> None:
        """Append the entries that *records* stand for, *count* in all, and wake the readers that wait."""
        if not count:
            return
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last.count < SMALL_PIECE:
            last.count += count
            if last.entries is None:
                last.packed += records
            else:
                last.entries += self._unpack(records)
        else:
            if last is not None:
                self._size += self._measure_piece(last) if last.size is None else last.size
            piece: _Piece[T] = _Piece(list(records), count)
            if count >= SMALL_PIECE:
                self._measure_piece(piece)  # Its records are still in the processor's caches.
            self._pieces.append(piece)
            self._firsts.append(self._next_id)
        self._next_id += count
        self._drop_oldest()
        if self._waiting:
            self._wake_readers()

    def _measure_piece(self, piece: _Piece[T]) -> int:
        """Measure *piece*, to which nothing more is added, and return its size."""
        if self._measure is None:
            piece.size = 0
        else:
            piece.size = self._measure(piece.packed if piece.entries is None else piece.entries)
        return piece.size

    def _drop_oldest(self) -> None:
        """Drop what the ring has no room for."""
        self._lowest_id = max(self._lowest_id, self._next_id - self._capacity)
        firsts = self._firsts
        if len(firsts) > 1 and firsts[1] <= self._lowest_id:
            self._drop_pieces(bisect_right(firsts, self._lowest_id) - 1)
        most = self._capacity * ENTRY_SIZE
        if self._size > most:
            whole, size = 0, self._size
            while size > most:
                size -= self._pieces[whole].size or 0
                whole += 1
            self._drop_pieces(whole)
            self._lowest_id = max(self._lowest_id, firsts[0])

    def _drop_pieces(self, whole: int) -> None:
        """Drop the oldest *whole* pieces."""
        self._size -= sum(piece.size or 0 for piece in self._pieces[:whole])
        del self._firsts[:whole]
        del self._pieces[:whole]

    def get(self, start: int, count: int) -> list[T] | None:
        """Returns up to *count* entries from number *start* on; ``None``: the entry *start* is no longer kept, or has
        not come yet."""
        if not self._lowest_id <= start < self._next_id:
            return None
        found: list[T] = []
        at = bisect_right(self._firsts, start) - 1
        skipped = start - self._firsts[at]
        left = min(count, self._next_id - start)
        while left > 0:
            some = self._entries_of(self._pieces[at])[skipped : skipped + left]
            found += some
            left -= len(some)
            skipped = 0
            at += 1
        return found

    def _entries_of(self, piece: _Piece[T]) -> list[T]:
        entries = piece.entries
        if entries is None:
            entries = piece.entries = self._unpack(piece.packed)
            piece.packed = []
        return entries

    def newest_start(self, count: int) -> int:
        """Returns the number of the first of the *count* newest entries, or of all if there are fewer."""
        return max(self.lowest_id, self._next_id - max(0, count))

    def resize(self, capacity: int) -> None:
        """Keep at most *capacity* entries from now on. The newest ones stay, and numbers go on."""
        if _check_capacity(capacity) == self._capacity:
            return
        self._capacity = capacity
        self._drop_oldest()

    def subscribe(self, start: int | None = None, *, bound: int | None = None) -> RingReader[T]:
        """Returns a reader of the entries from number *start* on; ``None``: of future entries.

        *bound*: the most entries by which it may be behind when it reads; ``None``: as many as the ring keeps. If
        *start* is no longer kept, the first reading raises :class:`Missed`.
        """
        return RingReader(self, self._next_id if start is None else start, bound)

    def close(self) -> None:
        """Accept no more entries, and wake the readers that wait."""
        self.closed = True
        self._wake_readers()

    async def wait_for_entry(self, position: int) -> None:
        """Return once there is or was an entry *position*, or the ring is closed."""
        while self._next_id <= position and not self.closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                if not waiter.done() or waiter.cancelled():
                    self._waiting = [other for other in self._waiting if other is not waiter]

    def _wake_readers(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class RingReader(Generic[T]):
    """Follows a ring. It need not be closed, because the ring does not know it."""

    def __init__(self, ring: Ring[T], position: int, bound: int | None) -> None:
        self._ring = ring
        self._bound = bound
        self.position = position
        """The number of the next entry that it reads."""

    @property
    def behind(self) -> int:
        """The number of entries that it has not read, including dropped ones."""
        return max(0, self._ring.next_id - self.position)

    @property
    def overtaken(self) -> bool:
        """Tells whether the next entry to read was dropped."""
        return self.position < self._ring.lowest_id

    def take_entries(self, limit: int) -> list[T]:
        """Returns the next entries, at most *limit*; empty: there are none yet. Raises :class:`Missed` until
        :meth:`skip_missed` is called."""
        ring, behind = self._ring, self.behind
        if self.overtaken:
            raise Missed(f"read too slowly: {behind} events behind, and only {len(ring)} are kept", self.position)
        if self._bound is not None and behind > self._bound:
            raise Missed(f"read too slowly: {behind} events behind, and {self._bound} are allowed", self.position)
        found = ring.get(self.position, limit) or []
        self.position += len(found)
        return found

    def skip_missed(self) -> int:
        """Go on with the oldest kept entry. Returns how many were left out."""
        left_out = max(0, self._ring.lowest_id - self.position)
        self.position += left_out
        return left_out

    async def wait_for_news(self) -> None:
        """Return once there is something to read, something was missed, or nothing more will come."""
        await self._ring.wait_for_entry(self.position)


def _check_capacity(capacity: int) -> int:
    if capacity < 1:
        raise ValueError(f"a ring keeps at least one entry, not {capacity}")
    return capacity
