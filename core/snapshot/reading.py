"""Converts columns to objects, as the inverse of :mod:`.writing`.

Records and containers are made empty; values are made when everything to which they refer exists. Then the fields are
set, column by column, and the containers are filled: lists first, then the containers that need the hash of their
members.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import islice, repeat
from types import MappingProxyType
from typing import Any, Final

from kornel.core.domain.resources import Resources
from kornel.core.snapshot.kept import Kept, Schema
from kornel.core.snapshot.writing import FIXED
from kornel.v1 import snapshot_pb2 as pb

_MISSING: Final = object()


class SnapshotUnreadable(Exception):
    """This version cannot read the columns."""


def read_objects(schema: Schema, state: pb.SnapshotState) -> list[Any]:
    """Returns the root objects, with everything to which they refer. Raises :class:`SnapshotUnreadable`."""
    if state.schema > schema.version:
        raise SnapshotUnreadable(f"its tables are version {state.schema}, this core knows {schema.version}")
    reader = _Reader(schema, state)
    try:
        return reader.read()
    except SnapshotUnreadable:
        raise
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise SnapshotUnreadable(f"it does not fit together: {type(error).__name__}: {error}") from error


class _Reader:
    """Makes the objects of one state."""

    def __init__(self, schema: Schema, state: pb.SnapshotState) -> None:
        self._schema = schema
        self._state = state
        self._objects: list[Any] = []
        self._made: list[tuple[pb.SnapshotTable, list[Any]]] = []
        """The tables whose objects are still empty, with these objects."""

    def read(self) -> list[Any]:
        """Returns the roots."""
        state, objects = self._state, self._objects
        tables = [table for table in state.tables if not table.rank]
        values = [table for table in state.tables if table.rank]
        objects += FIXED
        for table in tables:
            parts = self._make_empty(table)
            objects += parts
            self._made.append((table, parts))
        # Numbers are given in the order of the tables. Scalars come last there, but values refer to them, so they are
        # read first.
        first = len(objects)
        objects += repeat(None, sum(table.rows for table in values))
        self._read_scalars()
        for table in values:
            objects[first : first + table.rows] = self._make_values(table)
            first += table.rows
        for table, parts in self._made:
            if table.kind == pb.SNAPSHOT_KIND_RECORDS:
                self._fill_records(table, parts)
        for kinds in ((pb.SNAPSHOT_KIND_LISTS, pb.SNAPSHOT_KIND_DEQUES), None):
            for table, parts in self._made:
                if (table.kind in kinds) if kinds is not None else True:
                    self._fill_containers(table, parts, ordered=kinds is not None)
        self._derive_fields()
        return [objects[number] for number in state.roots]

    def _read_scalars(self) -> None:
        objects, state = self._objects, self._state
        text = state.texts.decode("utf-8", "surrogatepass")
        at = 0
        for length in state.text_lengths:
            objects.append(text[at : at + length])
            at += length
        objects += state.floats
        objects += map(int, state.integers)

    def _make_empty(self, table: pb.SnapshotTable) -> list[Any]:
        kind, rows = table.kind, table.rows
        if kind == pb.SNAPSHOT_KIND_CONSTANTS:
            return [self._find_constant(name) for name in table.names]
        if kind == pb.SNAPSHOT_KIND_MEMBERS:
            members = self._schema.members_by_name.get(table.name)
            if members is None:
                raise SnapshotUnreadable(f"enumeration {table.name} is unknown")
            return [members[name] for name in table.names]
        if kind == pb.SNAPSHOT_KIND_RECORDS:
            return _make_new(self._find_row(table).cls, rows)
        if kind == pb.SNAPSHOT_KIND_LISTS:
            return [[] for _ in range(rows)]
        if kind == pb.SNAPSHOT_KIND_MAPS:
            make_map = self._schema.maps_by_name.get(table.name)
            if make_map is None:
                raise SnapshotUnreadable(f"map {table.name} is unknown")
            return [make_map() for _ in range(rows)]
        if kind == pb.SNAPSHOT_KIND_SETS:
            return [set() for _ in range(rows)]
        if kind == pb.SNAPSHOT_KIND_DEQUES:
            return [deque(maxlen=most if most >= 0 else None) for most in self._read_column(table, "most")]
        raise SnapshotUnreadable(f"kind {kind} of a table is unknown")

    def _find_constant(self, name: str) -> object:
        found = self._schema.constants.get(name, _MISSING)
        if found is _MISSING:
            raise SnapshotUnreadable(f"{name} is unknown")
        return found

    def _find_row(self, table: pb.SnapshotTable) -> Kept:
        row = self._schema.rows_by_name.get(table.name)
        if row is None:
            raise SnapshotUnreadable(f"class {table.name} is unknown")
        return row

    def _read_column(self, table: pb.SnapshotTable, name: str) -> Sequence[Any]:
        column = next((column for column in table.columns if column.name == name), None)
        if column is None:
            raise SnapshotUnreadable(f"{table.name or table.kind} has no {name}")
        return self._decode_column(column, table.rows)

    def _decode_column(self, column: pb.SnapshotColumn, rows: int | None) -> Sequence[Any]:
        """Returns the content of *column*. *rows* is the required length, to which a single element is repeated; with
        ``None``, any length is accepted."""
        if column.floats:
            return list(column.floats)
        if column.integers:
            found: list[Any] = list(column.integers)
        else:
            found = list(map(self._objects.__getitem__, column.objects))
        if rows is not None and len(found) != rows:
            if len(found) != 1:
                raise SnapshotUnreadable(f"column {column.name} has {len(found)} elements, for {rows} rows")
            found *= rows
        return found

    def _make_values(self, table: pb.SnapshotTable) -> Iterable[Any]:
        kind = table.kind
        if kind == pb.SNAPSHOT_KIND_TUPLES:
            return zip(*[self._decode_column(column, table.rows) for column in table.columns], strict=True)
        if kind == pb.SNAPSHOT_KIND_VALUES:
            return self._make_objects(table)
        if kind == pb.SNAPSHOT_KIND_AMOUNTS:
            return [Resources(dict(pairs)) for pairs in self._read_pairs(table)]
        if kind == pb.SNAPSHOT_KIND_FROZEN_MAPS:
            return [MappingProxyType(dict(pairs)) for pairs in self._read_pairs(table)]
        if kind == pb.SNAPSHOT_KIND_FROZEN_SETS:
            return [frozenset(items) for items in self._read_items(table)]
        if kind == pb.SNAPSHOT_KIND_CALLS:
            functions, arguments = self._read_column(table, "function"), self._read_column(table, "arguments")
            return [partial(function, *given) for function, given in zip(functions, arguments, strict=True)]
        raise SnapshotUnreadable(f"kind {kind} of a table is unknown")

    def _make_objects(self, table: pb.SnapshotTable) -> list[Any]:
        row = self._find_row(table)
        columns = self._read_fields(row, table)
        if issubclass(row.cls, tuple):
            fields: tuple[str, ...] = row.cls._fields  # type: ignore[attr-defined]
            return list(map(partial(tuple.__new__, row.cls), zip(*map(columns.__getitem__, fields), strict=True)))
        made = _make_new(row.cls, table.rows)
        for field, column in columns.items():
            _set_field(row.cls, made, field, column)
        return made

    def _fill_records(self, table: pb.SnapshotTable, parts: list[Any]) -> None:
        row = self._find_row(table)
        for field, column in self._read_fields(row, table).items():
            _set_field(row.cls, parts, field, column)
        for field in row.under_way.split():
            _set_field(row.cls, parts, field, repeat(None))

    def _read_fields(self, row: Kept, table: pb.SnapshotTable) -> dict[str, Iterable[Any]]:
        """Returns the columns by field, without those of fields that no longer exist."""
        written = {column.name: column for column in table.columns}
        found: dict[str, Iterable[Any]] = {}
        for field in row.fields:
            column = written.get(field)
            if column is not None:
                found[field] = self._decode_column(column, table.rows)
            elif field in row.defaults:
                found[field] = [copy(row.defaults[field]) for _ in range(table.rows)]
            else:
                raise SnapshotUnreadable(f"{table.name} has no {field}")
        return found

    def _fill_containers(self, table: pb.SnapshotTable, parts: list[Any], *, ordered: bool) -> None:
        """Fills lists and queues if *ordered* is true, otherwise maps and sets."""
        kind = table.kind
        if ordered:
            for part, items in zip(parts, self._read_items(table), strict=True):
                part.extend(items)
        elif kind == pb.SNAPSHOT_KIND_SETS:
            for part, items in zip(parts, self._read_items(table), strict=True):
                part.update(items)
        elif kind == pb.SNAPSHOT_KIND_MAPS:
            for part, pairs in zip(parts, self._read_pairs(table), strict=True):
                # An ordered map has an additional order besides that of a dict, and a counter would add the values up.
                (OrderedDict if isinstance(part, OrderedDict) else dict).update(part, pairs)

    def _read_items(self, table: pb.SnapshotTable) -> Iterator[Iterator[Any]]:
        """Yields the items of one container after the other. Each iterator has to be used up before the next one is
        requested."""
        lengths = self._read_column(table, "length")
        items = iter(self._read_long_column(table, "items", sum(lengths)))
        for length in lengths:
            yield islice(items, length)

    def _read_pairs(self, table: pb.SnapshotTable) -> Iterator[Iterator[tuple[Any, Any]]]:
        """Yields the pairs of one map after the other, like :meth:`_read_items`."""
        lengths = self._read_column(table, "length")
        size = sum(lengths)
        keys, values = self._read_long_column(table, "keys", size), self._read_long_column(table, "values", size)
        pairs = zip(keys, values, strict=True)
        for length in lengths:
            yield islice(pairs, length)

    def _read_long_column(self, table: pb.SnapshotTable, name: str, size: int) -> Sequence[Any]:
        column = next(column for column in table.columns if column.name == name)
        return self._decode_column(column, size) if size else ()

    def _derive_fields(self) -> None:
        for table, parts in self._made:
            if table.kind != pb.SNAPSHOT_KIND_RECORDS:
                continue
            row = self._find_row(table)
            for field, derive in row.derived.items():
                _set_field(row.cls, parts, field, list(map(derive, parts)))


def _make_new(cls: type, count: int) -> list[Any]:
    """Returns objects of *cls* without any field."""
    make: Callable[..., Any] = cls.__new__
    return list(map(make, repeat(cls, count)))


def _set_field(cls: type, parts: Iterable[Any], field: str, column: Iterable[Any]) -> None:
    """Sets *field* of all *parts*, even if the class forbids it."""
    slot = next((found for kind in cls.__mro__ if (found := kind.__dict__.get(field)) is not None), None)
    setter: Callable[..., object] = object.__setattr__
    if type(slot).__name__ == "member_descriptor":
        assert slot is not None, "it has a type"
        deque(map(slot.__set__, parts, column), maxlen=0)
    else:
        deque(map(setter, parts, repeat(field), column), maxlen=0)
