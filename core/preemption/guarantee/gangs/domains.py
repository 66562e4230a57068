"""Finds the domains of the topology for a gang that preempts as a unit, those with the fewest victims first
(preemption.md B.11).

Members that require a domain have to run in one domain together with their task group, or with their slice of it. A
*way* names a domain for each of them. Victims are then looked for within these domains, way by way, by
:mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.domains import Domain, DomainPath, Topology
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.policies.bound_groups import Bound

MOST_WAYS: Final = 256
"""The most ways that are kept, the most promising first."""
NODES_AT_ONCE: Final = 200
"""The number of nodes that are counted at once, which takes about two milliseconds."""


class Way(NamedTuple):
    """One choice of domains: the domain for each member that requires one. ``least`` is a lower bound of the number of
    victims, computed from sums of amounts, and ``room`` what nobody has claimed in the domains, by type."""

    domains: Mapping[Allocation, Domain]
    least: int
    room: Mapping[int, int]

    def name_domains(self) -> str:
        """Returns the names of the domains, each once."""
        return ", ".join(dict.fromkeys(domain.name for domain in self.domains.values()))


NO_DOMAINS: Final = Way({}, 0, {})


class _Count(NamedTuple):
    """One domain, with the number of members of a group that find room there now, and the number if nothing ran on its
    nodes."""

    domain: Domain
    room: tuple[int, ...]
    """The amounts on its nodes that others have not claimed, by type of the group."""
    fits: int
    most: int
    largest: Mapping[int, int]
    """The largest amount of a single allocation there, by type."""


class WayFinder:
    """Finds the ways to divide the groups of one gang over domains, a few nodes at a time."""

    def __init__(self, topology: Topology, groups: Sequence[Bound]) -> None:
        self._groups: Final = groups
        self._counts: list[list[_Count]] = [[] for _ in groups]
        self._left = [(at, domain) for at, group in enumerate(groups) for domain in group.list_domains(topology)]
        self._left.reverse()
        self.cut_short = False
        """Tells whether there are more ways than are listed."""

    def look_around(self) -> bool:
        """Counts the room of some further domains. Returns whether all are counted."""
        nodes = 0
        while self._left and nodes < NODES_AT_ONCE:
            at, domain = self._left.pop()
            nodes += len(domain.nodes)
            counted = _count_domain(domain, _largest_demand(self._groups[at].asks))
            if counted.most > 0:
                self._counts[at].append(counted)
        return not self._left

    def list_ways(self) -> list[Way]:
        """Returns the ways, ordered by the number of victims, and among equal numbers by the room, the most room
        first."""
        each = [
            sorted(self._ways_of(group, counts), key=_by_promise)
            for group, counts in zip(self._groups, self._counts, strict=True)
        ]
        most = MOST_WAYS if len(each) == 1 else max(2, int(MOST_WAYS ** (1 / len(each))))
        self.cut_short = any(len(ways) > most for ways in each) or any(
            group.slice_size < len(group.asks) for group in self._groups
        )
        joined = [_join_ways(ways) for ways in product(*(ways[:most] for ways in each))]
        return sorted(joined, key=lambda way: way.least)

    def _ways_of(self, group: Bound, counts: Sequence[_Count]) -> Iterator[tuple[Way, int]]:
        """Yields the ways for one group, each with the number of members without room."""
        seen: set[tuple[tuple[DomainPath, int], ...]] = set()
        demand = _largest_demand(group.asks)
        smallest = {t: min(ask.shape.amounts.get(t, 0) for ask in group.asks) for t, _ in demand}
        for shares in _list_shares(group, counts):
            key = tuple(sorted((counted.domain.path, number) for counted, number in shares))
            if key not in seen and group.admits(dict(key)):
                seen.add(key)
                yield self._make_way(group, shares, smallest)

    def _make_way(
        self, group: Bound, shares: Sequence[tuple[_Count, int]], smallest: Mapping[int, int]
    ) -> tuple[Way, int]:
        domains: dict[Allocation, Domain] = {}
        unclaimed = dict.fromkeys(smallest, 0)
        at = least = lacking = 0
        for counted, number in shares:
            for ask in group.asks[at : at + number]:
                domains[ask] = counted.domain
            at += number
            victims = 0
            for (t, amount), room in zip(smallest.items(), counted.room, strict=True):
                short = amount * number - room
                unclaimed[t] += room
                if short > 0:
                    largest = counted.largest.get(t)
                    victims = max(victims, -(-short // largest) if largest else 1)
            least += max(victims, int(counted.fits < number))
            lacking += max(0, number - counted.fits)
        return Way(domains, least, unclaimed), lacking


def _by_promise(way: tuple[Way, int]) -> tuple[int, int, list[DomainPath]]:
    return (way[0].least, way[1], sorted({domain.path for domain in way[0].domains.values()}))


def _join_ways(ways: Iterable[tuple[Way, int]]) -> Way:
    domains: dict[Allocation, Domain] = {}
    room: dict[int, int] = {}
    least = 0
    for way, _ in ways:
        domains.update(way.domains)
        least += way.least
        for t, amount in way.room.items():
            room[t] = room.get(t, 0) + amount
    return Way(domains, least, room)


def _list_shares(group: Bound, counts: Sequence[_Count]) -> Iterator[list[tuple[_Count, int]]]:
    """Yields divisions of the members of *group* over domains: all members in one domain, or slices in domains with
    room, and slices without room in each of the domains in turn."""
    number, size = len(group.asks), group.slice_size
    if not group.taken or len(group.taken) == 1:
        for counted in counts:
            if counted.most >= number:
                yield [(counted, number)]
    if size >= number + sum(group.taken.values()):
        return
    begun: dict[DomainPath, int] = {}
    left = number
    for path in sorted(group.taken):
        missing = min(-group.taken[path] % size, left)
        begun[path] = missing
        left -= missing
    roomy = sorted(counts, key=lambda counted: (-(counted.fits // size), -counted.fits, counted.domain.path))
    shares = [(counted, begun.get(counted.domain.path, 0)) for counted in roomy]
    for at, (counted, given) in enumerate(shares):
        whole = min(max(0, counted.fits - given) // size, left // size) * size
        shares[at] = counted, given + whole
        left -= whole
    for at in range(len(shares)):
        rest, divided = left, list(shares)
        for counted, given in (*shares[at:], *shares[:at]):
            more = min(rest, (counted.most - given) // size * size) if rest >= size else min(rest, counted.most - given)
            if more > 0:
                divided[roomy.index(counted)] = counted, given + more
                rest -= more
        if not rest:
            yield [(counted, given) for counted, given in divided if given]


def _largest_demand(asks: Sequence[Allocation]) -> Pairs:
    """Returns the demand of a member. If the members differ, it is an amount that is enough for any of them."""
    largest: dict[int, int] = {}
    for ask in asks:
        for t, amount in ask.shape.pairs:
            largest[t] = max(amount, largest.get(t, 0))
    return tuple(sorted(largest.items()))


def _count_domain(domain: Domain, demand: Pairs) -> _Count:
    room = [0] * len(demand)
    fits = most = 0
    shapes: set[Shape] = set()
    for node in domain.nodes:
        if not node.schedulable:
            continue
        beside, capacity = node.beside, node.capacity
        here = empty = None
        for i, (t, amount) in enumerate(demand):
            room[i] += max(0, beside[t])
            now, ever = max(0, beside[t]) // amount, capacity[t] // amount
            here = now if here is None else min(here, now)
            empty = ever if empty is None else min(empty, ever)
        fits += here or 0
        most += empty or 0
        shapes.update([allocation.shape for allocation in node.allocations.values()])
    largest: dict[int, int] = {}
    for shape in shapes:
        for t, amount in shape.pairs:
            largest[t] = max(amount, largest.get(t, 0))
    return _Count(domain, tuple(room), fits, most, largest)
