"""Chooses nodes for all members of a gang at once, or finds out how many members lack a place.

The choice is made *on paper*: nothing is booked, and room that earlier members take is not offered to later ones. Nodes
are taken in the order of the partition, updated by the members placed on them so far, so that a gang of equal members
gets the nodes that its members would get one after the other.

For equal members the answer is exact: wherever the first of them are put, the next one finds a place as long as there
is one. Members of different sizes may take each other's room. They are tried in the order of their turns, then the
largest first, and finally every way to pack them is tried, up to a number of steps (:mod:`.gang_packing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.allocations import Together
from kornel.core.model.nodes import Node
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.model.shapes import Pairs, unbook_amounts
from kornel.core.policies.device_choice import choose_devices
from kornel.core.policies.device_packing import MOST_NODES, Budget, DevicesTogether, hardness_of_member
from kornel.core.policies.gang_packing import Kind, Packing

MOST_PACKED: Final = 256
"""The most members of a gang for which ways to pack them are searched for, because the recursion is as deep as their
number."""

NONE_REFUSED: Final[frozenset[str]] = frozenset()


class Members(NamedTuple):
    """Members of a gang that are equal: their number, and what each of them asks for.

    *refused*: the nodes that the shim refused for them. *together*: their task group with its request about the
    topology; ``None``: it has none (:mod:`.gang_domains`).
    """

    pairs: Pairs
    number: int
    required_node: str = ""
    refused: frozenset[str] = NONE_REFUSED
    together: Together | None = None
    devices: DeviceRequest | None = None
    """The devices that each member wants; ``None``: none."""


class Shortfall(NamedTuple):
    """The answer if not all members find a place: how many would find one, and how many there are.

    *lacking*: the index of the first :class:`Members` of which one finds no place. *exhaustive* tells whether all ways
    to pack them were tried; otherwise the search ended at its number of steps.
    """

    placed: int
    wanted: int
    lacking: int
    exhaustive: bool = True


Chosen = tuple[tuple[Node, ...], ...]
"""For each of the :class:`Members`, as many nodes as there are of them; one may occur several times."""


class Candidates(NamedTuple):
    """The nodes to choose from: the open nodes in their *order*, or only those *among* some of them in the same order,
    and all nodes *by_id* for members with a required node."""

    order: NodeOrder
    by_id: Mapping[str, Node]
    among: Sequence[Node] | None = None

    def is_open(self, node: Node) -> bool:
        """Tells whether *node* may be chosen for any member, not only for members that require it."""
        return node in (self.order if self.among is None else self.among)

    def fitting_nodes(self, pairs: Pairs) -> Iterator[Node]:
        """Yields the nodes whose open room holds *pairs*, in order."""
        if self.among is None:
            return self.order.fitting_nodes(pairs)
        return (node for node in self.among if node.has_room(pairs))

    def nodes_for(self, members: Members) -> Iterator[Node]:
        """Yields the nodes that have room for one of *members*, in order."""
        fitting = self.fitting_nodes(members.pairs)
        if members.devices is None:
            return fitting
        return (node for node in fitting if node.has_devices(members.devices))


def choose_nodes(candidates: Candidates, gang: Sequence[Members], budget: Budget | None = None) -> Chosen | Shortfall:
    """Returns a node for each member of *gang*, or how many would find one. Changes nothing. *budget*: the steps that a
    search for a way to pack different members may take."""
    wanted = sum(members.number for members in gang)
    found = _place_in_turn(candidates, gang, range(len(gang)), wanted)
    if not isinstance(found, Shortfall) or len(gang) == 1:
        return found
    largest_first = sorted(range(len(gang)), key=lambda at: _size_key(candidates.order, gang[at]), reverse=True)
    other = _place_in_turn(candidates, gang, largest_first, wanted)
    if not isinstance(other, Shortfall):
        return other
    best = max(found, other, key=lambda shortfall: shortfall.placed)
    if _is_hopeless(candidates, gang):
        return best._replace(exhaustive=True)
    if wanted > MOST_PACKED:
        return best
    budget = budget or Budget.for_requests(members.devices for members in gang)
    if any(members.devices is not None for members in gang):
        packing = _pack_devices(candidates, gang, budget)
    else:
        kinds = [Kind(members.pairs, members.number, list(_usable_nodes(candidates, members))) for members in gang]
        packing = Packing(kinds, largest_first, budget, alike=_run_anywhere(gang))
    nodes = packing.find_nodes()
    return best._replace(exhaustive=not budget.cut_short) if nodes is None else nodes


def _pack_devices(candidates: Candidates, gang: Sequence[Members], budget: Budget) -> Packing:
    """Returns the search for a way to pack *gang*, of which some members want devices, on the first nodes."""
    nodes = [list(islice(_usable_nodes(candidates, members), MOST_NODES + 1)) for members in gang]
    are_all = all(len(there) <= MOST_NODES for there in nodes)
    budget.cut_short = budget.cut_short or not are_all
    kinds = [Kind(m.pairs, m.number, there[:MOST_NODES]) for m, there in zip(gang, nodes, strict=True)]
    requests = [members.devices for members in gang]
    devices = DevicesTogether(requests, (node for kind in kinds for node in kind.nodes), budget)
    order = sorted(range(len(gang)), key=lambda at: hardness_of_member(gang[at].pairs, gang[at].devices))
    return Packing(kinds, order, budget, alike=are_all and _run_anywhere(gang), devices=devices)


def _run_anywhere(gang: Iterable[Members]) -> bool:
    """Tells whether all members may run on any node. Otherwise, of two nodes with as much room, a later member may run
    on only one."""
    return all(not members.refused and not members.required_node for members in gang)


def count_places(candidates: Candidates, members: Members) -> Iterator[tuple[Node, int]]:
    """Yields each node that has a place for one of *members* now, with how many of them it could take."""
    for node in _usable_nodes(candidates, members):
        yield node, places_on(node, members)


def places_on(node: Node, members: Members) -> int:
    """Returns how many of *members* fit into the open room of *node*, at most all of them."""
    if node.node_id in members.refused or members.required_node not in ("", node.node_id):
        return 0
    room = node.open
    most = members.number
    for t, amount in members.pairs:
        most = min(most, room[t] // amount)
    if members.devices is not None and most > 0:
        most = min(most, 0 if node.devices is None else node.devices.count_room(members.devices))
    return max(0, most)


def _usable_nodes(candidates: Candidates, members: Members) -> Iterable[Node]:
    """Returns the nodes that have room for one of *members*, in order. A required node is returned even if it is
    closed."""
    if members.required_node:
        node = candidates.by_id.get(members.required_node)
        usable = node is not None and node.has_room(members.pairs) and node.node_id not in members.refused
        return [node] if node is not None and usable and node.has_devices(members.devices) else []
    fitting = candidates.nodes_for(members)
    if not members.refused:
        return fitting
    return (node for node in fitting if node.node_id not in members.refused)


def _size_key(order: NodeOrder, members: Members) -> tuple[bool, float]:
    """Returns a sort key by how hard it is to find a place for one of *members*: members with a required node are
    hardest, then those that fill the largest part of the first node."""
    first = next(iter(order), None)
    if first is None:
        return (bool(members.required_node), 0.0)
    shares = [amount / first.capacity[t] for t, amount in members.pairs if first.capacity[t]]
    return (bool(members.required_node), max(shares, default=0.0))


def _is_hopeless(candidates: Candidates, gang: Sequence[Members]) -> bool:
    """Tells whether some :class:`Members` would find too few places even if the gang consisted of them alone."""
    return any(sum(places for _, places in count_places(candidates, members)) < members.number for members in gang)


class Paper:
    """The nodes with the room that is left beside the members put there on paper."""

    def __init__(self, order: NodeOrder) -> None:
        self._order = order
        self.left: dict[Node, Node] = {}
        """By node that something was put on, a copy with less room. The copy has amounts of its own and shares the
        rest."""

    def put(self, node: Node, pairs: Pairs, devices: DeviceRequest | None = None) -> Node:
        """Counts *pairs* and *devices* as used on a copy of *node*, and returns the copy."""
        written = self.left.get(node)
        if written is None:
            written = self.left[node] = copy(node)
            open_, written.free = node.open, node.free.copy()
            written.open = written.free if open_ is node.free else open_.copy()
            written.devices = None if node.devices is None else node.devices.copy()
        unbook_amounts(written.free, pairs)
        if written.open is not written.free:
            unbook_amounts(written.open, pairs)
        if devices is not None and written.devices is not None:
            written.devices.put_on_paper(choose_devices(written.devices, devices) or ())
        written.score = self._order.score_of(written)
        return written


def _place_in_turn(
    candidates: Candidates, gang: Sequence[Members], turns: Iterable[int], wanted: int
) -> Chosen | Shortfall:
    """Places the members one after the other, each on the first node in the order of that moment."""
    paper = Paper(candidates.order)
    chosen: list[tuple[Node, ...]] = [()] * len(gang)
    placed = 0
    lacking: int | None = None
    for at in turns:
        members = gang[at]
        nodes = take_places(candidates, members, paper)
        chosen[at] = nodes
        placed += len(nodes)
        if len(nodes) < members.number and lacking is None:
            lacking = at
    return tuple(chosen) if lacking is None else Shortfall(placed, wanted, lacking, exhaustive=len(gang) == 1)


def take_places(candidates: Candidates, members: Members, paper: Paper) -> tuple[Node, ...]:
    """Places as many of *members* on paper as possible, and returns their nodes."""
    pairs = members.pairs
    before = set(paper.left)
    untouched = (node for node in _usable_nodes(candidates, members) if node not in before)
    touched = [
        (written.score, node.node_id, node)
        for node, written in paper.left.items()
        if written.has_room(pairs)
        and written.has_devices(members.devices)
        and node.node_id not in members.refused
        and members.required_node in ("", node.node_id)
        and (members.required_node or candidates.is_open(node))
    ]
    heapify(touched)
    found: list[Node] = []
    following = next(untouched, None)
    while len(found) < members.number:
        if following is not None and (not touched or (following.score, following.node_id) < touched[0][:2]):
            node, following = following, next(untouched, None)
        elif touched:
            node = heappop(touched)[2]
        else:
            break
        found.append(node)
        written = paper.put(node, pairs, members.devices)
        if written.has_room(pairs) and written.has_devices(members.devices):
            heappush(touched, (written.score, node.node_id, node))
    return tuple(found)
