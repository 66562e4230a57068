"""Sorts lists in an order that the client names (rest.md 12.3).

The values to sort by are read from the JSON of the items, so that clients sort by what they see. A field that an item
leaves out counts as 0, false or empty, which is what its absence means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kornel.core.rest.http.errors import RestError
from kornel.core.rest.serving.rows import Parameter
from kornel.core.telling.encoding.documents import DOCUMENTS, Document, Schema
from kornel.core.telling.encoding.values import DURATION
from kornel.core.telling.encoding.yunikorn.applications import APPLICATION
from kornel.core.telling.encoding.yunikorn.nodes import NODE
from kornel.core.telling.encoding.yunikorn.queues import QUEUE
from kornel.core.telling.encoding.yunikorn.usage import GROUP, USER
from kornel.shared.quantities import parse_duration

Value = int | str

_MAP: Final = ".NAME"
"""The part of a path that stands for any name in a map."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The way to compare the values of a field: *read* converts a value, and *absent* stands for a missing one."""

    read: Callable[[Any], Value]
    absent: Value


_NUMBER: Final = _Kind(int, 0)
_TEXT: Final = _Kind(str, "")
_PERIOD: Final = _Kind(parse_duration, 0)
_TIME: Final = _Kind(lambda text: text.removesuffix("Z"), "")
"""Times in RFC 3339 and UTC: without the last letter, a whole second sorts before its fractions."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order of one kind of list. ``text``: how the client names it."""

    text: str
    path: tuple[str, ...]
    kind: _Kind
    descending: bool

    def value_of(self, document: Mapping[str, Any]) -> Value:
        """Returns the value by which *document* is sorted."""
        found: Any = document
        for name in self.path:
            found = found.get(name)
            if found is None:
                return self.kind.absent
        return self.kind.read(found)

    def write_cursor(self, value: Value, key: str) -> str:
        """Returns the cursor of the items that come after the one with this *value* and *key*."""
        return orjson.dumps([self.text, value, key]).decode()

    def read_cursor(self, cursor: str) -> tuple[Value, str]:
        """Returns the value and the key in *cursor*. Raises 400 for one of another order."""
        try:
            text, value, key = orjson.loads(cursor)
        except (ValueError, TypeError):
            text = value = key = None
        if text != self.text or type(value) is not type(self.kind.absent) or not isinstance(key, str):
            raise RestError(400, f'the cursor is not one of a list with sort={self.text}; begin without "cursor"')
        return value, key

    def comes_after(self, place: tuple[Value, str], value: Any, key: str) -> bool:
        """Tells whether the item with *value* and *key* comes after *place*. Items with equal values are in the order
        of their keys."""
        if value == place[0]:
            return key > place[1]
        return bool(value < place[0]) if self.descending else bool(value > place[0])


class Orders:
    """The orders of a list whose items *document* writes."""

    def __init__(self, document: Document[Any]) -> None:
        self._sortable_fields = dict(sorted(_sortable_fields("", document.schema)))
        names = "|".join(
            re.escape(name.removesuffix(_MAP)) + (r"\..+" if name.endswith(_MAP) else "")
            for name in self._sortable_fields
        )
        self.parameter: Final = Parameter(
            "sort",
            "Extension: sort by this field, with - in front of it the greatest first:"
            f" {', '.join(self._sortable_fields)}.",
            {"type": "string", "pattern": f"^-?({names})$"},
        )

    def find_order(self, query: Mapping[str, str]) -> Order | None:
        """Returns the order that *query* names; ``None``: it names none. Raises 400 for an unknown order."""
        text = query.get("sort", "")
        if not text:
            return None
        name = text.removeprefix("-")
        descending = name != text
        for field, kind in self._sortable_fields.items():
            if name == field:
                return Order(text, tuple(name.split(".")), kind, descending)
            stem = field.removesuffix(_MAP) + "."
            if field.endswith(_MAP) and name.startswith(stem) and name != stem:
                return Order(text, (*stem[:-1].split("."), name.removeprefix(stem)), kind, descending)
        raise RestError(400, f'cannot sort by "{name}", wanted is one of {", ".join(self._sortable_fields)}')


def _sortable_fields(path: str, schema: Schema) -> Iterator[tuple[str, _Kind]]:
    """Yields the fields in *schema*, which is found at *path*, by which items can be sorted: single values, not
    lists."""
    if "$ref" in schema:
        schema = DOCUMENTS[schema["$ref"].rpartition("/")[2]].schema
    kind = schema.get("type", "string")
    if "properties" in schema:
        for name, below in schema["properties"].items():
            yield from _sortable_fields(f"{path}.{name}" if path else name, below)
    elif kind == "object":
        values = schema.get("additionalProperties", {})
        if values.get("type") in ("integer", "string"):
            yield path + _MAP, _kind_of(values)
    elif kind != "array":
        yield path, _kind_of(schema)


def _kind_of(schema: Schema) -> _Kind:
    if schema == DURATION.schema:
        return _PERIOD
    if schema.get("format") == "date-time":
        return _TIME
    return _NUMBER if schema.get("type") in ("integer", "boolean") else _TEXT


APPLICATIONS: Final = Orders(APPLICATION)
GROUPS: Final = Orders(GROUP)
NODES: Final = Orders(NODE)
QUEUES: Final = Orders(QUEUE)
USERS: Final = Orders(USER)
