"""A ring of the newest entries of an endless numbered sequence, and readers that follow it.

Entries are numbered from 0 and numbers are never given twice. A full ring overwrites its oldest entry.

Readers hold a position and nothing else: the ring is the only buffer, so a reader that is slow costs no memory. When it
comes back and its next entry was overwritten, or it is further behind than it may be, it gets :class:`Missed`, and can
give up or go on with the oldest entry kept. Give each write to a client a deadline, because a reader that never comes
back gets no error.

Used from one thread only, that of the event loop. Rules: rest.md 4.2 and 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Missed(Exception):
    """A reader was too slow. ``next_id``: number of the first entry it has not read."""

    def __init__(self, reason: str, next_id: int) -> None:
        super().__init__(reason)
        self.next_id: Final = next_id


class Ring(Generic[T]):
    """The newest entries, at most ``capacity`` of them."""

    def __init__(self, capacity: int) -> None:
        """Makes an empty ring. *capacity*: at least 1."""
        self._capacity = _check_capacity(capacity)
        self._slots: list[T] = []
        self._base = 0
        """Number of the entry that came, or would have come, into slot 0 first."""
        self._next_id = 0
        self._waiting: list[asyncio.Future[None]] = []
        self.closed = False
        """Tells whether nothing more will come. What is kept can still be read."""

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def capacity(self) -> int:
        """Most entries kept."""
        return self._capacity

    @property
    def next_id(self) -> int:
        """Number of the next entry to come."""
        return self._next_id

    @property
    def lowest_id(self) -> int:
        """Number of the oldest entry kept; 0 while nothing was ever stored."""
        return self._next_id - len(self._slots)

    @property
    def highest_id(self) -> int:
        """Number of the newest entry; 0 while nothing was ever stored."""
        return max(0, self._next_id - 1)

    def append_entries(self, entries: Sequence[T]) -> None:
        """Append *entries*, in order, and wake the readers that wait."""
        if not entries:
            return
        slots, capacity = self._slots, self._capacity
        room = capacity - len(slots)
        if len(entries) <= room:
            slots.extend(entries)
        else:
            slots.extend(entries[:room])
            self._overwrite_oldest(entries[room:], self._next_id + room)
        self._next_id += len(entries)
        if self._waiting:
            self._wake_readers()

    def _overwrite_oldest(self, entries: Sequence[T], first_id: int) -> None:
        """Replace the oldest entries of a full ring by those from *first_id* on."""
        slots, capacity = self._slots, self._capacity
        skipped = max(0, len(entries) - capacity)
        kept = entries[skipped:]
        at = (first_id + skipped - self._base) % capacity
        split = min(capacity - at, len(kept))
        slots[at : at + split] = kept[:split]
        slots[: len(kept) - split] = kept[split:]

    def get(self, start: int, count: int) -> list[T] | None:
        """Returns up to *count* entries from number *start* on; ``None``: that one is not kept, or has not come yet."""
        if not self.lowest_id <= start < self._next_id:
            return None
        count = max(0, min(count, self._next_id - start))
        at = (start - self._base) % self._capacity
        found = self._slots[at : at + count]
        return found + self._slots[: count - len(found)]

    def newest_start(self, count: int) -> int:
        """Returns where to start for the *count* newest entries, or all if there are fewer."""
        return max(self.lowest_id, self._next_id - max(0, count))

    def resize(self, capacity: int) -> None:
        """Keep at most *capacity* entries from now on; the newest stay, and numbers go on."""
        if _check_capacity(capacity) == self._capacity:
            return
        kept = self.get(self.newest_start(capacity), capacity) or []
        self._slots = kept
        self._base = self._next_id - len(kept)
        self._capacity = capacity

    def subscribe(self, start: int | None = None, *, bound: int | None = None) -> RingReader[T]:
        """Returns a reader of what comes from number *start* on; ``None``: of what comes from now on.

        *bound*: most entries it may be behind when it reads; ``None``: as many as the ring keeps. Any *start* will do:
        one that is not kept any more is :class:`Missed` at the first reading.
        """
        return RingReader(self, self._next_id if start is None else start, bound)

    def close(self) -> None:
        """Accept no more entries, and wake the readers that wait."""
        self.closed = True
        self._wake_readers()

    async def wait_for_entry(self, position: int) -> None:
        """Return once there is an entry *position*, or there was, or the ring is closed."""
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
    """Follows a ring. Needs no closing: the ring does not know it."""

    def __init__(self, ring: Ring[T], position: int, bound: int | None) -> None:
        self._ring = ring
        self._bound = bound
        self.position = position
        """Number of the next entry it reads."""

    @property
    def behind(self) -> int:
        """Returns how many entries it has not read, overwritten ones included."""
        return max(0, self._ring.next_id - self.position)

    @property
    def overtaken(self) -> bool:
        """Tells whether the next entry to read was overwritten."""
        return self.position < self._ring.lowest_id

    def take_entries(self, limit: int) -> list[T]:
        """Returns the next entries, at most *limit*; empty: there are none yet. Raises :class:`Missed`, each time."""
        ring, behind = self._ring, self.behind
        if self.overtaken:
            raise Missed(f"read too slowly: {behind} events behind, and only {len(ring)} are kept", self.position)
        if self._bound is not None and behind > self._bound:
            raise Missed(f"read too slowly: {behind} events behind, and {self._bound} are allowed", self.position)
        found = ring.get(self.position, limit) or []
        self.position += len(found)
        return found

    def skip_missed(self) -> int:
        """Go on with the oldest entry kept. How many were left out."""
        left_out = max(0, self._ring.lowest_id - self.position)
        self.position += left_out
        return left_out

    async def wait_for_news(self) -> None:
        """Return once there is something to read, or something was missed, or nothing will come any more."""
        await self._ring.wait_for_entry(self.position)


def _check_capacity(capacity: int) -> int:
    if capacity < 1:
        raise ValueError(f"a ring keeps at least one entry, not {capacity}")
    return capacity
