"""An order kept, not computed: the member with the smallest key, cheap to re-key and to remove from.

A member whose key may have changed is only *marked*; its key is computed again when somebody asks for the first.
Entries that no longer hold are dropped when they surface. So a change costs O(1), and the next question pays for the
few members that really changed since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KeyedHeap(Generic[T]):
    """Members ordered by ``key_of(member)``, smallest first. Keys must be total: no two members share one."""

    __slots__ = ("_entries", "_key_of", "_keys", "_marked", "_pushes")

    def __init__(self, key_of: Callable[[T], Any]) -> None:
        self._key_of = key_of
        self._entries: list[tuple[Any, int, T]] = []
        """(key, push number, member): a member that left may share its key with one that came, so numbers tell them
        apart where members themselves cannot be compared."""
        self._pushes = 0
        self._keys: dict[T, Any] = {}
        self._marked: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, member: object) -> bool:
        return member in self._keys

    def __iter__(self) -> Iterator[T]:
        """Members in the order they were added, not sorted."""
        return iter(self._keys)

    def add(self, member: T) -> None:
        """Take *member* in; a member already present is only marked."""
        self._keys.setdefault(member, None)
        self._marked[member] = None

    def mark(self, member: T) -> None:
        """Note that the key of *member* may have changed; unknown members are ignored."""
        if member in self._keys:
            self._marked[member] = None

    def mark_all(self) -> None:
        """Note that any key may have changed."""
        self._marked = dict.fromkeys(self._keys)

    def rekey(self) -> None:
        """Forget all keys: the rule that makes them changed, and new ones need not compare with the old."""
        self._entries.clear()
        self._keys = dict.fromkeys(self._keys)
        self._marked = dict.fromkeys(self._keys)

    def discard(self, member: T) -> None:
        """Remove *member* if present."""
        if member in self._keys:
            del self._keys[member]
            self._marked.pop(member, None)
            if not self._keys:
                # Nobody asks an empty order for its first, so what surfaces nowhere must go now.
                self._entries.clear()

    def first(self) -> T | None:
        """The member with the smallest key, or ``None`` when empty."""
        keys, entries = self._keys, self._entries
        if self._marked:
            key_of = self._key_of
            for member in self._marked:
                key = key_of(member)
                if keys[member] != key:
                    keys[member] = key
                    self._pushes += 1
                    entry = (key, self._pushes, member)
                    if entries and entries[0][2] is member:
                        # Mostly it is the first that changed, because it was served.
                        heapreplace(entries, entry)
                    else:
                        heappush(entries, entry)
            self._marked.clear()
            if len(entries) > 64 and len(entries) > 4 * len(keys):
                self._entries = entries = [(key, at, member) for at, (member, key) in enumerate(keys.items())]
                heapify(entries)
        while entries:
            key, _, member = entries[0]
            if keys.get(member) == key:
                return member
            heappop(entries)
        return None

    def ordered(self) -> list[T]:
        """All members, sorted. For reports and reservations; the hot path asks for :meth:`first` only."""
        return sorted(self._keys, key=self._key_of)
