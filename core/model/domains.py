"""Keeps the domains of a partition's topology, such as zones and racks, with the sums of what their nodes have.

A node is in one domain of each level as far as its attributes name one: if an attribute is missing, the node is in no
domain of that level or of levels further in. A domain is identified by its path, the attributes from the outermost
level to its own, so that rack ``r1`` of one zone is not rack ``r1`` of another.

The sums follow every change of a node (:meth:`kornel.core.model.nodes.Node.tell_domains`). How many asks fit into a
domain depends on single nodes, so it is counted on demand and kept until a node changes. Rules: docs/topology.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.domain.topology import TopologyLevel
from kornel.core.model.shapes import Pairs, Vector, widen_vector

if TYPE_CHECKING:
    from kornel.core.model.nodes import Node

DomainPath = tuple[str, ...]
"""The values of the attributes of a domain, the outermost first."""

_ROOMS_KEPT: Final = 64
"""The most demands for which a domain remembers how often they fit."""


class Counted(NamedTuple):
    """The amounts of a node that its domains count.

    free  what is free on it while it takes work, 0 for a type that is over-allocated
    held  the part of ``free`` that is held for asks that wait for it
    """

    capacity: Sequence[int]
    free: Sequence[int]
    held: Sequence[int]


NOTHING_COUNTED: Final = Counted((), (), ())


def count_amounts(node: Node) -> Counted:
    """Returns the amounts of *node* that its domains count now."""
    # Amounts that have not changed stay the same object, so that they need not be added up again.
    capacity = node.counted.capacity if node.counted.capacity == node.capacity else node.capacity.copy()
    if not node.schedulable:
        return Counted(capacity, (), ())
    free = [max(0, amount) for amount in node.free]
    if node.open is node.free:
        return Counted(capacity, free, ())
    open_ = (max(0, amount) for amount in node.open)
    return Counted(capacity, free, [whole - part for whole, part in zip(free, open_, strict=True)])


class Domain:
    """One domain of one level. Amounts are by type index: ``capacity`` of all of its nodes, ``free`` and ``held`` of
    those that take work. ``free`` - ``held`` is free and not held."""

    __slots__ = ("below", "capacity", "counted_rooms", "free", "held", "level", "nodes", "path")

    def __init__(self, level: TopologyLevel, path: DomainPath, width: int) -> None:
        self.level: Final = level
        self.path: Final = path
        self.capacity: Vector = [0] * width
        self.free: Vector = [0] * width
        self.held: Vector = [0] * width
        self.nodes: dict[Node, None] = {}
        """All of its nodes, including those of inner domains, in the order in which they came."""
        self.below: dict[DomainPath, Domain] = {}
        """The domains of the next level in it."""
        self.counted_rooms: dict[Pairs, int] = {}
        """The known numbers of times that a demand fits on its nodes."""

    @property
    def name(self) -> str:
        """The name for people: ``rack r7``, or with values of outer levels ``rack a/r7``."""
        return f"{self.level.name} {'/'.join(self.path)}"

    def exchange_amounts(self, before: Counted, now: Counted) -> None:
        """Counts *now* for a node for which it counted *before*."""
        for sums, less, more in zip((self.capacity, self.free, self.held), before, now, strict=True):
            if less is not more:
                for t, amount in enumerate(less):
                    sums[t] -= amount
                for t, amount in enumerate(more):
                    sums[t] += amount
        if self.counted_rooms:
            self.counted_rooms.clear()

    def count_room(self, pairs: Pairs) -> int:
        """Returns how many asks of *pairs* fit on its nodes now, beside what is held there."""
        for t, amount in pairs:
            if self.free[t] - self.held[t] < amount:
                return 0  # All its nodes together have too little, so the single ones need not be looked at.
        found = self.counted_rooms.get(pairs)
        if found is None:
            if len(self.counted_rooms) >= _ROOMS_KEPT:
                self.counted_rooms.clear()
            found = self.counted_rooms[pairs] = self._count_on_nodes(pairs)
        return found

    def _count_on_nodes(self, pairs: Pairs) -> int:
        return sum([count_on_node(node, pairs) for node in self.nodes])

    def __repr__(self) -> str:
        return f"Domain({self.name})"


def count_on_node(node: Node, pairs: Pairs, devices: DeviceRequest | None = None) -> int:
    """Returns how many asks of *pairs*, which are not empty, fit on *node* now, each with its *devices*. It is 0 if the
    node accepts no new allocations."""
    if not node.schedulable:
        return 0
    room = node.open
    t, amount = pairs[0]
    fits = room[t] // amount
    for t, amount in pairs[1:]:
        if fits <= 0:
            return 0
        fits = min(fits, room[t] // amount)
    if devices is not None and fits > 0:
        fits = min(fits, 0 if node.devices is None else node.devices.count_room(devices))
    return max(fits, 0)


class Topology:
    """The levels of a partition and all domains that have nodes."""

    __slots__ = ("domains", "levels")

    def __init__(self, levels: tuple[TopologyLevel, ...]) -> None:
        self.levels: Final = levels
        self.domains: dict[DomainPath, Domain] = {}
        """The domains by path, in the order in which they came. Those of a level have paths of the same length."""

    def depth_of(self, level: str) -> int | None:
        """Returns the length of the paths of the level called *level*; ``None``: there is no such level."""
        return next((depth for depth, known in enumerate(self.levels, 1) if known.name == level), None)

    def at_depth(self, depth: int, within: DomainPath = ()) -> Iterator[Domain]:
        """Yields the domains with paths of *depth* values that are within the domain *within*."""
        if not within:
            yield from (domain for path, domain in self.domains.items() if len(path) == depth)
            return
        outer = self.domains.get(within)
        level = [outer] if outer is not None else []
        for _ in range(depth - len(within)):
            level = [inner for domain in level for inner in domain.below.values()]
        yield from level

    def add_node(self, node: Node, width: int) -> None:
        """Adds *node* to the domains that its attributes name."""
        domains: list[Domain] = []
        for depth, path in enumerate(paths_of(self.levels, node.attributes), 1):
            domain = self.domains.get(path)
            if domain is None:
                domain = self.domains[path] = Domain(self.levels[depth - 1], path, width)
                if domains:
                    domains[-1].below[path] = domain
            domain.nodes[node] = None
            domains.append(domain)
        node.domains = tuple(domains)
        node.tell_domains()

    def remove_node(self, node: Node) -> None:
        """Removes *node* from its domains, and domains that become empty."""
        for domain in node.domains:
            domain.exchange_amounts(node.counted, NOTHING_COUNTED)
            del domain.nodes[node]
            if not domain.nodes:
                del self.domains[domain.path]
                outer = self.domains.get(domain.path[:-1])
                if outer is not None:
                    del outer.below[domain.path]
        node.domains = ()
        node.counted = NOTHING_COUNTED

    def widen_amounts(self, width: int) -> None:
        """Extends all amounts to *width* types."""
        for domain in self.domains.values():
            for vector in (domain.capacity, domain.free, domain.held):
                widen_vector(vector, width)


def paths_of(levels: tuple[TopologyLevel, ...], attributes: tuple[tuple[str, str], ...]) -> Iterator[DomainPath]:
    """Yields the paths of the domains of a node with *attributes*, the outermost first."""
    values = dict(attributes)
    path: DomainPath = ()
    for level in levels:
        value = values.get(level.attribute)
        if not value:
            return
        path = (*path, value)
        yield path
