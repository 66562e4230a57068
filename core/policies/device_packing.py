"""Tries all ways to put members of a gang that want different devices on nodes, up to a number of steps.

Members that are hard to serve come first. A node takes a further member if it has room for the amounts, and if all
members that it has then find their devices at once (:mod:`.device_sharing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.policies.device_sharing import DeviceKind, Sharing, Wanting, hardness_of, kind_of

MOST_STEPS: Final = 300
"""The most steps of one choice, which take about two milliseconds."""
MOST_NODES: Final = 32
"""The most nodes that are tried for each kind of member, the first ones in order."""


class Budget:
    """The steps that are left of one choice, which may consist of several searches."""

    __slots__ = ("cut_short", "left")

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps
        self.cut_short = False
        """Tells whether the budget ended a search before all ways were tried."""


class Wish(NamedTuple):
    """The demand of each of *number* equal members, and the *nodes* that have room for one of them, in order."""

    pairs: Pairs
    devices: DeviceRequest | None
    number: int
    nodes: Sequence[Node]


class DevicePacking:
    """The search of nodes for all members of *wishes*. *alike* says that nodes which have the same room are equally
    good for all of them."""

    def __init__(self, wishes: Sequence[Wish], budget: Budget, *, alike: bool) -> None:
        self._wishes: Final = wishes
        self._budget: Final = budget
        self._alike: Final = alike and all(len(wish.nodes) <= MOST_NODES for wish in wishes)
        order = sorted(range(len(wishes)), key=lambda at: _hardest_first(wishes[at]))
        self._turns: Final = [at for at in order for _ in range(wishes[at].number)]
        self._nodes: Final = [wish.nodes[:MOST_NODES] for wish in wishes]
        budget.cut_short = budget.cut_short or any(len(wish.nodes) > MOST_NODES for wish in wishes)
        self._room: Final = {node: node.open.copy() for nodes in self._nodes for node in nodes}
        self._there: Final[dict[Node, tuple[int, ...]]] = dict.fromkeys(self._room, (0,) * len(wishes))
        """The number of members of each wish that are on each node."""
        self._kinds: Final = {node: _kinds_on(node) for node in self._room}
        self._verdicts: Final[dict[tuple[object, tuple[int, ...]], bool]] = {}
        """By devices of a node and the members on it, whether the devices are enough for all of them."""
        self._chosen: Final[list[Node]] = []

    def find_nodes(self) -> list[tuple[Node, ...]] | None:
        """Returns the nodes of each wish, or ``None`` if no way was found."""
        if not self._place_next(0):
            return None
        found: list[list[Node]] = [[] for _ in self._wishes]
        for at, node in zip(self._turns, self._chosen, strict=True):
            found[at].append(node)
        return [tuple(nodes) for nodes in found]

    def _place_next(self, turn: int, start: int = 0) -> bool:
        """Tries every node for the member whose *turn* has come, and then for the next ones. Returns whether all found
        a node. Equal members go on nodes in order, from *start* on."""
        if turn == len(self._turns):
            return True
        at = self._turns[turn]
        pairs, nodes = self._wishes[at].pairs, self._nodes[at]
        equal_follows = turn + 1 < len(self._turns) and self._turns[turn + 1] == at
        tried: set[object] = set()
        for index in range(start, len(nodes)):
            node = nodes[index]
            room, there = self._room[node], self._there[node]
            if any(room[t] < amount for t, amount in pairs):
                continue
            if self._alike:
                key = tuple(room), self._kinds[node], there
                if key in tried:
                    continue
                tried.add(key)
            if self._budget.left <= 0:
                self._budget.cut_short = True
                return False
            self._budget.left -= 1
            after = (*there[:at], there[at] + 1, *there[at + 1 :])
            if not self._have_devices(node, after):
                continue
            for t, amount in pairs:
                room[t] -= amount
            self._there[node] = after
            self._chosen.append(node)
            if self._place_next(turn + 1, index if equal_follows else 0):
                return True
            self._chosen.pop()
            self._there[node] = there
            for t, amount in pairs:
                room[t] += amount
        return False

    def _have_devices(self, node: Node, there: tuple[int, ...]) -> bool:
        """Tells whether *node* has devices for the members *there*, counted by wish."""
        wanted = [(wish.devices, count) for wish, count in zip(self._wishes, there, strict=True) if count]
        requests = [(request, count) for request, count in wanted if request is not None]
        if not requests:
            return True
        key = self._kinds[node], there
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self._try_sharing(node, requests)
        return known

    def _try_sharing(self, node: Node, requests: Sequence[tuple[DeviceRequest, int]]) -> bool:
        if node.devices is None:
            return False
        if any(node.devices.count_room(request) < count for request, count in requests):
            return False
        if len(requests) == 1:
            return True
        everybody = [Wanting(request) for request, count in requests for _ in range(count)]
        everybody.sort(key=lambda one: hardness_of(one.request))
        search = Sharing(node.devices.copy(), everybody, max(1, self._budget.left))
        enough = search.serve_all()
        self._budget.left -= search.steps
        if not enough and search.cut_short:
            self._budget.cut_short = True
        return enough


def _hardest_first(wish: Wish) -> tuple[bool, tuple[bool, int, int, bool], tuple[int, ...]]:
    hardness = (True, 0, 0, True) if wish.devices is None else hardness_of(wish.devices)
    return wish.devices is None, hardness, tuple(-amount for _, amount in wish.pairs)


def _kinds_on(node: Node) -> tuple[tuple[DeviceKind, bool], ...]:
    """Returns everything about the devices of *node* that matters to members of a gang."""
    if node.devices is None:
        return ()
    return tuple(sorted((kind_of(device), device.leaving) for device in node.devices))
