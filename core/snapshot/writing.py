"""Converts objects to columns: everything that can be reached from some roots, class by class (snapshot.proto).

First everything is found and sorted: records and containers, which can be made empty and filled later, and values,
which are made together with the objects to which they refer and so have to follow these. Then each field of a class
becomes one column.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from operator import attrgetter
from types import FunctionType, MappingProxyType
from typing import Any, Final

from kornel.core.domain.resources import Resources, amounts_of
from kornel.core.snapshot.kept import Kept, Schema, declared_fields
from kornel.v1 import snapshot_pb2 as pb

FIXED: Final = (None, False, True, ())
"""The objects that have the first numbers in every snapshot."""

_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_SINGLE: Final = frozenset({type(None), bool})
_TEXTS: Final = {str}
_INTEGERS: Final = {int}
_FLOATS: Final = {float}
_LEAST, _MOST = -(2**63), 2**63 - 1

_FREE: Final = 0
"""The rank of the objects that are made before all values."""


class UnknownState(Exception):
    """The state contains something that the tables do not name."""


class WorkUnderWay(Exception):
    """There is work that continues from slice to slice; a snapshot can be taken when it is done."""


def write_objects(schema: Schema, roots: Sequence[object]) -> pb.SnapshotState:
    """Returns everything that can be reached from *roots*. Raises :class:`UnknownState` and :class:`WorkUnderWay`."""
    found = FoundObjects(schema)
    found.collect(roots)
    return _Writer(schema, found).write(roots)


class FoundObjects:
    """All objects, sorted by their kinds and in the order in which they were found."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.ranks: dict[int, int] = dict.fromkeys(map(id, FIXED), _FREE)
        """The rank of everything that was found, by identity."""
        self.constants: dict[int, object] = {
            id(constant): constant for constant in schema.constants.values() if isinstance(constant, str)
        }
        self.members: dict[type, list[Enum]] = {}
        self.records: dict[type, list[Any]] = {}
        self.lists: dict[bool, list[list[Any]]] = {}
        """Lists. Those that contain only integers are separate, because their column is one of integers."""
        self.deques: list[deque[Any]] = []
        self.maps: dict[tuple[type, bool, bool], list[dict[Any, Any]]] = {}
        """Maps by their class, and by whether their keys and values are integers only."""
        self.sets: list[set[Any]] = []
        self.values: dict[tuple[int, type, int], list[Any]] = {}
        """Values by rank and class, and tuples also by length."""
        self.texts: dict[str, None] = {}
        self.floats: dict[str, float] = {}
        """Floats by their text, because 0.0 and -0.0 are equal but not the same."""
        self._getters = {row.cls: _make_getter(row) for row in schema.rows.values()}
        self._left: list[tuple[object, Iterable[Any]]] = []
        self._shown: object = None
        """The object that is being collected, for messages."""

    def collect(self, roots: Iterable[object]) -> None:
        """Finds everything that can be reached from *roots*."""
        self._note_all(roots)
        left = self._left
        while left:
            self._shown, parts = left.pop()
            self._note_all(parts)

    def _note_all(self, parts: Iterable[object]) -> int:
        """Notes each of *parts*. Returns the highest rank among them."""
        highest = _FREE
        ranks, texts = self.ranks, self.texts
        for part in parts:
            kind = type(part)
            if kind in _SCALARS:
                if kind is str:
                    texts[part] = None  # type: ignore[index]
                elif kind is float:
                    self.floats[repr(part)] = part  # type: ignore[assignment]
                continue
            rank = ranks.get(id(part))
            if rank is None:
                rank = self._note(part, kind)
            highest = max(highest, rank)
        return highest

    def _note(self, part: Any, kind: type) -> int:
        identity = id(part)
        if identity in self._schema.constant_names:
            self.constants[identity] = part
            rank = _FREE
        elif kind in self._schema.rows:
            rank = self._note_object(part, kind)
        elif kind in (list, set, deque) or kind in self._schema.maps:
            self.ranks[identity] = rank = _FREE
            self._note_container(part, kind)
        else:
            rank = self._note_value(part, kind)
        self.ranks[identity] = rank
        return rank

    def _note_object(self, part: Any, kind: type) -> int:
        row = self._schema.rows[kind]
        parts = self._read_fields(part, row)
        if not row.is_value:
            self.records.setdefault(kind, []).append(part)
            self._left.append((part, parts))
            return _FREE
        return self._add_value(part, kind, parts)

    def _read_fields(self, part: Any, row: Kept) -> Sequence[Any]:
        for name in row.under_way.split():
            if getattr(part, name) is not None:
                raise WorkUnderWay(f"{row.known_as}.{name}")
        return self._getters[row.cls](part)

    def _note_container(self, part: Any, kind: type) -> None:
        if kind is list:
            self.lists.setdefault(_are_integers(part), []).append(part)
        elif kind is deque:
            self.deques.append(part)
        elif kind is set:
            self.sets.append(part)
        else:
            self.maps.setdefault((kind, _are_integers(part), _are_integers(part.values())), []).append(part)
        parts = chain(part, part.values()) if isinstance(part, dict) else part
        self._left.append((part, parts))

    def _note_value(self, part: Any, kind: type) -> int:
        if kind is tuple:
            return self._add_value(part, kind, part, len(part))
        if kind is Resources:
            amounts = amounts_of(part)
            return self._add_value(part, kind, chain(amounts, amounts.values()))
        if kind is frozenset:
            return self._add_value(part, kind, part)
        if kind is MappingProxyType:
            return self._add_value(part, kind, chain(part, part.values()))
        if kind is partial:
            if part.keywords:
                raise UnknownState(f"{part}: a call that is made later has its arguments by place")
            return self._add_value(part, kind, (part.func, part.args))
        if kind in self._schema.members:
            self.members.setdefault(kind, []).append(part)
            return _FREE
        named = part if kind is FunctionType else kind
        what = f"{kind.__name__} {named.__module__}.{named.__qualname__}"
        raise UnknownState(f"{what}, in {type(self._shown).__name__}, is not in core/snapshot/schema.py")

    def _add_value(self, part: Any, kind: type, parts: Iterable[object], length: int = 0) -> int:
        shown, self._shown = self._shown, part
        rank = 1 + self._note_all(parts)
        self._shown = shown
        self.values.setdefault((rank, kind, length), []).append(part)
        return rank


