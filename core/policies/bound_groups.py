"""Binds the members of a gang that require a domain of the topology to those of their task group. Rules:
docs/topology.md, preemption.md B.11."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kornel.core.domain.topology import Wish
from kornel.core.model.allocations import Allocation, Together, stand_together, together_of
from kornel.core.model.domains import Domain, DomainPath, Topology
from kornel.core.model.nodes import Node


class Bound(NamedTuple):
    """The members of one task group that require a domain, and the domains in which others of the group run or hold
    room.

    Each slice of ``slice_size`` members has to run in one domain of ``depth`` levels.
    """

    asks: tuple[Allocation, ...]
    level: str
    depth: int
    slice_size: int
    taken: Mapping[DomainPath, int]

    def admits(self, counts: Mapping[DomainPath, int]) -> bool:
        """Tells whether the members counted by domain in *counts*, together with those that are there already, need no
        more slices than the whole group."""
        size = self.slice_size
        paths = counts.keys() | self.taken.keys()
        slices = sum(-(-(counts.get(path, 0) + self.taken.get(path, 0)) // size) for path in paths)
        return slices <= -(-(len(self.asks) + sum(self.taken.values())) // size)

    def domain_of(self, node: Node) -> Domain | None:
        """Returns the domain of *node* at the level of the group, or ``None`` if it is in none."""
        return node.domains[self.depth - 1] if len(node.domains) >= self.depth else None

    def list_domains(self, topology: Topology) -> Sequence[Domain]:
        """Returns the possible domains. If others of a single slice are in a domain already, it is only that one."""
        if self.taken and self.slice_size >= len(self.asks) + sum(self.taken.values()):
            return [topology.domains[path] for path in self.taken]
        return list(topology.at_depth(self.depth))

    def divide_asks(self, topology: Topology) -> Iterator[tuple[Sequence[Allocation], Sequence[Domain]]]:
        """Yields the asks of each slice, those of slices that have begun first, with the domains in which they may
        be."""
        domains, left = self.list_domains(topology), list(self.asks)
        if self.slice_size < len(self.asks) + sum(self.taken.values()):
            for path in sorted(self.taken):
                number = -self.taken[path] % self.slice_size
                if left[:number]:
                    yield left[:number], [topology.domains[path]]
                    del left[:number]
        for start in range(0, len(left), self.slice_size):
            yield left[start : start + self.slice_size], domains


def bind_groups(topology: Topology | None, members: Sequence[Allocation]) -> list[Bound] | str:
    """Returns the groups among *members* that require a domain, or the name of a level that the topology lacks."""
    groups: dict[Together, list[Allocation]] = {}
    for ask in members:
        said = together_of(ask.spec)
        if said is not None and said[1].wish == Wish.REQUIRED:
            groups.setdefault(said, []).append(ask)
    found: list[Bound] = []
    for (_, request), asks in groups.items():
        depth = topology.depth_of(request.level) if topology is not None else None
        if depth is None:
            return request.level
        taken: dict[DomainPath, int] = {}
        for node in _nodes_of_others(asks):
            if len(node.domains) >= depth:
                path = node.domains[depth - 1].path
                taken[path] = taken.get(path, 0) + 1
        size = request.slice_size or len(asks) + sum(taken.values())
        found.append(Bound(tuple(asks), request.level, depth, size, taken))
    return found


def name_domains(topology: Topology | None, places: Mapping[Allocation, Node]) -> str:
    """Returns the domains in which *places* are for the members that require one, such as "rack a/r7"; empty: none
    does."""
    bound = bind_groups(topology, list(places))
    named = {
        domain.name: None
        for group in ([] if isinstance(bound, str) else bound)
        for domain in [group.domain_of(places[ask]) for ask in group.asks]
        if domain is not None
    }
    return ", ".join(named)


def find_misplaced(topology: Topology | None, members: Iterable[Allocation]) -> list[Allocation]:
    """Returns those of *members* that require a domain and hold room outside the domain of their group, because nodes
    have changed their domains."""
    found: list[Allocation] = []
    holding = [ask for ask in members if ask.reservation is not None]
    bound = bind_groups(topology, holding)
    for group in [] if isinstance(bound, str) else bound:
        there: dict[Domain | None, list[Allocation]] = {}
        for ask in group.asks:
            assert ask.reservation is not None, "looked at a moment ago"
            there.setdefault(group.domain_of(ask.reservation.node), []).append(ask)
        if None not in there and group.admits({d.path: len(asks) for d, asks in there.items() if d is not None}):
            continue
        # All members of a single slice belong to the domain with most of them; of several slices, the incomplete ones
        # are lost.
        home = max(there, key=lambda d: (0, 0) if d is None else (len(there[d]), len(d.nodes)))
        for domain, asks in there.items():
            whole = domain is home if group.slice_size >= len(group.asks) else len(asks) % group.slice_size == 0
            if domain is None or not whole:
                found += asks
    return found


def _nodes_of_others(asks: Sequence[Allocation]) -> Iterator[Node]:
    """Yields the nodes on which others of the task group of *asks* run or hold room."""
    first, chosen = asks[0], set(asks)
    for other in (*first.application.allocations.values(), *first.application.asks.values()):
        if other in chosen or not stand_together(other.spec, first.spec):
            continue
        if other.node is not None:
            yield other.node
        elif other.reservation is not None:
            yield other.reservation.node
