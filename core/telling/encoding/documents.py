"""Documents of JSON and their schemas, both made of one table of their fields.

A row of a table says under which name a value is shown, what it is made of, of which kind it is, and when it is left
out. Making a document of a table raises :class:`PlanError` when a field of the record goes nowhere without being listed
as left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from core.telling.encoding.records import (
    Itself,
    Made,
    PlanError,
    Source,
    fetcher,
    fields_of,
    maker,
    type_at,
)

Schema = dict[str, Any]
RecordT = TypeVar("RecordT")
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values: its JSON Schema, and what writes one of them; ``None``: it is shown as it is.

    ``document`` is what writes records of another table, ``hollow`` whether it may leave nothing of one but ``{}``.
    """

    schema: Schema
    write: Callable[[Any], Any] | None = None
    document: Document[Any] | None = None
    hollow: bool = False


class Shown(Enum):
    """When a field is there."""

    ALWAYS = auto()
    IF_ANY = auto()
    """Unless it is 0, false, empty or unset."""
    IF_SET = auto()
    """Unless it is unset."""
    APART = auto()
    """The table only describes it: who sends the document adds it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One field. ``promised``: whether the schema says that it is always there."""

    kind: Kind
    source: Source
    shown: Shown
    promised: bool


def always(kind: Kind, source: Source, *, promised: bool = True) -> Row:
    """Returns the row of a field that is always there."""
    return Row(kind, source, Shown.ALWAYS, promised)


def if_any(kind: Kind, source: Source, *, promised: bool = False) -> Row:
    """Returns the row of a field that is left out when it is 0, false, empty or unset."""
    return Row(kind, source, Shown.IF_ANY, promised)


def if_set(kind: Kind, source: Source) -> Row:
    """Returns the row of a field that is left out when it is unset."""
    return Row(kind, source, Shown.IF_SET, promised=False)


def apart(kind: Kind, *, promised: bool = False) -> Row:
    """Returns the row of a field that the sender of a document adds to it."""
    return Row(kind, "", Shown.APART, promised)


Rows = Mapping[str, Row]


class Document(Generic[RecordT]):
    """Writes records of one class as JSON objects, and describes these.

    *name* is that of the schema, to which others refer; empty: it is part of theirs. *rows* come in the order in which
    the fields are written, and as a function of the document if it contains itself. *left_out* are the fields of the
    record that are deliberately not shown; *partial*: another document shows the rest. What ``write`` returns may be
    added to, but the values in it are not to be changed, because they are shared.
    """

    def __init__(
        self,
        name: str,
        record: type[RecordT],
        rows: Rows | Callable[[Document[RecordT]], Rows],
        *,
        left_out: Iterable[str] = (),
        partial: bool = False,
        description: str = "",
    ) -> None:
        self.name: Final = name
        self.record: Final = record
        self._partial: Final = partial
        self.rows: Final[Rows] = rows(self) if callable(rows) else rows
        self.used: Final = self._check(frozenset(left_out))
        self.schema: Final = object_schema(
            {name: row.kind.schema for name, row in self.rows.items()},
            [name for name, row in self.rows.items() if row.promised],
            description,
        )
        self.write: Final[Callable[[RecordT], dict[str, Any]]] = _writer(self.rows)

    def writing_without(self, *names: str) -> Callable[[RecordT], dict[str, Any]]:
        """Returns what writes the document without the fields *names*."""
        return _writer({name: row for name, row in self.rows.items() if name not in names})

    @property
    def hollow(self) -> bool:
        """Whether nothing may be left of a record but ``{}``."""
        return all(row.shown is not Shown.ALWAYS for row in self.rows.values())

    def _check(self, left_out: frozenset[str]) -> frozenset[str]:
        """Returns the fields of the record that are shown. Raises :class:`PlanError`."""
        used: set[str] = set()
        for row in self.rows.values():
            match row.source:
                case Itself():
                    assert row.kind.document is not None
                    used |= row.kind.document.used
                case Made(_, paths):
                    used.update(self._field(path) for path in paths)
                case path if path:
                    used.add(self._field(path))
        fields = fields_of(self.record).keys()
        for names, what in (
            (set() if self._partial else fields - used - left_out, "nowhere goes"),
            (left_out - fields, "there is no"),
            (used & left_out, "shown and listed as left out is"),
        ):
            if names:
                raise PlanError(f"{self.record.__name__} as {self.name or 'JSON'}: {what} {', '.join(sorted(names))}")
        return frozenset(used)

    def _field(self, path: str) -> str:
        """Returns the field of the record that *path* begins with. Raises :class:`PlanError` if nothing is there."""
        type_at(self.record, path)
        return path.partition(".")[0]


