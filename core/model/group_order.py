"""The order of an application's active groups, by the ask that heads each.

A group's head only gets later while asks are placed, and that is the rule, so nothing is done about it then: the entry
that surfaces is compared with the head its group has now. Only a new head that comes earlier needs an entry at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kornel.core.model.allocations import AskGroup

Entry = tuple[int, int, int, int, "AskGroup"]
"""A sort key: (negative priority, creation, arrival of the head, number of the group, group) (scheduling.md 5.3)."""


class GroupOrder:
    """The groups of one application that are worth trying, none of them empty."""

    __slots__ = ("_entries", "_groups")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._groups: dict[AskGroup, Entry] = {}
        """The groups, each with its entry, which is never later than its head; one that is too early is put right when
        it surfaces."""

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[AskGroup]:
        """Yields groups in the order they were added, not sorted."""
        return iter(self._groups)

    def offer_group(self, group: AskGroup) -> None:
        """Add *group*, or note that it may have an earlier head than before."""
        listed = self._groups.get(group)
        head = group.first_ask()
        if listed is not None and listed[2] == head.arrival:
            return
        entry = (-head.spec.priority, head.created_ns, head.arrival, group.number, group)
        if listed is None or entry < listed:
            self._groups[group] = entry
            heappush(self._entries, entry)
            if len(self._entries) > 64 and len(self._entries) > 4 * len(self._groups):
                self._entries = list(self._groups.values())
                heapify(self._entries)

    def discard(self, group: AskGroup) -> None:
        """Take *group* out if it is in; its entry goes when it surfaces."""
        if group in self._groups:
            del self._groups[group]
            if not self._groups:
                self._entries.clear()

    def first_group(self) -> AskGroup | None:
        """Returns the group with the first ask, or ``None`` when there is none."""
        entries, groups = self._entries, self._groups
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
            if entries[0] is entry:  # Mostly: the next of equal asks is often the next of all.
                return group
        return None
