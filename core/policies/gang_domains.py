"""Chooses nodes for all members of a gang at once if some of its task groups ask for a topology.

The task groups that ask for a topology choose their domains (:mod:`.topology_choice`) one after the other, and their
members then find nodes there as the members of any gang do. The other members of the gang come last, on any node.
Rules: docs/topology.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice, product
from typing import Final

from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.model.allocations import Together
from kornel.core.model.domains import Domain, Topology, count_on_node
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.policies import gang_nodes
from kornel.core.policies.device_packing import Budget
from kornel.core.policies.gang_nodes import Candidates, Chosen, Members, Paper, Shortfall, take_places
from kornel.core.policies.topology_choice import Room, Shares, choose_domains
from kornel.core.policies.topology_choice import Shortfall as NoDomain

MOST_NODES: Final = 256
MOST_MEMBERS: Final = 64
"""The bounds of a problem for which other divisions over domains are tried."""
MOST_DIVISIONS: Final = 64


def choose_nodes(
    candidates: Candidates, topology: Topology | None, gang: Sequence[Members], budget: Budget | None = None
) -> Chosen | Shortfall:
    """Returns a node for each member of *gang*, or how many members would find one. Changes nothing. *budget*: the
    steps that all searches for a way to pack different members may take together."""
    budget = budget or Budget.for_requests(members.devices for members in gang)
    together: dict[Together, list[int]] = {}
    for at, members in enumerate(gang):
        if members.together is not None and not members.required_node:
            together.setdefault(members.together, []).append(at)
    if not together:
        return gang_nodes.choose_nodes(candidates, gang, budget)
    paper = Paper(candidates.order)
    chosen: list[tuple[Node, ...]] = [()] * len(gang)
    grouped = set(chain.from_iterable(together.values()))
    alone = [at for at in range(len(gang)) if at not in grouped]
    parts = [*together.items(), *((None, [at]) for at in alone)]
    lacking: int | None = None
    for said, indexes in parts:
        entries = [gang[at] for at in indexes]
        domains = [] if said is None else _choose_parts(candidates, topology, entries, said[1], paper)
        found = _take_all(candidates, entries, domains, paper)
        for at, members, nodes in zip(indexes, entries, found, strict=True):
            chosen[at] = nodes
            if len(nodes) < members.number and lacking is None:
                lacking = at
    if lacking is None:
        return tuple(chosen)
    wanted = sum(members.number for members in gang)
    if len(candidates.by_id) <= MOST_NODES and wanted <= MOST_MEMBERS and topology is not None:
        other = _try_divisions(candidates, topology, gang, budget)
        if other is not None:
            return other
    return Shortfall(sum(map(len, chosen)), wanted, lacking, exhaustive=len(gang) == 1)


def _try_divisions(
    candidates: Candidates, topology: Topology, gang: Sequence[Members], budget: Budget
) -> Chosen | None:
    """Returns a node for each member of *gang* if another division of its slices over domains has room for all. The
    first choice is made for one group after the other, so the choice for one group may take the room of another."""
    entries: list[Members] = []
    choices: list[list[Domain | None]] = []
    owners: list[int] = []
    for at, members in enumerate(gang):
        said = members.together
        sizes, domains = [members.number], list[Domain | None]([None])
        if said is not None and _is_required(said) and not members.required_node:
            depth = topology.depth_of(said[1].level)
            if depth is None or sum(other.together == said for other in gang) > 1:
                return None
            size = said[1].slice_size or members.number
            sizes = [min(size, members.number - start) for start in range(0, members.number, size)]
            domains = list(topology.at_depth(depth))
        for size in sizes:
            entries.append(members._replace(number=size, together=None))
            choices.append([d for d in domains if d is None or d.count_room(members.pairs) >= size])
            owners.append(at)
    for way in islice(product(*choices), MOST_DIVISIONS):
        divided = [
            entry if domain is None else entry._replace(refused=entry.refused | _others_than(candidates, domain))
            for entry, domain in zip(entries, way, strict=True)
        ]
        found = gang_nodes.choose_nodes(candidates, divided, budget)
        if not isinstance(found, Shortfall):
            chosen: list[tuple[Node, ...]] = [()] * len(gang)
            for at, nodes in zip(owners, found, strict=True):
                chosen[at] += nodes
            return tuple(chosen)
    return None


def _others_than(candidates: Candidates, domain: Domain) -> frozenset[str]:
    """Returns the IDs of the nodes that are not in *domain*."""
    return frozenset(candidates.by_id.keys() - {node.node_id for node in domain.nodes})


def _is_required(said: Together) -> bool:
    return said[1].wish == Wish.REQUIRED


def _choose_parts(
    candidates: Candidates,
    topology: Topology | None,
    entries: Sequence[Members],
    request: TopologyRequest,
    paper: Paper,
) -> list[tuple[Domain, int]]:
    """Returns the domains for *entries*, the members of one task group, each with the number of members that it gets;
    none if the request allows no choice."""
    depth = topology.depth_of(request.level) if topology is not None else None
    if topology is None or depth is None:
        return []
    number = sum(members.number for members in entries)
    counter = _RoomCounter(candidates, entries, paper)
    rooms = [Room(domain.path, counter.count_room(domain)) for domain in topology.at_depth(depth)]
    found = choose_domains(rooms, number, request)
    if isinstance(found, NoDomain) and request.wish != Wish.REQUIRED and found.room:
        found = choose_domains(rooms, min(found.room, number), request)
    if isinstance(found, NoDomain):
        return []
    return [part for path, count in found.items() for part in _narrow_down(topology, path, count, counter)]


def _narrow_down(
    topology: Topology, path: tuple[str, ...], count: int, counter: _RoomCounter
) -> list[tuple[Domain, int]]:
    """Returns the innermost domains within the one at *path* for *count* members, as few as possible at each level,
    each with its number of members."""
    domain = topology.domains[path]
    if not domain.below:
        return [(domain, count)]
    inner = [Room(below.path, counter.count_room(below)) for below in domain.below.values()]
    level = topology.levels[len(path)].name
    found: Shares | NoDomain = choose_domains(inner, count, TopologyRequest(Wish.PREFERRED, level))
    if isinstance(found, NoDomain):
        return [(domain, count)]
    return [part for below, some in found.items() for part in _narrow_down(topology, below, some, counter)]


def _take_all(
    candidates: Candidates, entries: Sequence[Members], domains: Iterable[tuple[Domain, int]], paper: Paper
) -> list[tuple[Node, ...]]:
    """Places *entries* tentatively: in each of *domains* the given number, and the others on any node if this is
    allowed. Returns their nodes."""
    found: list[tuple[Node, ...]] = [()] * len(entries)
    for domain, share in domains:
        count = share
        usable = [node for node in domain.nodes if node.schedulable]
        if candidates.among is not None:
            usable = [node for node in usable if node in candidates.among]
        within = candidates._replace(among=sorted(usable, key=lambda node: (node.score, node.node_id)))
        for at, members in enumerate(entries):
            number = min(count, members.number - len(found[at]))
            if number:
                nodes = take_places(within, members._replace(number=number), paper)
                found[at] += nodes
                count -= len(nodes)
    for at, members in enumerate(entries):
        number = members.number - len(found[at])
        if number and (members.together is None or not _is_required(members.together)):
            found[at] += take_places(candidates, members._replace(number=number), paper)
    return found


class _RoomCounter:
    """Counts the members of one task group that fit into a domain in addition to the members that were tentatively
    placed before."""

    def __init__(self, candidates: Candidates, entries: Sequence[Members], paper: Paper) -> None:
        largest: dict[int, int] = {}
        for members in entries:
            for t, amount in members.pairs:
                largest[t] = max(amount, largest.get(t, 0))
        self._pairs: Pairs = tuple(sorted(largest.items()))
        """The demand of one member; if members differ, an amount that is enough for any of them."""
        self._devices = [*dict.fromkeys(members.devices for members in entries if members.devices is not None)]
        self._refused = frozenset(chain.from_iterable(members.refused for members in entries))
        self._among = None if candidates.among is None else frozenset(candidates.among)
        # This is a copy of the present state, because the group itself is tentatively placed only after it has chosen.
        self._left = dict(paper.left)

    def count_room(self, domain: Domain) -> int:
        """Returns how many members fit into *domain*."""
        plain = not self._refused and self._among is None and not self._devices
        if plain and self._left.keys().isdisjoint(domain.nodes):
            return domain.count_room(self._pairs)
        return sum(
            self._count_on(self._left.get(node, node))
            for node in domain.nodes
            if node.node_id not in self._refused and (self._among is None or node in self._among)
        )

    def _count_on(self, node: Node) -> int:
        """Returns the number of members that fit on *node* if each of them has the request that takes most of its
        devices."""
        return min(count_on_node(node, self._pairs, devices) for devices in self._devices or (None,))
