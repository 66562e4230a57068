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
    """Members ordered by ``key_of(member)``, smallest first.

    Keys are tuples of one length (until :meth:`renew_keys`) and total: no two members share one.
    """

    __slots__ = ("_entries", "_key_of", "_keys", "_marked", "_pushes")

    def __init__(self, key_of: Callable[[T], tuple[Any, ...]]) -> None:
        self._key_of = key_of
        self._entries: list[tuple[Any, ...]] = []
        """(*key, push number, member, key): flat, because the heap compares entries all the time. A member that left
        may share its key with one that came, so numbers tell them apart where members cannot be compared. An entry
        holds while its key is the very object in ``_keys``."""
        self._pushes = 0
        self._keys: dict[T, tuple[Any, ...] | None] = {}
        self._marked: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, member: object) -> bool:
        return member in self._keys

    def __iter__(self) -> Iterator[T]:
        """Yields members in the order they were added, not sorted."""
        return iter(self._keys)

    def add(self, member: T) -> None:
        """Take *member* in; a member already present is only marked."""
        self._keys.setdefault(member, None)
        self._marked[member] = None

    def clear(self) -> None:
        """Let all members go."""
        self._entries.clear()
        self._keys.clear()
        self._marked.clear()

    def mark_changed(self, member: T) -> None:
        """Note that the key of *member* may have changed; unknown members are ignored."""
        if member in self._keys:
            self._marked[member] = None

    def mark_all(self) -> None:
        """Note that any key may have changed."""
        self._marked = dict.fromkeys(self._keys)

    def renew_keys(self) -> None:
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

    def first_member(self) -> T | None:
        """Returns the member with the smallest key, or ``None`` when empty."""
        keys, entries = self._keys, self._entries
        if len(keys) <= 1:
            # Nothing to compare with; what is marked stays so until there is.
            return next(iter(keys), None)
        if self._marked:
            key_of = self._key_of
            pushes = self._pushes
            for member in self._marked:
                key = key_of(member)
                if keys[member] != key:
                    keys[member] = key
                    pushes += 1
                    if entries and entries[0][-2] is member:
                        # Mostly it is the first that changed, because it was served.
                        heapreplace(entries, (*key, pushes, member, key))
                    else:
                        heappush(entries, (*key, pushes, member, key))
            self._pushes = pushes
            self._marked.clear()
            if len(entries) > 64 and len(entries) > 4 * len(keys):
                self._entries = entries = [(*key, at, m, key) for at, (m, key) in enumerate(keys.items()) if key]
                heapify(entries)
        while entries:
            entry = entries[0]
            member = entry[-2]
            if keys.get(member) is entry[-1]:
                return member
            heappop(entries)
        return None

    def sorted_members(self) -> list[T]:
        """Returns all members, sorted: for reports and reservations. Each cycle asks for :meth:`first_member` only."""
        return sorted(self._keys, key=self._key_of)
