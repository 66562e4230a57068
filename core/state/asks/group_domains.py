"""Chooses the nodes for one member after the other of a group that asks for a topology.

The first member chooses for the whole group: while no member is placed, only domains with room for all members count.
Later members follow a choice that includes those already placed, which are looked up in the records of the application,
so that nothing is kept that could be wrong later. Rules: docs/topology.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.model.allocations import Allocation, AskGroup, Reservation, stand_together, together_of
from kornel.core.model.domains import Domain, DomainPath, Topology, count_on_node
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.policies.topology_choice import Room, Shares, Shortfall, choose_domains
from kornel.core.state.partition_state import PartitionState


def nodes_for(state: PartitionState, ask: Allocation) -> Iterator[Node]:
    """Yields the nodes on which *ask* may be placed now, the best first; none: its group has to wait.

    If no domain can fulfil a preference, it is ignored, and all nodes count in their order.
    """
    request, topology = ask.spec.topology, state.topology
    assert request is not None, "the caller has checked"
    found: Shares | Shortfall = Shortfall(None, 0, 1)
    depth = topology.depth_of(request.level) if topology is not None else None
    if topology is not None and depth is not None:
        alone = _is_one_slice(request)
        taken = count_taken(state, ask, depth, first_only=alone)
        found = _choose(state, ask, depth, taken)
        # Members may be in other domains too, if some of them do not require one. Few groups are, so this comes second.
        if isinstance(found, Shortfall) and alone and taken and len(every := count_taken(state, ask, depth)) > 1:
            found = _choose(state, ask, depth, every)
        # Members that only save room by age leave it if another domain has room for all.
        if isinstance(found, Shortfall) and taken and (savers := _count_savers(state, ask)):
            found = _choose(state, ask, depth, count_taken(state, ask, depth, saved=False), savers)
    if not isinstance(found, Shortfall):
        assert topology is not None, "there is no choice without domains"
        yield from _in_order_within(topology, next(iter(found.items())), ask)
    elif request.wish != Wish.REQUIRED:
        refused = ask.refused or {}
        for node in state.node_order.fitting_nodes(ask.shape.pairs):
            if node.node_id not in refused and node.has_devices(ask.shape.devices):
                yield node


def _choose(
    state: PartitionState, ask: Allocation, depth: int, taken: dict[DomainPath, int], savers: int = 0
) -> Shares | Shortfall:
    """Chooses domains for all members of the group of *ask* that wait, or for some of them, beside those *taken*.
    *savers*: how many others save room and need a place as well."""
    request, topology = ask.spec.topology, state.topology
    assert request is not None, "the caller has checked"
    assert topology is not None, "the caller has checked"
    rooms = rooms_for(topology, ask, depth, taken)
    holds = ask.group is None
    alone = holds and bool(taken or request.wish != Wish.REQUIRED)
    waits = 1 if alone else count_missing(state, ask) + savers
    missing, beside = (1, waits - 1) if holds else (waits, 0)
    if request.slice_size:
        beside = min(beside, request.slice_size - 1)
    if beside and ask.reservation is not None:
        own = tuple(domain.path for domain in ask.reservation.node.domains[depth - 1 : depth])
        rooms = [room for room in rooms if room.path in own or room.room > beside]
    found = choose_domains(rooms, missing, request)
    if isinstance(found, Shortfall) and (some := _fewer_members(request, taken, found.room, missing)):
        found = choose_domains(rooms, some, request)
    return found


def _fewer_members(request: TopologyRequest, taken: dict[DomainPath, int], room: int, missing: int) -> int:
    """Returns for how many members to choose if there is no room for all *missing* ones; 0: for none.

    A group with a requirement waits until there is room for all, unless some members are placed already; then each
    slice counts by itself.
    """
    size = request.slice_size
    if request.wish == Wish.PREFERRED:
        return min(room, missing)
    if request.wish == Wish.REQUIRED and not taken:
        return 0
    if not size or any(count % size for count in taken.values()):
        return 1
    return min(size, missing)


def rooms_for(topology: Topology, ask: Allocation, depth: int, taken: dict[DomainPath, int]) -> list[Room]:
    """Returns the room of each domain at *depth* for asks such as *ask*, with the members that are there already."""
    request = ask.spec.topology
    assert request is not None, "the caller has checked"
    if taken and _is_one_slice(request):
        # All members belong where one is placed, so the other domains need not be counted.
        domains: Sequence[Domain] = [topology.domains[path] for path in taken]
    else:
        domains = list(topology.at_depth(depth))
    return [Room(domain.path, room_in(domain, ask), taken.get(domain.path, 0)) for domain in domains]


def room_in(domain: Domain, ask: Allocation) -> int:
    """Returns how many asks such as *ask* fit into *domain* now, on nodes that the shim has not refused for it."""
    refused, shape = ask.refused or {}, ask.shape
    if not refused and shape.devices is None:
        return domain.count_room(shape.pairs)
    return sum(count_on_node(node, shape.pairs, shape.devices) for node in domain.nodes if node.node_id not in refused)


def count_missing(state: PartitionState, ask: Allocation) -> int:
    """Returns how many members of the group of *ask*, of its size, wait for a place, itself included."""
    own, group = int(ask.group is None), ask.group or _find_group(ask)
    if group is not None and group.is_unit:
        return own + sum(together_of(other.spec) == together_of(ask.spec) for other in group.unordered_asks())
    return own + (0 if group is None else group.size) + _count_refused(state, ask)


def _find_group(ask: Allocation) -> AskGroup | None:
    """Returns the group of those who wait with *ask* while it holds room and so stands in no group: it may move only
    within its domain, or to one that has room for them too."""
    for other in ask.application.asks.values():
        if other.group is not None and other.shape is ask.shape and stand_together(other.spec, ask.spec):
            return other.group
    return None


def _count_refused(state: PartitionState, ask: Allocation) -> int:
    """Returns how many others, for whom the group of *ask* requires a domain, the shim has refused wherever there is
    room: they wait in no group."""
    if ask.spec.topology is None or ask.spec.topology.wish != Wish.REQUIRED:
        return 0
    rooms = state.refused.get(ask.shape, {}).values()
    ours = [other for room in rooms for other in room if other is not ask and other.application is ask.application]
    return sum(other.reservation is None and stand_together(other.spec, ask.spec) for other in ours)


def nodes_for_victims(state: PartitionState, ask: Allocation) -> list[Node] | None:
    """Returns the nodes on which victims may make room for *ask*, which is placed by itself; ``None``: on any.

    For a group that requires a domain they are those of the domains where members of it are, or else of the domains in
    which all members find room once there is one more place. Otherwise a victim would leave for one member where the
    others have no room. What members save by age is no room yet.
    """
    found = open_domains(state, ask, count_missing(state, ask) + _count_savers(state, ask), saved=False)
    if found is None:
        return None
    domains, wanted = found
    return [node for domain in domains if not wanted or room_in(domain, ask) >= wanted - 1 for node in domain.nodes]


def nodes_on_loan(state: PartitionState, ask: Allocation, lent: Mapping[Node, int]) -> Collection[Node]:
    """Returns the nodes of *lent* on which *ask* may use room that is saved for others, who lend it enough there for so
    many of its size: all, unless its group requires a domain; otherwise those of the domains where others of it run, or
    hold or save room, or which have room for all who wait, with what is lent."""
    missing, savers = count_missing(state, ask), _count_savers(state, ask)
    found = _lent_in_domains(ask, lent, open_domains(state, ask, missing))
    if not found and savers:  # What members save keeps none of them from room for all in another domain.
        found = _lent_in_domains(ask, lent, open_domains(state, ask, missing + savers, saved=False))
    return found


def _lent_in_domains(
    ask: Allocation, lent: Mapping[Node, int], allowed: tuple[list[Domain], int] | None
) -> Collection[Node]:
    if allowed is None:
        return lent
    domains, wanted, shape = set(allowed[0]), allowed[1], ask.shape
    homes = {node: domain for node in lent for domain in node.domains if domain in domains}
    rooms = {domain: room_in(domain, ask) for domain in homes.values()} if wanted else {}
    for node, domain in homes.items() if wanted else ():
        if node.node_id not in (ask.refused or ()):
            rooms[domain] += max(0, lent[node] - count_on_node(node, shape.pairs, shape.devices))
    return [node for node, domain in homes.items() if not wanted or rooms[domain] >= wanted]


def open_domains(
    state: PartitionState, ask: Allocation, missing: int, *, saved: bool = True
) -> tuple[list[Domain], int] | None:
    """Returns the domains where members of the group of *ask* run or hold room, and 0; or else all, and how many of
    those *missing* one of them has to hold; ``None``: the group requires no domain. *saved*: as for
    :func:`count_taken`."""
    request, topology = ask.spec.topology, state.topology
    if request is None or request.wish != Wish.REQUIRED or ask.spec.required_node:
        return None
    depth = topology.depth_of(request.level) if topology is not None else None
    if topology is None or depth is None:
        return [], 0
    size = request.slice_size
    begun = {path for path, count in count_taken(state, ask, depth, saved=saved).items() if not size or count % size}
    domains = [domain for domain in topology.at_depth(depth) if not begun or domain.path in begun]
    return domains, 0 if begun else min(size or missing, missing)


def count_taken(
    state: PartitionState, ask: Allocation, depth: int, *, first_only: bool = False, saved: bool = True
) -> dict[DomainPath, int]:
    """Returns, by domain at *depth*, the number of other members of the group of *ask* that are placed there, or for
    which room is held there because the group requires a domain.

    Those that only save room by age count where members are together in slices, or if there are no others. *saved*:
    without these. *first_only*: stop at the first one, which shows where all belong. The cost is linear in the
    allocations of the application.
    """
    application, spec = ask.application, ask.spec
    placed = [(member, member.node) for member in application.allocations.values()]
    if application.held_count:
        placed += [(member, member.held_on) for member in application.asks.values()]
    savers: list[tuple[Allocation, Node | None]] = []
    if state.reservations and spec.topology is not None and spec.topology.wish == Wish.REQUIRED:
        kept = [
            reservation for reservation in state.reservations.values() if reservation.ask.application is application
        ]
        for reservation in [r for r in kept if r.ask is not ask and r.ask.held_on is None]:
            (savers if _saves_alone(reservation) else placed).append((reservation.ask, reservation.node))
    taken = _count_in_domains(placed, spec, depth, first_only=first_only)
    if saved and savers and (spec.topology is None or spec.topology.slice_size or not taken):
        taken = _count_in_domains([*placed, *savers], spec, depth, first_only=first_only)
    return taken


def _count_in_domains(
    members: Iterable[tuple[Allocation, Node | None]], spec: AllocationSpec, depth: int, *, first_only: bool
) -> dict[DomainPath, int]:
    taken: dict[DomainPath, int] = {}
    for member, node in members:
        if node is None or len(node.domains) < depth:
            continue
        if not stand_together(member.spec, spec):
            continue
        path = node.domains[depth - 1].path
        taken[path] = taken.get(path, 0) + 1
        if first_only:
            break
    return taken


def _saves_alone(reservation: Reservation) -> bool:
    """Tells whether *reservation* is saved by age for a single ask, which may find room elsewhere meanwhile."""
    return reservation.by_age and reservation.least is None


def _count_savers(state: PartitionState, ask: Allocation) -> int:
    """Returns how many other members of the group of *ask* save room by age, each by itself."""
    saved = [reservation.ask for reservation in state.reserving.saved if _saves_alone(reservation)]
    ours = [other for other in saved if other is not ask and other.application is ask.application]
    return sum(stand_together(other.spec, ask.spec) for other in ours)


def is_with_others(state: PartitionState, ask: Allocation, node: Node) -> bool:
    """Tells whether *node*, on which room is held for *ask*, is in a domain that its group still allows: others may
    have been placed elsewhere since, or nodes may have changed their domains."""
    found = open_domains(state, ask, 1)
    return found is None or not set(found[0]).isdisjoint(node.domains)


def name_lack(ask: Allocation) -> Unschedulable:
    """Returns why *ask*, for which :func:`nodes_for` has found nothing, is not placed."""
    if ask.refused:
        return Unschedulable.REFUSED_BY_PREDICATE
    required = ask.spec.topology is not None and ask.spec.topology.wish == Wish.REQUIRED
    return Unschedulable.NO_FITTING_DOMAIN if required else Unschedulable.NO_FITTING_NODE


def may_move(state: PartitionState, request: TopologyRequest | None, own: Node, node: Node) -> bool:
    """Tells whether a member that takes a place on *own*, in a group with *request*, may take one on *node* instead."""
    topology = state.topology
    if request is None or request.wish != Wish.REQUIRED or topology is None:
        return True
    depth = topology.depth_of(request.level)
    if depth is None or len(own.domains) < depth:
        return True
    return len(node.domains) >= depth and node.domains[depth - 1] is own.domains[depth - 1]


def _is_one_slice(request: TopologyRequest) -> bool:
    return request.wish == Wish.REQUIRED and not request.slice_size


def _in_order_within(topology: Topology, share: tuple[DomainPath, int], ask: Allocation) -> Iterator[Node]:
    """Yields the nodes of a domain that have room for *ask*: first those in the inner domains that suit the members of
    *share* best, then the others."""
    path, members = share
    shape = ask.shape
    refused = ask.refused or {}
    seen: set[Node] = set()
    for domain in reversed(_narrow_down(topology, path, members, shape)):
        fitting = [n for n in domain.nodes if n not in seen and n.has_room_for(shape) and n.node_id not in refused]
        seen.update(fitting)
        yield from sorted([node for node in fitting if node.schedulable], key=_place_of)


def _narrow_down(topology: Topology, path: DomainPath, members: int, shape: Shape) -> list[Domain]:
    """Returns the domain at *path* and, level by level, the inner one in which the first of *members* is placed."""
    found = [topology.domains[path]]
    for level in topology.levels[len(path) :]:
        rooms = [Room(inner.path, _count_room(inner, shape)) for inner in found[-1].below.values()]
        shares = choose_domains(rooms, members, TopologyRequest(Wish.PREFERRED, level.name))
        if isinstance(shares, Shortfall):
            break
        path, members = next(iter(shares.items()))
        found.append(topology.domains[path])
    return found


def _count_room(domain: Domain, shape: Shape) -> int:
    if shape.devices is None:
        return domain.count_room(shape.pairs)
    return sum(count_on_node(node, shape.pairs, shape.devices) for node in domain.nodes)


def _place_of(node: Node) -> tuple[float, str]:
    return (node.score, node.node_id)
