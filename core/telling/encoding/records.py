"""Finds the fields of records and their types, for the encoders.

Records are named tuples and dataclasses. A *source* states from what a field of a message or document is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints


class PlanError(TypeError):
    """A table does not state for every field where it goes or from what it is made."""


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """Says that *make* turns the values of these fields of a record, in this order, into one value."""

    make: Callable[..., Any]
    fields: tuple[str, ...]


def made(make: Callable[..., Any], *fields: str) -> Made:
    """Returns the source of a value that *make* makes from the *fields* of a record."""
    return Made(make, fields)


@dataclasses.dataclass(frozen=True, slots=True)
class Itself:
    """Says that a nested message or document is made from the same record."""


ITSELF: Final = Itself()

Source = str | Made | Itself
"""The source of a field: the name of a field of the record, with a dot before the name of a field of a nested
record."""


def fields_of(record: type) -> Mapping[str, Any]:
    """Returns the fields of a class of records and their types."""
    return _read_fields(record)


@cache
def _read_fields(record: type) -> Mapping[str, Any]:
    hints = get_type_hints(record)
    if dataclasses.is_dataclass(record):
        return {field.name: hints[field.name] for field in dataclasses.fields(record)}
    return {name: hints[name] for name in getattr(record, "_fields", ())}


def find_path(record: type, name: str) -> str | None:
    """Returns where a record has the field *name*: in itself, or in its ``spec``, which is what a shim has sent.
    ``None``: it does not have the field."""
    fields = fields_of(record)
    if name in fields:
        return name
    return f"spec.{name}" if "spec" in fields and name in fields_of(fields["spec"]) else None


def type_at(record: type, path: str) -> Any:
    """Returns the type of the value at *path* in a record. Raises :class:`PlanError` if there is none."""
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
