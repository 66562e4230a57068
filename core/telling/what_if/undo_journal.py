"""Restores records after a supposition exactly as they were: the same values, in the same objects, in the same order.

A record is *kept* before anything may change it: the values of all its attributes, and the contents of its parts
(lists, dicts, sets, deques and the classes in :data:`PARTS`) at any depth. Other records to which it refers are kept
separately. So the code need not list what a function of the engine writes into a record, only which records it writes
to; and objects that the function makes are dropped, because nothing refers to them afterwards.

Keeping a record costs in proportion to its size, once in a question. Reading costs nothing, and the engine pays
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from types import TracebackType
from typing import Any, Final

from kornel.core.model.allocations import LimitClaim
from kornel.core.model.callbacks import Callbacks
from kornel.core.model.claim_clocks import ClaimClock
from kornel.core.model.claims import Claims
from kornel.core.model.devices import Device, NodeDevices
from kornel.core.model.orders.group_order import GroupOrder
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.orders.node_order import NodeGroup, NodeOrder
from kornel.core.model.orders.waiting_rooms import Branch, ClassedLine, WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.task_groups import GroupMembers, TaskGroup
from kornel.core.preemption.registry import KINDS
from kornel.core.state.records.enforcement import Enforcement
from kornel.core.state.records.gang_record import GangHold, GangRecord, GangRoom, Vetting
from kornel.core.state.records.governor_books import GovernorBooks, Window
from kornel.core.state.records.kind_records import KindRecords
from kornel.core.state.records.reserving_record import ReservingRecord

PARTS: Final = frozenset(
    {
        Branch, Callbacks, ClaimClock, Claims, ClassedLine, Device, Enforcement, GangHold, GangRecord, GangRoom,
        GovernorBooks, GroupMembers, GroupOrder, KeyedHeap, LimitClaim, NodeDevices, NodeGroup, NodeOrder,
        ReservingRecord, TaskGroup, Vetting, WaitingRoom, Window,
        *(record for kind in KINDS for record in kind.records),
    }
)  # fmt: skip
"""The classes of parts that belong to one record, and change with it."""

_FOLLOWED: Final = PARTS | {list, dict, set, deque, KindRecords}
_SLOTS: Final[dict[type, tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]]] = {}
"""The slots of each class met so far, with a function that reads them all."""


class Journal:
    """A context at whose end everything that was kept is restored, even after an error."""

    def __init__(self) -> None:
        self._kept: dict[int, object] = {}
        """The kept objects by identity, so that each is kept once. They are held here so that no identity is used
        again."""
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        """The kept lists, each with its entries; the attributes below do the same for other containers."""
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._others: list[tuple[set[Any], set[Any]] | tuple[deque[Any], deque[Any]]] = []
        self._records: list[tuple[object, tuple[str, ...], tuple[Any, ...]]] = []
        """The kept records, each with the names of its slots and their values."""
        self.made: list[Queue] = []
        """The queues that exist for this context only, and are freed behind it."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The order does not matter, because each object was kept once and is restored by itself.
        for record, names, values in self._records:
            for name, value in zip(names, values, strict=True):
                setattr(record, name, value)
        for entries, entries_before in self._dicts:
            if entries or entries_before:
                entries.clear()
                entries.update(entries_before)
        for items, items_before in self._lists:
            items[:] = items_before
        for members, members_before in self._others:
            members.clear()
            if isinstance(members, set):
                members.update(members_before)
            else:
                members.extend(members_before)
        for queue in self.made:
            queue.dissolve()

    def __contains__(self, record: object) -> bool:
        return id(record) in self._kept

    def keep_record(self, record: object, *, but: Collection[str] = ()) -> None:
        """Notes the state of *record*, unless it was noted already. *but*: attributes whose contents do not change."""
        kept = self._kept
        if id(record) in kept:
            return
        kept[id(record)] = record
        stack = [part for part in self._note_record(record, but) if type(part) in _FOLLOWED]
        while stack:
            part = stack.pop()
            if id(part) in kept:
                continue
            kept[id(part)] = part
            kind = type(part)
            inside: Iterable[Any]
            if kind is list:
                self._lists.append((part, part.copy()))
                inside = part
            elif kind is dict or kind is KindRecords:
                self._dicts.append((part, part.copy()))
                inside = part.values()
            elif kind is set or kind is deque:
                self._others.append((part, part.copy()))
                continue
            else:
                inside = self._note_record(part, ())
            stack += [found for found in inside if type(found) in _FOLLOWED]

    def _note_record(self, record: Any, but: Collection[str]) -> Iterable[Any]:
        """Notes the attributes of *record*. Returns their values, without those of the attributes in *but*."""
        kind = type(record)
        if hasattr(record, "__dict__"):
            attributes = vars(record)
            self._dicts.append((attributes, attributes.copy()))
            return [value for name, value in attributes.items() if name not in but]
        names, read = _slots_of(kind)
        values = read(record)
        self._records.append((record, names, values))
        return [value for name, value in zip(names, values, strict=True) if name not in but] if but else values


def _slots_of(kind: type) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]:
    """Returns the names of the slots of *kind*, which are set in all its records, and a function that reads them at
    once."""
    known = _SLOTS.get(kind)
    if known is None:
        names = tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name != "__weakref__")
        read = attrgetter(*names) if len(names) > 1 else lambda record: (getattr(record, names[0]),)
        known = _SLOTS[kind] = (names, read)
    return known
