"""Makes documents of JSON and their schemas, both from one table of their fields.

A row of a table states the name of a field, the source and the kind of its value, and when it is left out. Making a
document from a table raises :class:`PlanError` if a field of the record is neither used nor listed as left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kornel.core.telling.encoding.code import FunctionText
from kornel.core.telling.encoding.records import (
    Itself,
    Made,
    PlanError,
    Source,
    fields_of,
    type_at,
)

Schema = dict[str, Any]
RecordT = TypeVar("RecordT")
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values: its JSON Schema, and the function that writes a value; ``None``: the value is shown as it is.

    ``document`` is the document that writes nested records, and ``hollow`` tells whether it may write an empty ``{}``.
    """

    schema: Schema
    write: Callable[[Any], Any] | None = None
    document: Document[Any] | None = None
    hollow: bool = False


class Shown(Enum):
    """Says when a field is written."""

    ALWAYS = auto()
    IF_ANY = auto()
    """The field is written unless it is 0, false, empty or unset."""
    IF_SET = auto()
    """The field is written unless it is unset."""
    APART = auto()
    """The table only describes the field; the code that sends the document adds it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One field. ``promised`` tells whether the schema says that it is always there."""

    kind: Kind
    source: Source
    shown: Shown
    promised: bool


def always(kind: Kind, source: Source, *, promised: bool = True) -> Row:
    """Returns the row of a field that is always written."""
    return Row(kind, source, Shown.ALWAYS, promised)


def if_any(kind: Kind, source: Source, *, promised: bool = False) -> Row:
    """Returns the row of a field that is left out if it is 0, false, empty or unset."""
    return Row(kind, source, Shown.IF_ANY, promised)


def if_set(kind: Kind, source: Source) -> Row:
    """Returns the row of a field that is left out if it is unset."""
    return Row(kind, source, Shown.IF_SET, promised=False)


def apart(kind: Kind, *, promised: bool = False) -> Row:
    """Returns the row of a field that the sender of the document adds."""
    return Row(kind, "", Shown.APART, promised)


Rows = Mapping[str, Row]


class Named(Protocol):
    """Describes the documents of one kind. ``name`` may be empty."""

    @property
    def name(self) -> str:
        """The name of the schema."""

    @property
    def schema(self) -> Schema:
        """The schema."""


DOCUMENTS: Final[dict[str, Named]] = {}
"""All documents that have names."""


