"""The order of an application's active groups, by the ask that heads each.

While asks are placed, the head of a group only moves to later asks. That happens all the time, so its entry is not
updated then, but compared with the present head when it comes to the top of the heap. Only an earlier head needs a new
entry at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kornel.core.model.allocations import AskGroup

Entry = tuple[int, int, int, int, "AskGroup"]
"""A sort key: (negative priority, creation, arrival of the head, number of the group, group) (scheduling.md 5.3)."""


NO_ENTRIES: Final[list[Entry]] = []
NONE_OFFERED: Final[dict[AskGroup, Entry]] = {}
"""Empty containers that all orders without groups share, and that are never changed."""


class GroupOrder:
    """The groups of one application that are worth trying, none of them empty."""

    __slots__ = ("_entries", "groups")

    def __init__(self) -> None:
        self._entries = NO_ENTRIES
        self.groups = NONE_OFFERED
        """The groups, each with its entry, which is never later than its head; an entry that is too early is corrected
        when it comes to the top. Code that runs for every ask only looks up a group here."""

    def __len__(self) -> int:
        return len(self.groups)

    def __contains__(self, group: object) -> bool:
        return group in self.groups

    def __iter__(self) -> Iterator[AskGroup]:
        """Yields groups in the order they were added, not sorted."""
        return iter(self.groups)

    def offer_group(self, group: AskGroup) -> None:
        """Add *group*, or note that it may have an earlier head than before."""
        head = group.first_ask()
        if not self.groups:
            entry = (-head.spec.priority, head.created_ns, head.arrival, group.number, group)
            self.groups = {group: entry}
            self._entries = [entry]
            return
        listed = self.groups.get(group)
        if listed is not None and listed[2] == head.arrival:
            return
        entry = (-head.spec.priority, head.created_ns, head.arrival, group.number, group)
        if listed is None or entry < listed:
            self.groups[group] = entry
            heappush(self._entries, entry)
            if len(self._entries) > 64 and len(self._entries) > 4 * len(self.groups):
                self._entries = list(self.groups.values())
                heapify(self._entries)

    def discard(self, group: AskGroup) -> None:
        """Remove *group* if it is there; its entry is removed when it comes to the top."""
        if group in self.groups:
            del self.groups[group]
            if not self.groups:
                self.groups, self._entries = NONE_OFFERED, NO_ENTRIES

    def first_group(self) -> AskGroup | None:
        """Returns the group with the first ask, or ``None`` when there is none."""
        entries, groups = self._entries, self.groups
        while entries:
            entry = entries[0]
            group = entry[4]
            if groups.get(group) is not entry:
                heappop(entries)
                continue
            head = group.first_ask()
            if head.arrival == entry[2]:
                return group
            groups[group] = entry = (-head.spec.priority, head.created_ns, head.arrival, group.number, group)
            heapreplace(entries, entry)
            if entries[0] is entry:  # This is the usual case: the next of equal asks is often the next of all.
                return group
        return None
