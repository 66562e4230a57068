"""Interned resource types and demands: inside a partition amounts are lists and pairs of ints, not maps.

Each type name gets an index the first time a partition meets it. What a node or queue holds is a list indexed by it;
what an ask demands is a :class:`Shape`, one object for all asks that demand the same, so that "no node can hold this"
is found out once and remembered once.

A type is *offered* once a node, a configuration or something that runs names it: it keeps its index. What pending asks
alone name they cannot get. A few such types are known by name as long as an ask waits for them; all others share one
index, of which no node has anything, so that nobody's asks use up what there is of indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, NamedTuple

from kornel.core.domain.names import LONGEST_NAME, length_flaw
from kornel.core.domain.readable_amounts import format_quantities
from kornel.core.domain.resources import MAX_TYPES, NOTHING, Resources

Vector = list[int]
"""Amounts by type index."""

Pairs = tuple[tuple[int, int], ...]
"""(type index, amount) for each type with an amount above 0, by index."""

ASKED_TYPES: Final = 16
"""Types that nobody offers and that are known by name all the same, while asks wait for them."""

OTHER_TYPES: Final = "(types that no node has)"
"""The index that stands for all types that nobody offers."""

_NAMED_KEPT: Final = 4_096
"""Vectors whose names are remembered: nodes are alike, and so is what is on them."""


class TooManyTypes(ValueError):
    """More than :data:`MAX_TYPES` resource types would be offered in one partition."""


class TypeTooLong(TooManyTypes):
    """A request names a resource type that is longer than any."""


class Shape:
    """A demand: equal demands of one partition are the same object."""

    __slots__ = ("_written", "has_holder", "no_room", "others", "pairs", "resources")

    def __init__(self, resources: Resources, pairs: Pairs, others: tuple[str, ...] = ()) -> None:
        self.resources: Final = resources
        self.pairs: Final = pairs
        self.others: Final = others
        """Types that nobody offers and that are not known by name: one pair stands for them all."""
        self.no_room = False
        """A search of all nodes found no room, and no node that could hold this shape has gained room since."""
        self.has_holder = False
        """An open node is known that could hold this shape if it were empty."""
        self._written = ""

    def write_amounts(self) -> str:
        """Returns the demand in the units of people. It is written once, because each try of an ask may want it."""
        written = self._written
        if not written:
            written = self._written = format_quantities(self.resources)
        return written

    def __repr__(self) -> str:
        return f"Shape({self.resources!r})"


class KnownTypes(NamedTuple):
    """Resource types with their indexes, those that are only asked for, the shared index, and those of no type."""

    names: tuple[str, ...]
    indexes: Mapping[str, int]
    asked: tuple[int, ...]
    other: int | None
    free: tuple[int, ...]


class ResourceTypes:
    """The resource types of one partition and the shapes made of them."""

    __slots__ = ("_asked", "_free", "_indexes", "_is_wanted", "_named", "_on_growth", "_other", "_shapes", "names")

    def __init__(self, on_growth: Callable[[int], None], is_wanted: Callable[[int], bool] = lambda _: True) -> None:
        """Makes an empty set of types.

        *on_growth* is called with the new number of types before a new index is used anywhere. *is_wanted*: whether
        some ask waits for the type of an index that nobody offers.
        """
        self.names: list[str] = []
        """The names by index. A type that nobody waits for any more may give its index to another one."""
        self._indexes: dict[str, int] = {}
        self._asked: dict[int, list[Shape]] = {}
        """Indexes of types that nobody offers, with the demands that name them."""
        self._other: int | None = None
        self._free: list[int] = []
        """Indexes that no type has any more, to be given again."""
        self._shapes: dict[Resources, Shape] = {}
        self._named: dict[tuple[int, ...], Resources] = {}
        self._on_growth = on_growth
        self._is_wanted = is_wanted

    def index_of(self, name: str) -> int:
        """Returns the index of *name*, which is offered from here on. Raises :class:`TooManyTypes`."""
        found = self._indexes.get(name)
        if found is None or found in self._asked:
            self.check([name])
        if found is None:
            found = self._indexes[name] = self._add_index(name)
        elif found in self._asked:
            del self._asked[found]
        return found

    def find_unoffered(self, names: Iterable[str]) -> list[str]:
        """Returns the names, each once, that nobody offers."""
        known, asked = self._indexes, self._asked
        return [name for name in dict.fromkeys(names) if name not in known or known[name] in asked]

    @property
    def offered(self) -> int:
        """The number of types offered."""
        return len(self._indexes) - len(self._asked)

    def check(self, names: Iterable[str], *, leaving: int = 0) -> None:
        """Raises :class:`TooManyTypes` if not all of *names* can be offered. Changes nothing.

        *leaving*: so many others have to be possible afterwards.
        """
        new = self.find_unoffered(names)
        for name in new:
            _check_length(name)
        left = max(0, MAX_TYPES - leaving - self.offered)
        if len(new) > left:
            raise TooManyTypes(
                f"more than {MAX_TYPES} resource types in one partition: {len(new)} are new, {left} may be"
            )

    def forget_shapes_with(self, names: Iterable[str]) -> list[Shape]:
        """Forgets the demands in which one of *names* is among those without an index of their own, and returns them.

        To be called when *names* have become offered: whoever waits for such a demand needs another one.
        """
        if self._other is None:
            return []
        wanted = set(names)
        found = [shape for shape in self._shapes.values() if not wanted.isdisjoint(shape.others)]
        for shape in found:
            del self._shapes[shape.resources]
        return found

    def give_back(self, is_in_use: Callable[[int], bool]) -> None:
        """Have the indexes of offered types that are not in use given to others. No amount of them may be kept."""
        offered = [t for t in self._indexes.values() if t not in self._asked]
        unused = {t for t in offered if not is_in_use(t)}
        if not unused:
            return
        for t in unused:
            del self._indexes[self.names[t]]
            self.names[t] = ""
        self._free += sorted(unused)
        self._named.clear()
        for shape in [shape for shape in self._shapes.values() if any(t in unused for t, _ in shape.pairs)]:
            del self._shapes[shape.resources]

    def keep_only(self, shapes: Iterable[Shape]) -> None:
        """Forget all demands but *shapes*."""
        self._shapes = {shape.resources: shape for shape in shapes if self._shapes.get(shape.resources) is shape}
        for t, known in self._asked.items():
            self._asked[t] = [shape for shape in known if self._shapes.get(shape.resources) is shape]

    def known_now(self) -> KnownTypes:
        """Returns the state that :meth:`adopt_types` needs, as plain values of this moment."""
        return KnownTypes(tuple(self.names), dict(self._indexes), tuple(self._asked), self._other, tuple(self._free))

    def adopt_types(self, types: KnownTypes) -> None:
        """Give every type of *types* the same index here. Nothing may be known here yet."""
        assert not self.names, "types that are known keep their indexes"
        self.names += types.names
        self._indexes |= types.indexes
        self._asked = {t: [] for t in types.asked}
        self._other = types.other
        self._free = list(types.free)
        self._on_growth(len(self.names))

    def _add_index(self, name: str) -> int:
        """Returns an index for *name*: one that was given back, or a new one."""
        if self._free:
            free = self._free.pop(0)
            self.names[free] = name
            return free
        self.names.append(name)
        self._on_growth(len(self.names))
        return len(self.names) - 1

    def _asked_for(self, name: str, kept: Container[int]) -> int | None:
        """Returns an index for *name*, which nobody offers, other than those *kept*; ``None``: it has to share one."""
        if len(self._asked) < ASKED_TYPES:
            found = self._add_index(name)
        else:
            free = next((t for t in self._asked if t not in kept and not self._is_wanted(t)), None)
            if free is None:
                return None
            found = free
            for shape in self._asked.pop(found):
                if self._shapes.get(shape.resources) is shape:
                    del self._shapes[shape.resources]
            del self._indexes[self.names[found]]
            self._named.clear()
            self.names[found] = name
        self._indexes[name] = found
        self._asked[found] = []
        return found

    def stop_following(self) -> None:
        """Tell nobody of new types any more: what followed them is gone."""
        self._on_growth = _ignore_growth
        self._is_wanted = _want_none

    def known_index(self, name: str) -> int | None:
        """Returns the index of *name* if this partition ever met it."""
        return self._indexes.get(name)

    def shape_of(self, resources: Resources) -> Shape:
        """Returns the shape of *resources*, amounts >= 0; types with 0 take no part in any check (scheduling.md
        S-14)."""
        found = self._shapes.get(resources)
        if found is None:
            found = self._shapes[resources] = self._make_shape(resources)
        return found

    def _make_shape(self, resources: Resources) -> Shape:
        pairs: list[tuple[int, int]] = []
        others: list[str] = []
        asked: list[int] = []
        for name, amount in resources.items():
            if not amount:
                continue
            t = self._indexes.get(name)
            if t is None:
                _check_length(name)
                t = self._asked_for(name, asked)
            if t is None:
                others.append(name)
                continue
            pairs.append((t, amount))
            if t in self._asked:
                asked.append(t)
        if others:
            if self._other is None:
                self._other = self._add_index(OTHER_TYPES)
            pairs.append((self._other, 1))
        shape = Shape(resources, tuple(sorted(pairs)), tuple(others))
        for t in asked:
            self._asked[t].append(shape)
        return shape

    def known_shapes(self) -> Mapping[Resources, Shape]:
        """Returns all shapes that are known."""
        return self._shapes

    def to_vector(self, resources: Resources | None) -> Vector:
        """Returns *resources* as a list over all types known so far; absent is 0."""
        if resources is not None:
            for name in resources:
                self.index_of(name)
        result = [0] * len(self.names)
        for name, amount in (resources or {}).items():
            result[self._indexes[name]] = amount
        return result

    def to_sparse(self, resources: Mapping[str, int] | None) -> dict[int, int]:
        """Returns *resources* by type index, absent types staying absent (guaranteed and max need the difference)."""
        return {self.index_of(name): amount for name, amount in (resources or {}).items()}

    def to_resources(self, amounts: Vector | Mapping[int, int]) -> Resources:
        """Returns amounts by name; zeros of a vector are left out, those of a sparse map are kept."""
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


def book_amounts(vector: Vector, pairs: Pairs) -> None:
    """Add *pairs* to *vector* in place."""
    for t, amount in pairs:
        vector[t] += amount


def unbook_amounts(vector: Vector, pairs: Pairs) -> None:
    """Take *pairs* off *vector* in place."""
    for t, amount in pairs:
        vector[t] -= amount


def widen_vector(vector: Vector, width: int) -> None:
    """Append zeros in place until *vector* covers *width* types."""
    vector.extend([0] * (width - len(vector)))


def _ignore_growth(_: int) -> None:
    """Does nothing, since nobody keeps amounts by these types any more."""


def _want_none(_: int) -> bool:
    """Tells that nobody waits for these types any more."""
    return False


def _check_length(name: str) -> None:
    """Raises :class:`TypeTooLong` for a *name* that nobody may give a resource type."""
    if len(name) > LONGEST_NAME:
        raise TypeTooLong(length_flaw("a resource type", len(name), LONGEST_NAME))
