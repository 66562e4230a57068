"""The encoders' knowledge of records: their fields, and the types of these.

Records are named tuples and dataclasses. A *source* says what a field of a message or document is made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints


class PlanError(TypeError):
    """A table does not say for every field where it goes or what it is made of."""


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """Says that *make* turns the values of these fields of a record, in this order, into one value."""

    make: Callable[..., Any]
    fields: tuple[str, ...]


def made(make: Callable[..., Any], *fields: str) -> Made:
    """Returns the source of a value that *make* makes of the *fields* of a record."""
    return Made(make, fields)


@dataclasses.dataclass(frozen=True, slots=True)
class Itself:
    """Says that a message or document within another one is made of the same record."""


ITSELF: Final = Itself()

Source = str | Made | Itself
"""The origin of a field: a field of the record, which may lead on with a dot to one of a record in it."""


def fields_of(record: type) -> Mapping[str, Any]:
    """Returns the fields of a class of records and their types."""
    return _read_fields(record)


@cache
def _read_fields(record: type) -> Mapping[str, Any]:
    hints = get_type_hints(record)
    if dataclasses.is_dataclass(record):
        return {field.name: hints[field.name] for field in dataclasses.fields(record)}
    return {name: hints[name] for name in getattr(record, "_fields", ())}


def type_at(record: type, path: str) -> Any:
    """Returns the type of what is at *path* in a record. Raises :class:`PlanError` if nothing is."""
    kind: Any = record
    for name in path.split("."):
        within = without_none(kind)[0]
        found = fields_of(within).get(name)
        if found is None:
            found = getattr(within, name, None)
            if not isinstance(found, property) or found.fget is None:
                raise PlanError(f"{record.__name__}: there is no {path}")
            found = get_type_hints(found.fget)["return"]
        kind = found
    return kind


def without_none(kind: Any) -> tuple[Any, bool]:
    """Returns *kind* without ``None`` as a choice, and whether that was one."""
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    return (choices[0], True) if len(choices) == 1 else (kind, False)