_Table = tuple[pb.SnapshotTable, Callable[[pb.SnapshotTable, Sequence[Any]], None], Sequence[Any]]
"""A table, the function that fills it, and its objects."""


class _Writer:
    """Numbers the objects that were found, and writes them."""

    def __init__(self, schema: Schema, found: FoundObjects) -> None:
        self._schema = schema
        self._found = found
        self._state = pb.SnapshotState(schema=schema.version)
        self._numbers: dict[int, int] = {id(part): number for number, part in enumerate(FIXED)}
        self._count = len(FIXED)
        self._texts: dict[str, int] = {}
        self._floats: dict[str, int] = {}
        self._integers: dict[int, int] = {}
        self._named_texts = {part for part in found.constants.values() if isinstance(part, str)}

    def write(self, roots: Sequence[object]) -> pb.SnapshotState:
        """Returns everything."""
        found = self._found
        tables = [self._add_table(pb.SNAPSHOT_KIND_CONSTANTS, list(found.constants.values()), self._write_constants)]
        tables += [
            self._add_table(pb.SNAPSHOT_KIND_MEMBERS, members, self._write_members, kind.__name__)
            for kind, members in found.members.items()
        ]
        tables += [
            self._add_table(pb.SNAPSHOT_KIND_RECORDS, parts, self._write_objects, self._schema.rows[kind].known_as)
            for kind, parts in found.records.items()
        ]
        tables += [self._add_table(pb.SNAPSHOT_KIND_LISTS, parts, self._write_items) for parts in found.lists.values()]
        tables.append(self._add_table(pb.SNAPSHOT_KIND_DEQUES, found.deques, self._write_deques))
        tables += [
            self._add_table(pb.SNAPSHOT_KIND_MAPS, parts, self._write_maps, kind.__name__)
            for (kind, _, _), parts in found.maps.items()
        ]
        tables.append(self._add_table(pb.SNAPSHOT_KIND_SETS, found.sets, self._write_items))
        for key in sorted(found.values, key=lambda key: key[0]):
            tables.append(self._add_values(key, found.values[key]))
        self._number_scalars()
        for table, write, parts in tables:
            if parts:
                write(table, parts)
                self._state.tables.append(table)
        self._state.roots.extend(self._numbers[id(root)] for root in roots)
        self._state.integers.extend(map(str, self._integers))
        return self._state

    def _add_table(
        self,
        kind: pb.SnapshotKind.ValueType,
        parts: Sequence[Any],
        write: Callable[[pb.SnapshotTable, Sequence[Any]], None],
        name: str = "",
        rank: int = _FREE,
    ) -> _Table:
        table = pb.SnapshotTable(kind=kind, name=name, rows=len(parts), rank=rank)
        self._numbers.update(zip(map(id, parts), range(self._count, self._count + len(parts)), strict=True))
        self._count += len(parts)
        return table, write, parts

    def _add_values(self, key: tuple[int, type, int], parts: Sequence[Any]) -> _Table:
        rank, kind, _ = key
        if kind is tuple:
            return self._add_table(pb.SNAPSHOT_KIND_TUPLES, parts, self._write_tuples, rank=rank)
        if kind is Resources:
            return self._add_table(pb.SNAPSHOT_KIND_AMOUNTS, parts, self._write_maps, rank=rank)
        if kind is frozenset:
            return self._add_table(pb.SNAPSHOT_KIND_FROZEN_SETS, parts, self._write_items, rank=rank)
        if kind is MappingProxyType:
            return self._add_table(pb.SNAPSHOT_KIND_FROZEN_MAPS, parts, self._write_maps, rank=rank)
        if kind is partial:
            return self._add_table(pb.SNAPSHOT_KIND_CALLS, parts, self._write_calls, rank=rank)
        name = self._schema.rows[kind].known_as
        return self._add_table(pb.SNAPSHOT_KIND_VALUES, parts, self._write_objects, name, rank)

    def _number_scalars(self) -> None:
        texts, floats = list(self._found.texts), list(self._found.floats)  # Floats are found by their text, too.
        self._texts = dict(zip(texts, range(self._count, self._count + len(texts)), strict=True))
        self._count += len(texts)
        self._floats = dict(zip(floats, range(self._count, self._count + len(floats)), strict=True))
        self._count += len(floats)
        self._state.texts = "".join(texts).encode("utf-8", "surrogatepass")
        self._state.text_lengths.extend(map(len, texts))
        self._state.floats.extend(self._found.floats.values())

    def _write_constants(self, table: pb.SnapshotTable, parts: Sequence[Any]) -> None:
        table.names.extend(self._schema.constant_names[id(part)] for part in parts)

    def _write_members(self, table: pb.SnapshotTable, parts: Sequence[Enum]) -> None:
        table.names.extend(part.name for part in parts)

    def _write_objects(self, table: pb.SnapshotTable, parts: Sequence[Any]) -> None:
        for field in self._schema.rows[type(parts[0])].fields:
            self._add_column(table, field, list(map(attrgetter(field), parts)))

    def _write_items(self, table: pb.SnapshotTable, parts: Sequence[Iterable[Any]]) -> None:
        self._add_column(table, "length", list(map(len, parts)))  # type: ignore[arg-type]
        self._add_column(table, "items", list(chain.from_iterable(parts)))

    def _write_deques(self, table: pb.SnapshotTable, parts: Sequence[deque[Any]]) -> None:
        self._add_column(table, "most", [-1 if part.maxlen is None else part.maxlen for part in parts])
        self._write_items(table, parts)

    def _write_maps(self, table: pb.SnapshotTable, parts: Sequence[Any]) -> None:
        self._add_column(table, "length", list(map(len, parts)))
        self._add_column(table, "keys", list(chain.from_iterable(parts)))
        self._add_column(table, "values", list(chain.from_iterable(part.values() for part in parts)))

    def _write_tuples(self, table: pb.SnapshotTable, parts: Sequence[tuple[Any, ...]]) -> None:
        for at, column in enumerate(zip(*parts, strict=True)):
            self._add_column(table, str(at), column)

    def _write_calls(self, table: pb.SnapshotTable, parts: Sequence[partial[Any]]) -> None:
        self._add_column(table, "function", [part.func for part in parts])
        self._add_column(table, "arguments", [part.args for part in parts])

    def _add_column(self, table: pb.SnapshotTable, name: str, column: Sequence[Any]) -> None:
        written = table.columns.add(name=name)
        if not column:
            return
        kinds = set(map(type, column))
        if kinds == _INTEGERS and min(column) >= _LEAST and max(column) <= _MOST:
            written.integers.extend(column[:1] if column.count(column[0]) == len(column) else column)
            return
        if kinds == _FLOATS:
            written.floats.extend(column)
            return
        numbers = self._number_all(column, kinds)
        written.objects.extend(numbers[:1] if numbers.count(numbers[0]) == len(numbers) else numbers)

    def _number_all(self, column: Sequence[Any], kinds: set[type]) -> list[int]:
        if kinds == _TEXTS and (not self._named_texts or self._named_texts.isdisjoint(column)):
            return list(map(self._texts.__getitem__, column))
        if not kinds & (_SCALARS - _SINGLE):
            return [self._numbers[identity] for identity in map(id, column)]
        return list(map(self._number, column))

    def _number(self, part: Any) -> int:
        kind = type(part)
        if kind is str:
            named = self._numbers.get(id(part))
            return self._texts[part] if named is None else named
        if kind is float:
            return self._floats[repr(part)]
        if kind is int:
            number = self._integers.get(part)
            if number is None:
                number = self._integers[part] = self._count + len(self._integers)
            return number
        return self._numbers[id(part)]


def _make_getter(row: Kept) -> Callable[[Any], Sequence[Any]]:
    if issubclass(row.cls, tuple):
        return _return_itself
    fields = row.fields
    if not fields:
        return _return_nothing
    if len(fields) == 1:
        get = attrgetter(fields[0])
        return lambda part: (get(part),)
    return attrgetter(*fields)


def _return_itself(part: Sequence[Any]) -> Sequence[Any]:
    return part


def _return_nothing(_: object) -> Sequence[Any]:
    return ()


def _are_integers(parts: Iterable[object]) -> bool:
    return set(map(type, parts)) <= _INTEGERS


def check_fields(schema: Schema, part: object) -> None:
    """Raises :class:`UnknownState` if *part* has a field that its row does not name, or lacks one."""
    row = schema.rows[type(part)]
    named, there = row.name_fields(), declared_fields(part)
    if named != there:
        raise UnknownState(
            f"{row.known_as} in core/snapshot/schema.py: fields that are not named: {sorted(there - named)};"
            f" that are not there: {sorted(named - there)}"
        )
