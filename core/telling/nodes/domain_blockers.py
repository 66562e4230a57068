"""Explains why no domain of the topology takes an ask and its group, by naming domains instead of listing nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kornel.core.domain.topology import Wish
from kornel.core.model.allocations import Allocation
from kornel.core.model.domains import Domain
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.state.asks import group_domains
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.explanation import Blocker, BlockerKind, Level

MOST_NAMED: Final = 3
"""The most domains that are named besides the one that comes closest."""


class GroupRoom(NamedTuple):
    """One domain, and the places that it has for a group.

    room   the number of members that fit there now
    empty  the number of members that its open nodes would hold if nothing ran there
    taken  the number of members that are there already
    """

    domain: Domain
    room: int
    empty: int
    taken: int


def requires_domain(ask: Allocation) -> bool:
    """Tells whether *ask* waits for a domain of the topology rather than for any node."""
    return ask.spec.topology is not None and ask.spec.topology.wish == Wish.REQUIRED


def domain_blockers(state: PartitionState, ask: Allocation) -> tuple[list[Blocker], int]:
    """Returns what keeps *ask* out of every domain, and how many nodes it could go to. The cost is linear in nodes."""
    fitting = sum(1 for _ in group_domains.nodes_for(state, ask))
    if fitting:
        return [], fitting
    return [describe_domains(state, ask, group_domains.count_missing(state, ask))], 0


def describe_domains(state: PartitionState, ask: Allocation, missing: int) -> Blocker:
    """Returns a blocker that says how far the domains are from room for *missing* members of the group of *ask*."""
    request, topology = ask.spec.topology, state.topology
    assert request is not None, "the caller has checked"
    depth = topology.depth_of(request.level) if topology is not None else None
    rooms = group_rooms(state, ask)
    if depth is None or not rooms:
        what = "the topology of the partition has no such level" if depth is None else "no node stands in one"
        return Blocker(BlockerKind.DOMAIN_UNKNOWN, Level.NODE, request.level, what, permanent=True)
    return _describe_lack(ask, rooms, missing)


def group_rooms(state: PartitionState, ask: Allocation) -> list[GroupRoom]:
    """Returns the domains that are allowed for the group of *ask*, the one that comes closest first."""
    request, topology = ask.spec.topology, state.topology
    depth = topology.depth_of(request.level) if topology is not None and request is not None else None
    if topology is None or depth is None or request is None:
        return []
    taken = group_domains.count_taken(state, ask, depth)
    domains = topology.at_depth(depth)
    if taken and not request.slice_size:
        domains = iter([topology.domains[path] for path in taken])
    shape = ask.shape
    found = [
        GroupRoom(
            domain,
            group_domains.room_in(domain, ask),
            sum(_count_empty(node, shape) for node in domain.nodes),
            taken.get(domain.path, 0),
        )
        for domain in domains
    ]
    return sorted(found, key=lambda entry: (-entry.taken, -entry.room, entry.domain.path))


def blocker_of_domain(state: PartitionState, ask: Allocation, node: Node) -> Iterator[Blocker]:
    """Yields why *ask* is not placed on *node*, which has room for it: the domain of the node, or the place of its
    group."""
    if any(chosen is node for chosen in group_domains.nodes_for(state, ask)):
        return
    rooms = group_rooms(state, ask)
    own = next((entry for entry in rooms if entry.domain in node.domains), None)
    if own is None:
        level = ask.spec.topology.level if ask.spec.topology is not None else ""
        where = f"its group stands in {rooms[0].domain.name}" if rooms else f"the node stands in no {level}"
        yield Blocker(BlockerKind.DOMAIN_FULL, Level.NODE, node.node_id, where, (), 1)
        return
    yield _describe_lack(ask, [own], group_domains.count_missing(state, ask))._replace(nodes=1)


def _describe_lack(ask: Allocation, rooms: list[GroupRoom], missing: int) -> Blocker:
    """Returns a blocker that says how far each of *rooms* is from what *missing* members of the group need: ``rack r7:
    12 of 16, 4 short``."""
    request = ask.spec.topology
    assert request is not None, "the caller has checked"
    size = request.slice_size
    wanted = missing if not size else min(size, missing)
    best = rooms[0]
    if best.taken and not size:
        wanted = 1
        detail = f"{best.taken} of its group stand there, and it has no room for another one"
    else:
        slices = f" in slices of {size}" if size else ""
        detail = f"{best.room} of {missing}{slices}, {max(wanted - best.room, 1)} short"
        if size and best.room >= wanted:
            detail = f"room for {best.room} of {missing}{slices}: all domains together have too few places for slices"
    others = [f"{entry.domain.name} {entry.room}" for entry in rooms[1 : 1 + MOST_NAMED]]
    if others:
        more = len(rooms) - 1 - len(others)
        detail += f"; then {', '.join(others)}" + (f" and {more} with no more" if more > 0 else "")
    never = max(entry.empty for entry in rooms) < wanted
    if never:
        detail += "; not even an empty one would do"
    distance = max(0.0, 1 - best.room / wanted)
    return Blocker(BlockerKind.DOMAIN_FULL, Level.NODE, best.domain.name, detail, distance=distance, permanent=never)


def _count_empty(node: Node, shape: Shape) -> int:
    """Returns how many asks of *shape* fit on *node* if nothing runs there."""
    if not node.schedulable:
        return 0
    fits = min(node.capacity[t] // amount for t, amount in shape.pairs)
    if shape.devices is None or not fits:
        return fits
    return 0 if node.devices is None else min(fits, node.devices.count_empty(shape.devices))
