"""Interned resource types and demands: inside a partition amounts are lists and pairs of ints, not maps.

Each type name gets an index the first time it occurs in a partition. Amounts of nodes and queues are lists with that
index; the demand of an ask is a :class:`Shape`, one object for all asks with the same demand, so that "no node can hold
this" is found out and noted once.

A type is *offered* once a node, a configuration or running work names it, and then keeps its index. A type that only
pending asks name is not available anywhere. A few such types have an index as long as an ask waits for them; all others
share one index, of which no node has anything, so that asks cannot use up the indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.domain.names import LONGEST_NAME, length_flaw
from kornel.core.domain.resources import MAX_TYPES, NOTHING, Resources
from kornel.shared.readable_amounts import format_quantities

Vector = list[int]
"""Amounts by type index."""

Pairs = tuple[tuple[int, int], ...]
"""(type index, amount) for each type with an amount above 0, by index."""

ASKED_TYPES: Final = 16
"""The most types that have an index of their own while asks wait for them, although they are not offered."""

OTHER_TYPES: Final = "(types that no node has)"
"""The name of the index that is shared by all further types that are not offered."""

_DEMAND_BYTES: Final = 1_000
"""The estimated size of a demand without its types, and with what is found out about it."""

_TYPE_BYTES: Final = 250
"""The estimated size of a type in a demand, without its name."""

_NAMED_KEPT: Final = 4_096
"""The number of vectors whose amounts by name are cached, because nodes and their loads are often equal."""


class TooManyTypes(ValueError):
    """More than :data:`MAX_TYPES` resource types would be offered in one partition."""


class TypeTooLong(TooManyTypes):
    """A request names a resource type whose name is too long."""


ShapeKey = Resources | tuple[Resources, DeviceRequest]
"""The amounts of a demand, and its devices if it has any."""


class Shape:
    """A demand. Equal demands of one partition are the same object."""

    __slots__ = (
        "_lack", "_written", "amounts", "devices", "has_holder", "no_room", "others", "pairs", "resources", "size",
    )  # fmt: skip

    def __init__(
        self,
        resources: Resources,
        pairs: Pairs,
        others: tuple[str, ...] = (),
        devices: DeviceRequest | None = None,
    ) -> None:
        self.resources: Final = resources
        self.pairs: Final = pairs
        self.amounts: Final = dict(pairs)
        self.others: Final = others
        """The types in the demand that share the index of types that are not offered; one pair stands for them all."""
        self.devices: Final = devices
        """The devices in the demand; ``None``: none."""
        self.no_room = False
        """Tells whether a search of all nodes found no room, and no node that could hold this shape has gained room
        since."""
        self.has_holder = False
        """Tells whether an open node is known that could hold this shape if it were empty."""
        self._written = self._lack = ""
        self.size = estimate_size(self)
        """The bytes that the demand takes, estimated: the same in every process and on every machine."""

    @property
    def key(self) -> ShapeKey:
        """The key by which the partition finds the shape of the demand."""
        return self.resources if self.devices is None else (self.resources, self.devices)

    def write_amounts(self) -> str:
        """Returns the demand in units for people. The text is made once, because each attempt of an ask may need it."""
        written = self._written
        if not written:
            written = self._written = format_quantities(self.resources)
        return written

    def write_lack(self) -> str:
        """Returns the sentence for a demand that no node has room for, which all asks with it keep as one text."""
        if not self._lack:
            devices = "" if self.devices is None else f" with {self.devices.describe_request()}"
            self._lack = f"No node has enough room for {self.write_amounts()}{devices}"
        return self._lack

    def __repr__(self) -> str:
        return f"Shape({self.resources!r})"


def estimate_size(shape: Shape) -> int:
    """Returns about how many bytes *shape* takes. The names of its types occur in two texts as well."""
    names = "".join(shape.resources)
    if shape.devices is not None:
        names += "".join(shape.devices.types)
    return _DEMAND_BYTES + _TYPE_BYTES * len(shape.resources) + len(names) * (3 if names.isascii() else 16)


class KnownTypes(NamedTuple):
    """Resource types with their indexes: types that are only asked for, the index that several types share, and free
    indexes."""

    names: tuple[str, ...]
    indexes: Mapping[str, int]
    asked: tuple[int, ...]
    other: int | None
    free: tuple[int, ...]


class ResourceTypes:
    """The resource types of one partition and the shapes made of them."""

    __slots__ = (
        "_asked",
        "_free",
        "_indexes",
        "_is_wanted",
        "_named",
        "_on_growth",
        "_other",
        "_shapes",
        "kept_bytes",
        "made_bytes",
        "names",
    )

    def __init__(self, on_growth: Callable[[int], None], is_wanted: Callable[[int], bool] = lambda _: True) -> None:
        """Makes an empty set of types.

        *on_growth* is called with the new number of types before a new index is used anywhere. *is_wanted* tells
        whether an ask waits for the type of an index that is not offered.
        """
        self.names: list[str] = []
        """The names by index. The index of a type for which no ask waits any more may be given to another type."""
        self._indexes: dict[str, int] = {}
        self._asked: dict[int, list[Shape]] = {}
        """The indexes of types that are not offered, with the demands that name them."""
        self._other: int | None = None
        self._free: list[int] = []
        """The free indexes, which can be given to other types."""
        self._shapes: dict[ShapeKey, Shape] = {}
        self.made_bytes = 0
        """The estimated size of all demands that were made since demands were last forgotten. It does not matter
        whether they are known any more, because something else may still refer to them."""
        self.kept_bytes = 0
        """The estimated size of the demands that were kept then."""
        self._named: dict[tuple[int, ...], Resources] = {}
        self._on_growth = on_growth
        self._is_wanted = is_wanted

    def index_of(self, name: str) -> int:
        """Returns the index of *name*, which is offered from now on. Raises :class:`TooManyTypes`."""
        found = self._indexes.get(name)
        if found is None or found in self._asked:
            self.check([name])
        if found is None:
            found = self._indexes[name] = self._add_index(name)
        elif found in self._asked:
            del self._asked[found]
        return found

    def find_unoffered(self, names: Iterable[str]) -> list[str]:
        """Returns those of *names* that are not offered, each once."""
        known, asked = self._indexes, self._asked
        return [name for name in dict.fromkeys(names) if name not in known or known[name] in asked]

    @property
    def offered(self) -> int:
        """The number of offered types."""
        return len(self._indexes) - len(self._asked)

    def check(self, names: Iterable[str], *, leaving: int = 0) -> None:
        """Raises :class:`TooManyTypes` if not all of *names* can be offered. Changes nothing.

        *leaving*: the number of further types for which there has to be room afterwards.
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
        """Drops the demands in which one of *names* shares the common index, and returns them.

        It has to be called when *names* become offered, because asks that wait for such a demand need a new one.
        """
        if self._other is None:
            return []
        wanted = set(names)
        found = [shape for shape in self._shapes.values() if not wanted.isdisjoint(shape.others)]
        for shape in found:
            del self._shapes[shape.key]
        return found

    def give_back(self, is_in_use: Callable[[int], bool]) -> None:
        """Free the indexes of offered types that are not in use. No amounts of these types may be kept anywhere."""
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
            del self._shapes[shape.key]

    def keep_only(self, shapes: Iterable[Shape]) -> None:
        """Drop all demands except *shapes*."""
        shapes = list(shapes)
        self._shapes = {shape.key: shape for shape in shapes if self._shapes.get(shape.key) is shape}
        self.made_bytes, self.kept_bytes = 0, sum(shape.size for shape in shapes)
        for t, known in self._asked.items():
            self._asked[t] = [shape for shape in known if self._shapes.get(shape.key) is shape]

    def known_now(self) -> KnownTypes:
        """Returns the present state in plain values, as :meth:`adopt_types` needs it."""
        return KnownTypes(tuple(self.names), dict(self._indexes), tuple(self._asked), self._other, tuple(self._free))

    def adopt_types(self, types: KnownTypes) -> None:
        """Give every type of *types* the same index here. There must be no types here yet."""
        assert not self.names, "existing types keep their indexes"
        self.names += types.names
        self._indexes |= types.indexes
        self._asked = {t: [] for t in types.asked}
        self._other = types.other
        self._free = list(types.free)
        self._on_growth(len(self.names))

    def _add_index(self, name: str) -> int:
        """Returns a new index for *name*, or a free one."""
        if self._free:
            free = self._free.pop(0)
            self.names[free] = name
            return free
        self.names.append(name)
        self._on_growth(len(self.names))
        return len(self.names) - 1

    def _asked_for(self, name: str, kept: Container[int]) -> int | None:
        """Returns an index for *name*, which is not offered, other than those *kept*; ``None``: it has to use the
        shared one."""
        if len(self._asked) < ASKED_TYPES:
            found = self._add_index(name)
        else:
            free = next((t for t in self._asked if t not in kept and not self._is_wanted(t)), None)
            if free is None:
                return None
            found = free
            for shape in self._asked.pop(found):
                if self._shapes.get(shape.key) is shape:
                    del self._shapes[shape.key]
            del self._indexes[self.names[found]]
            self._named.clear()
            self.names[found] = name
        self._indexes[name] = found
        self._asked[found] = []
        return found

    def be_followed(self, on_growth: Callable[[int], None], is_wanted: Callable[[int], bool]) -> None:
        """Replace the functions that :meth:`__init__` was given, because other records follow the types now."""
        self._on_growth = on_growth
        self._is_wanted = is_wanted

    def stop_following(self) -> None:
        """Stop calling the function for new types, because the records that it updated are gone."""
        self._on_growth = _ignore_growth
        self._is_wanted = _want_none

    def known_index(self, name: str) -> int | None:
        """Returns the index of *name*; ``None``: it has none."""
        return self._indexes.get(name)

    def shape_of(self, resources: Resources) -> Shape:
        """Returns the shape of *resources*, amounts >= 0; types of 0 are never checked (scheduling.md S-14). Raises
        :class:`TooManyTypes`."""
        found = self._shapes.get(resources)
        if found is None:
            found = self._shapes[resources] = self._make_shape(resources)
        return found

    def shape_with(self, resources: Resources, devices: DeviceRequest | None) -> Shape:
        """Returns the shape of *resources* and *devices*."""
        if devices is None:
            return self.shape_of(resources)
        found = self._shapes.get((resources, devices))
        if found is None:
            found = self._shapes[resources, devices] = self._make_shape(resources, devices)
        return found

    def _make_shape(self, resources: Resources, devices: DeviceRequest | None = None) -> Shape:
        if len(resources) > MAX_TYPES:
            raise TooManyTypes(f"more than {MAX_TYPES} resource types")
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
        shape = Shape(resources, tuple(sorted(pairs)), tuple(others), devices)
        self.made_bytes += shape.size
        for t in asked:
            self._asked[t].append(shape)
        return shape

    def known_shapes(self) -> Mapping[ShapeKey, Shape]:
        """Returns all shapes by their keys."""
        return self._shapes

    def to_vector(self, resources: Resources | None) -> Vector:
        """Returns *resources* as a list over all types so far; an absent type is 0."""
        if resources is not None:
            for name in resources:
                self.index_of(name)
        result = [0] * len(self.names)
        for name, amount in (resources or {}).items():
            result[self._indexes[name]] = amount
        return result

    def to_sparse(self, resources: Mapping[str, int] | None) -> dict[int, int]:
        """Returns *resources* by type index without absent types, which mean something else than 0 in guaranteed and
        max."""
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


def holds_pairs(vector: Vector, pairs: Pairs) -> bool:
    """Tells whether *vector* has all of *pairs*."""
    for t, amount in pairs:
        if vector[t] < amount:
            return False
    return True


def book_amounts(vector: Vector, pairs: Pairs) -> None:
    """Add *pairs* to *vector* in place."""
    for t, amount in pairs:
        vector[t] += amount


def unbook_amounts(vector: Vector, pairs: Pairs) -> None:
    """Subtract *pairs* from *vector* in place."""
    for t, amount in pairs:
        vector[t] -= amount


def widen_vector(vector: Vector, width: int) -> None:
    """Append zeros in place until *vector* covers *width* types."""
    vector.extend([0] * (width - len(vector)))


def _ignore_growth(_: int) -> None:
    """Does nothing, because no amounts of these types are kept any more."""


def _want_none(_: int) -> bool:
    """Tells that no ask waits for these types any more."""
    return False


def _check_length(name: str) -> None:
    """Raises :class:`TypeTooLong` if *name* is too long for a resource type."""
    if len(name) > LONGEST_NAME:
        raise TypeTooLong(length_flaw("a resource type", len(name), LONGEST_NAME))
