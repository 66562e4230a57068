"""Interned resource types and demands: inside a partition amounts are lists and pairs of ints, not maps.

Each type name gets an index the first time a partition meets it. What a node or queue holds is a list indexed by it;
what an ask demands is a :class:`Shape`, one object for all asks that demand the same, so that "no node can hold this"
is found out once and remembered once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from core.domain.resources import NOTHING, Resources

Vector = list[int]
"""Amounts by type index."""

Pairs = tuple[tuple[int, int], ...]
"""(type index, amount) for each type with an amount above 0, by index."""

MAX_TYPES: Final = 1024
"""More types than any cluster has; a bound against a shim that invents one per ask."""

_NAMED_KEPT: Final = 4_096
"""Vectors whose names are remembered: nodes are alike, and so is what is on them."""


class TooManyTypes(ValueError):
    """A request would exceed :data:`MAX_TYPES` resource types in one partition."""


class Shape:
    """A demand: equal demands of one partition are the same object."""

    __slots__ = ("no_room", "pairs", "resources")

    def __init__(self, resources: Resources, pairs: Pairs) -> None:
        self.resources: Final = resources
        self.pairs: Final = pairs
        self.no_room = False
        """A search of all nodes found no room, and no node that could hold this shape has gained room since."""

    def __repr__(self) -> str:
        return f"Shape({self.resources!r})"


class ResourceTypes:
    """The resource types of one partition and the shapes made of them."""

    __slots__ = ("_indexes", "_named", "_on_growth", "_shapes", "names")

    def __init__(self, on_growth: Callable[[int], None]) -> None:
        """*on_growth* is called with the new number of types before a new index is used anywhere."""
        self.names: list[str] = []
        self._indexes: dict[str, int] = {}
        self._shapes: dict[Resources, Shape] = {}
        self._named: dict[tuple[int, ...], Resources] = {}
        self._on_growth = on_growth

    def index(self, name: str) -> int:
        """The index of *name*, given out on first sight. Raises :class:`TooManyTypes`."""
        found = self._indexes.get(name)
        if found is None:
            if len(self.names) >= MAX_TYPES:
                raise TooManyTypes(f"more than {MAX_TYPES} resource types in one partition")
            found = self._indexes[name] = len(self.names)
            self.names.append(name)
            self._on_growth(len(self.names))
        return found

    def known(self, name: str) -> int | None:
        """The index of *name* if this partition ever met it."""
        return self._indexes.get(name)

    def shape(self, resources: Resources) -> Shape:
        """The shape of *resources*, amounts >= 0; types with 0 take no part in any check (scheduling.md S-14)."""
        found = self._shapes.get(resources)
        if found is None:
            pairs = tuple(sorted((self.index(name), amount) for name, amount in resources.items() if amount))
            found = self._shapes[resources] = Shape(resources, pairs)
        return found

    def shapes(self) -> Mapping[Resources, Shape]:
        """All shapes ever met."""
        return self._shapes

    def vector(self, resources: Resources | None) -> Vector:
        """*resources* as a list over all types known so far; absent is 0."""
        if resources is not None:
            for name in resources:
                self.index(name)
        result = [0] * len(self.names)
        for name, amount in (resources or {}).items():
            result[self._indexes[name]] = amount
        return result

    def sparse(self, resources: Mapping[str, int] | None) -> dict[int, int]:
        """*resources* by type index, absent types staying absent (guaranteed and max need the difference)."""
        return {self.index(name): amount for name, amount in (resources or {}).items()}

    def resources(self, amounts: Vector | Mapping[int, int]) -> Resources:
        """Back to names; zeros of a vector are left out, those of a sparse map are kept."""
        if isinstance(amounts, list):
            if not any(amounts):
                return NOTHING
            key = tuple(amounts)
            found = self._named.get(key)
            if found is None:
                if len(self._named) >= _NAMED_KEPT:
                    self._named.clear()
                found = Resources({name: amount for name, amount in zip(self.names, amounts, strict=False) if amount})
                self._named[key] = found
            return found
        return Resources({self.names[t]: amount for t, amount in amounts.items()})


def widen(vector: Vector, width: int) -> None:
    """Append zeros in place until *vector* covers *width* types."""
    vector.extend([0] * (width - len(vector)))