class Document(Generic[RecordT]):
    """Writes records of one class as JSON objects, and describes these.

    *name* is the name of the schema, to which other schemas refer; empty: it is part of theirs. *rows* are in the order
    in which the fields are written; if the document contains itself, *rows* is a function of the document. *left_out*
    are the fields of the record that are deliberately not shown; *partial* tells whether another document shows the
    rest. The result of ``write`` may be extended, but the values in it must not be changed, because they are shared.
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
        self.used: Final = self._check_fields(frozenset(left_out))
        self.schema: Final = object_schema(
            {name: row.kind.schema for name, row in self.rows.items()},
            [name for name, row in self.rows.items() if row.promised],
            description,
        )
        self.write: Final[Callable[[RecordT], dict[str, Any]]] = _make_writer(name or record.__name__, self.rows)
        if name:
            DOCUMENTS[name] = self

    def writing_without(self, *names: str) -> Callable[[RecordT], dict[str, Any]]:
        """Returns a function that writes the document without the fields *names*."""
        rows = {name: row for name, row in self.rows.items() if name not in names}
        return _make_writer(self.name or self.record.__name__, rows)

    @property
    def hollow(self) -> bool:
        """Tells whether a record may be written as an empty ``{}``."""
        return all(row.shown is not Shown.ALWAYS for row in self.rows.values())

    def _check_fields(self, left_out: frozenset[str]) -> frozenset[str]:
        """Returns the fields of the record that are shown. Raises :class:`PlanError`."""
        used: set[str] = set()
        for row in self.rows.values():
            match row.source:
                case Itself():
                    assert row.kind.document is not None
                    used |= row.kind.document.used
                case Made(_, paths):
                    used.update(self._first_field(path) for path in paths)
                case path if path:
                    used.add(self._first_field(path))
        fields = fields_of(self.record).keys()
        for names, what in (
            (set() if self._partial else fields - used - left_out, "nowhere goes"),
            (left_out - fields, "there is no"),
            (used & left_out, "listed as left out, but shown, is"),
        ):
            if names:
                raise PlanError(f"{self.record.__name__} as {self.name or 'JSON'}: {what} {', '.join(sorted(names))}")
        return frozenset(used)

    def _first_field(self, path: str) -> str:
        """Returns the field of the record that *path* begins with. Raises :class:`PlanError` if there is none."""
        type_at(self.record, path)
        return path.partition(".")[0]


class Described(NamedTuple):
    """The record of a document that is only described: all of its fields are added by the sender."""


def nested(document: Document[Any]) -> Kind:
    """Returns the kind of values that *document* writes."""
    return Kind(refer_to(document), document.write, document, document.hollow)


def listed(document: Document[Any], **more: Any) -> Kind:
    """Returns the kind of lists of values that *document* writes. *more* is added to the schema of the list."""

    def write(records: Iterable[Any]) -> list[dict[str, Any]]:
        one = document.write
        return [one(record) for record in records]

    return Kind({"type": "array", **more, "items": refer_to(document)}, write, document)


def nested_itself(document: Document[Any]) -> Kind:
    """Returns the kind of values that *document*, which is being made, will write."""

    def write(record: Any) -> dict[str, Any]:
        return document.write(record)

    return Kind(refer_to(document), write)


def object_schema(properties: Schema, required: list[str], description: str = "") -> Schema:
    """Returns the schema of an object with these *properties*, of which those in *required* are always there."""
    schema: Schema = {"type": "object", "properties": properties}
    if description:
        schema["description"] = description
    if required:
        schema["required"] = required
    return schema


def refer_to(document: Named) -> Schema:
    """Returns a reference to the schema of *document*, or, without a name, the schema itself."""
    return {"$ref": f"#/components/schemas/{document.name}"} if document.name else document.schema


def _make_writer(title: str, rows: Rows) -> Callable[[Any], dict[str, Any]]:
    """Returns the function that writes *rows*.

    The first fields that are always written are one literal; each of the others has a line of its own.
    """
    text = FunctionText(title)
    shown = [(name, row) for name, row in rows.items() if row.shown is not Shown.APART]
    first = next((place for place, (_, row) in enumerate(shown) if row.shown is not Shown.ALWAYS), len(shown))
    items = [f"{name!r}: {_write_value(text, row.kind, text.value_of(row.source))}" for name, row in shown[:first]]
    text.add(f"document = {{{', '.join(items)}}}")
    for name, row in shown[first:]:
        value = text.value_of(row.source)
        if row.shown is Shown.ALWAYS:
            text.add(f"document[{name!r}] = {_write_value(text, row.kind, value)}")
            continue
        test = f"(value := {value}) is not None" if row.shown is Shown.IF_SET else f"value := {value}"
        written = _write_value(text, row.kind, "value")
        if row.kind.hollow and row.shown is Shown.IF_ANY:
            # Only writing it shows whether anything is left.
            test, written = f"(value := {value}) is not None and (value := {written})", "value"
        text.add(f"if {test}: document[{name!r}] = {written}")
    text.add("return document")
    return text.make_function()


def _write_value(text: FunctionText, kind: Kind, value: str) -> str:
    return value if kind.write is None else text.call_of(kind.write, [value])


def copy_compact(encoded: bytes) -> bytes:
    """Returns a copy of *encoded* that takes no more memory than it needs.

    The encoder writes into a large buffer and shortens it at the end. The allocator cannot reuse the rest while many
    such texts are kept: a hundred thousand texts of 200 bytes occupy some 400 MB.
    """
    return bytes(memoryview(encoded))
