"""The rows of a table: they name the classes, constants and functions that may occur in a snapshot, and the fields of
each class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple, TypeVar

V = TypeVar("V")

NO_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType({})
NOTHING_DERIVED: Final[Mapping[str, Callable[[Any], object]]] = MappingProxyType({})


class Kept(NamedTuple):
    """The row of one class: each field of the class is in exactly one of the columns.

    stored      fields that are written, in any order
    derived     fields that a function of the object computes again once everything has been read
    wiring      fields that the maker of the object sets, because they only refer to its environment
    under_way   fields with work that continues from slice to slice and cannot be written: a snapshot is taken while
                they are ``None``
    defaults    values of stored fields that files of earlier versions lack
    name        the name of the class in files; empty: its own. A class that is renamed keeps it
    """

    cls: type
    stored: str = ""
    derived: Mapping[str, Callable[[Any], object]] = NOTHING_DERIVED
    wiring: str = ""
    under_way: str = ""
    defaults: Mapping[str, object] = NO_DEFAULTS
    name: str = ""

    @property
    def known_as(self) -> str:
        """The name of the class in files."""
        return self.name or self.cls.__name__

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are written."""
        return tuple(self.stored.split())

    @property
    def is_value(self) -> bool:
        """Tells whether its objects never change, so that they have to be made together with everything to which they
        refer."""
        if issubclass(self.cls, (tuple, Fraction)):
            return True
        return dataclasses.is_dataclass(self.cls) and self.cls.__dataclass_params__.frozen  # type: ignore[attr-defined]

    def name_fields(self) -> frozenset[str]:
        """Returns all fields that the row names."""
        return frozenset((*self.fields, *self.derived, *self.wiring.split(), *self.under_way.split()))


def declared_fields(found: object) -> frozenset[str]:
    """Returns the names of all fields of *found*: slots, attributes, or the fields of a tuple."""
    cls = type(found)
    if isinstance(found, tuple):
        return frozenset(getattr(cls, "_fields", ()))
    slots = [name for kind in cls.__mro__ for name in _slots_of(kind)]
    return frozenset(slots).union(getattr(found, "__dict__", {})) - {"__dict__", "__weakref__"}


def _slots_of(cls: type) -> Iterable[str]:
    slots: str | Iterable[str] = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


class Schema:
    """All rows, and all other things to which a snapshot may refer by name.

    constants  objects that are compared by identity: sentinels and shared empty containers
    functions  functions that are called later: by timers, by answers of the shim, for keys of an order
    members    enumerations
    maps       dict and its subclasses, whose objects are made empty and then filled
    """

    def __init__(
        self,
        version: int,
        rows: Iterable[Kept],
        members: Iterable[type[Enum]],
        maps: Iterable[type[dict[Any, Any]]],
        constants: Mapping[str, object],
        functions: Mapping[str, object],
    ) -> None:
        self.version: Final = version
        self.rows: Final = {row.cls: row for row in rows}
        self.members: Final = frozenset(members)
        self.maps: Final = frozenset(maps)
        self.constants: Final = {**constants, **functions}

    @cached_property
    def rows_by_name(self) -> dict[str, Kept]:
        """The rows by the name of the class in files."""
        return _index_once((row.known_as, row) for row in self.rows.values())

    @cached_property
    def members_by_name(self) -> dict[str, type[Enum]]:
        """The enumerations by name."""
        return _index_once((found.__name__, found) for found in self.members)

    @cached_property
    def maps_by_name(self) -> dict[str, type[dict[Any, Any]]]:
        """The classes of maps by name."""
        return _index_once((found.__name__, found) for found in self.maps)

    @cached_property
    def constant_names(self) -> dict[int, str]:
        """The names of the constants and functions by the identity of each."""
        return {id(found): name for name, found in self.constants.items()}


def _index_once(pairs: Iterable[tuple[str, V]]) -> dict[str, V]:
    found: dict[str, V] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"two classes are called {name} in snapshots; give one of them another name")
        found[name] = value
    return found


def named_of(module: ModuleType, *names: str) -> dict[str, object]:
    """Returns the functions or constants called *names* of *module*, by the names that they have in snapshots."""
    short = module.__name__.removeprefix("kornel.core.")
    return {f"{short}.{name}": getattr(module, name) for name in names}
