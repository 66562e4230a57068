"""A heap that returns the member with the smallest key, and in which changing a key or removing a member is cheap.

A member whose key may have changed is only *marked*; its key is computed again when the first member is wanted. Invalid
entries are dropped when they come to the top. So a change costs O(1), and the next search pays for the few members that
really changed since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

SPARED: Final = 64
"""The number of entries that members may leave behind before anybody looks at how many they are."""

SORTED_AT_ONCE: Final = 100
"""The number of members whose keys :meth:`KeyedHeap.sort_many` computes together."""


class KeyedHeap(Generic[T]):
    """Members ordered by ``key_of(member)``, smallest first.

    Keys are tuples of one length (until :meth:`renew_keys`), and no two members have the same key.
    """

    __slots__ = ("_entries", "_key_of", "_left", "marked", "members")

    def __init__(self, key_of: Callable[[T], tuple[Any, ...]]) -> None:
        self._key_of = key_of
        self._entries: list[tuple[Any, ...]] = []
        """The entries (*key, number, member), which are flat because the heap compares them all the time. One that is
        out of date may have the key of a new one; their numbers decide, because members cannot be compared. An entry is
        valid as long as it is the same object as in ``members``."""
        self._left = 0
        """The number of the last entry. It has its name from snapshots, where it counted members that had left."""
        self.members: dict[T, tuple[Any, ...] | None] = {}
        """The members, each with its last entry. Code that runs for every ask looks up a member here, and changes
        nothing."""
        self.marked: dict[T, None] = {}
        """The members whose key may have changed. Code that runs for every ask may mark a member here, as
        :meth:`mark_changed` does, because a call for each level of queues would cost more than the mark."""

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: object) -> bool:
        return member in self.members

    def __iter__(self) -> Iterator[T]:
        """Yields the members in the order in which they were added, not sorted."""
        return iter(self.members)

    def add(self, member: T) -> None:
        """Add *member*; a member that is there already is only marked."""
        self.members.setdefault(member, None)
        self.marked[member] = None

    def clear(self) -> None:
        """Remove all members."""
        self._entries.clear()
        self.members.clear()
        self.marked.clear()

    def mark_changed(self, member: T) -> None:
        """Note that the key of *member* may have changed; unknown members are ignored."""
        if member in self.members:
            self.marked[member] = None

    def mark_all(self) -> None:
        """Note that any key may have changed."""
        self.marked = dict.fromkeys(self.members)

    def renew_keys(self) -> None:
        """Compute all keys anew, because their rule has changed and new keys cannot be compared with old ones."""
        self._entries.clear()
        self.members = dict.fromkeys(self.members)
        self.marked = dict.fromkeys(self.members)

    def discard(self, member: T) -> None:
        """Remove *member* if present."""
        members = self.members
        if member in members:
            del members[member]
            self.marked.pop(member, None)
            if not members:
                # Entries of an empty order would never come to the top, so they have to be removed now.
                self._entries.clear()

    def first_member(self) -> T | None:
        """Returns the member with the smallest key, or ``None`` when empty."""
        keys, entries = self.members, self._entries
        if len(keys) <= 1:
            # There is nothing to compare with; marks stay until there is.
            return next(iter(keys), None)
        if self.marked:
            key_of = self._key_of
            for member in self.marked:
                key = key_of(member)
                known = keys[member]
                if known is None or known[:-2] != key:
                    self._left += 1
                    keys[member] = known = (*key, self._left, member)
                    if entries and entries[0][-1] is member:
                        # Usually the first member has changed, because it was served.
                        heapreplace(entries, known)
                    else:
                        heappush(entries, known)
                        if len(entries) > SPARED + 4 * len(keys):
                            entries = self._drop_old_entries()
            self.marked.clear()
        while entries:
            entry = entries[0]
            member = entry[-1]
            if keys.get(member) is entry:
                return member
            heappop(entries)
        return None

    def sort_many(self) -> None:
        """Compute the keys of some marked members if they are many. Code that adds very many calls this after each of
        them, so that they are not all left to the next search."""
        if len(self.marked) >= SORTED_AT_ONCE:
            self.sort_marked(SORTED_AT_ONCE)

    def sort_marked(self, most: int | None = None) -> None:
        """Compute the keys of the marked members now, or of *most* of them."""
        for member in list(islice(self.marked, most)):
            del self.marked[member]
            key, known = self._key_of(member), self.members[member]
            if known is None or known[:-2] != key:
                self._left += 1
                self.members[member] = entry = (*key, self._left, member)
                heappush(self._entries, entry)
        if len(self._entries) > SPARED + 4 * len(self.members):
            self._drop_old_entries()

    def walk_members(self) -> Iterator[tuple[Any, T]]:
        """Yields the members with their keys, the smallest first, as they were sorted when it began: without those that
        were marked then or have left since. Nobody may be sorted until it ends, and each costs as much as the first."""
        entries, keys = self._entries, self.members
        while entries and keys.get(entries[0][-1]) is not entries[0]:
            heappop(entries)
        # Of the heap, these entries come next, each with its place: an entry comes before those at 2n + 1 and 2n + 2.
        ahead = [(entries[0], 0)] if entries else []
        while ahead:
            entry, at = heappop(ahead)
            for below in range(2 * at + 1, min(2 * at + 3, len(entries))):
                heappush(ahead, (entries[below], below))
            if keys.get(entry[-1]) is entry:
                yield entry[:-2], entry[-1]

    def list_before(self, key: tuple[Any, ...]) -> list[T]:
        """Returns the members before *key*, not sorted, and those that are marked. Changes nothing."""
        entries, found, left = self._entries, dict.fromkeys(self.marked), [0]
        while left:
            at = left.pop()
            if at < len(entries) and entries[at] < key:  # Of the heap, what is below an entry comes after it.
                if self.members.get(entries[at][-1]) is entries[at]:
                    found[entries[at][-1]] = None
                left += (2 * at + 1, 2 * at + 2)
        return list(found)

    def _drop_old_entries(self) -> list[tuple[Any, ...]]:
        """Removes the entries that members have left behind. Returns the others."""
        self._entries = entries = [entry for entry in self.members.values() if entry]
        heapify(entries)
        return entries

    def first_entry(self) -> tuple[tuple[Any, ...], T] | None:
        """Returns the smallest key with its member, or ``None`` when empty."""
        first = self.first_member()
        if first is None:
            return None
        return (self._key_of(first) if len(self.members) == 1 else (self.members[first] or ())[:-2]), first

    def sorted_members(self) -> list[T]:
        """Returns all members, sorted. This is for reports and reservations; a cycle only calls
        :meth:`first_member`."""
        return sorted(self.members, key=self._key_of)