def nested(document: Document[Any]) -> Kind:
    """Returns the kind of values that *document* writes."""
    return Kind(_schema_of(document), document.write, document, document.hollow)


def listed(document: Document[Any], **more: Any) -> Kind:
    """Returns the kind of lists of what *document* writes. *more* is said of the list in its schema."""

    def write(records: Iterable[Any]) -> list[dict[str, Any]]:
        one = document.write
        return [one(record) for record in records]

    return Kind({"type": "array", **more, "items": _schema_of(document)}, write, document)


def nested_itself(document: Document[Any]) -> Kind:
    """Returns the kind of values that *document*, which is being made, will write."""

    def write(record: Any) -> dict[str, Any]:
        return document.write(record)

    return Kind(_schema_of(document), write)


def object_schema(properties: Schema, required: list[str], description: str = "") -> Schema:
    """Returns the schema of an object that has these *properties*, those of them that are *required* always."""
    schema: Schema = {"type": "object", "properties": properties}
    if description:
        schema["description"] = description
    if required:
        schema["required"] = required
    return schema


def _schema_of(document: Document[Any]) -> Schema:
    return {"$ref": f"#/components/schemas/{document.name}"} if document.name else document.schema


def _writer(rows: Rows) -> Callable[[Any], dict[str, Any]]:
    """Returns the function that *rows* come down to.

    All fields of a record are fetched in one go. Those at the beginning that are always there become the document as
    they are, and only then those are written that look otherwise: most documents are made of little else.
    """
    shown = [(name, row) for name, row in rows.items() if row.shown is not Shown.APART]
    first = next((place for place, (_, row) in enumerate(shown) if row.shown is not Shown.ALWAYS), len(shown))
    names = tuple(name for name, _ in shown[:first])
    steps = tuple(_step(name, row) for name, row in shown)
    made = tuple((name, make, convert) for name, make, convert, _ in steps[:first] if make is not None)
    converted = tuple((name, convert) for name, make, convert, _ in steps[:first] if make is None and convert)
    steps = steps[first:]
    fetch = fetcher([_path(row, shown) for _, row in shown])

    def write(record: Any) -> dict[str, Any]:
        values = fetch(record)
        document = dict(zip(names, values, strict=False))
        for name, convert in converted:
            document[name] = convert(document[name])
        for name, make, convert_made in made:
            document[name] = make(record) if convert_made is None else convert_made(make(record))
        for (name, make_it, convert_it, keep), value in zip(steps, values[first:], strict=True):
            if make_it is not None:
                value = make_it(record)  # noqa: PLW2901
            if value or keep is True or (keep is None and value is not None):
                document[name] = value if convert_it is None else convert_it(value)
        return document

    return write


def _path(row: Row, shown: list[tuple[str, Row]]) -> str:
    """Returns what to fetch for *row*; anything that is there for one that is made otherwise."""
    if isinstance(row.source, str):
        return row.source
    return next((other.source for _, other in shown if isinstance(other.source, str)), "__class__")


Step = tuple[str, Callable[[Any], Any] | None, Callable[[Any], Any] | None, bool | None]
"""A name, what makes the value of a record, what writes it, and whether it is kept though empty; ``None``: if set."""


def _step(name: str, row: Row) -> Step:
    keep = {Shown.ALWAYS: True, Shown.IF_ANY: False, Shown.IF_SET: None}[row.shown]
    make: Callable[[Any], Any] | None = None
    if isinstance(row.source, Made):
        make = maker(row.source)
    elif isinstance(row.source, Itself):
        make = _same
    write = row.kind.write
    if row.kind.hollow and write is not None and keep is False:
        # Whether anything is left is known only when it is written.
        return name, _written(make or maker(Made(_same, (str(row.source),))), write), None, keep
    return name, make, write, keep


def _written(make: Callable[[Any], Any], write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make_written(record: Any) -> Any:
        value = make(record)
        return value if value is None else write(value)

    return make_written


def _same(value: Any) -> Any:
    return value
