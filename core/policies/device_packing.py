"""Finds out whether members of a gang that want different devices find theirs together, while all ways to put them on
nodes are tried (:mod:`.gang_packing`).

A node takes a further member if all members that it has then find their devices at once (:mod:`.device_sharing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.policies.device_sharing import DeviceKind, Sharing, Wanting, hardness_of, kind_of

STEPS_WITHOUT_DEVICES: Final = 5_000
STEPS_WITH_DEVICES: Final = 300
"""The most steps of one choice for members of which some want devices; they take about two milliseconds."""
MOST_NODES: Final = 32
"""The most nodes that are tried for each kind of member, the first ones in order."""


class Budget:
    """The steps that are left of one choice, which may consist of several searches."""

    __slots__ = ("_most", "cut_short", "left")

    def __init__(self, steps: int) -> None:
        self._most: Final = steps
        self.left = steps
        self.cut_short = False
        """Tells whether the budget ended a search before all ways were tried."""

    @classmethod
    def for_requests(cls, requests: Iterable[DeviceRequest | None]) -> Budget:
        """Returns the budget of a choice for members with these *requests*; ``None``: they want no devices."""
        with_devices = any(request is not None for request in requests)
        return cls(STEPS_WITH_DEVICES if with_devices else STEPS_WITHOUT_DEVICES)

    @property
    def spent(self) -> int:
        """The number of steps taken so far."""
        return self._most - self.left


class DevicesTogether:
    """The members that are put on *nodes*, counted by the request that they have in common. ``None`` among *requests*:
    these members want no devices."""

    def __init__(self, requests: Sequence[DeviceRequest | None], nodes: Iterable[Node], budget: Budget) -> None:
        self._requests: Final = requests
        self._budget: Final = budget
        self._kinds: Final = {node: _kinds_on(node) for node in nodes}
        self._there: Final[dict[Node, tuple[int, ...]]] = dict.fromkeys(self._kinds, (0,) * len(requests))
        """The number of members with each request that are on each node."""
        self._verdicts: Final[dict[tuple[object, tuple[int, ...]], bool]] = {}
        """By devices of a node and the members on it, whether the devices are enough for all of them."""

    def describe_node(self, node: Node) -> object:
        """Returns the same for nodes that are equally good for further members."""
        return self._kinds[node], self._there[node]

    def add_member(self, node: Node, at: int) -> bool:
        """Puts a member with the request *at* on *node* if there are devices for it beside the others. Returns whether
        there are."""
        there = self._there[node]
        after = (*there[:at], there[at] + 1, *there[at + 1 :])
        if not self._have_devices(node, after):
            return False
        self._there[node] = after
        return True

    def remove_member(self, node: Node, at: int) -> None:
        """Takes a member with the request *at* off *node*."""
        there = self._there[node]
        self._there[node] = (*there[:at], there[at] - 1, *there[at + 1 :])

    def _have_devices(self, node: Node, there: tuple[int, ...]) -> bool:
        """Tells whether *node* has devices for the members *there*."""
        counted = zip(self._requests, there, strict=True)
        requests = [(request, count) for request, count in counted if request is not None and count]
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


def hardness_of_member(pairs: Pairs, devices: DeviceRequest | None) -> tuple[object, ...]:
    """Returns the sort key for the turns of members: those that are hard to serve come first, then those that want no
    devices."""
    hardness = (True, 0, 0, True) if devices is None else hardness_of(devices)
    return devices is None, hardness, tuple(-amount for _, amount in pairs)


def _kinds_on(node: Node) -> tuple[tuple[DeviceKind, bool], ...]:
    """Returns everything about the devices of *node* that matters to members of a gang."""
    if node.devices is None:
        return ()
    return tuple(sorted((kind_of(device), device.leaving) for device in node.devices))
