"""Finds devices for the members of a gang that preempts as a unit: for all members on a node at once, in what is left
once the victims have gone (preemption.md B.12).

Each member gets the devices that it would be given by itself, members that are hard to serve first. If this leaves
somebody without devices, other ways are tried, up to a number of steps.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices
from kornel.core.model.nodes import Node
from kornel.core.policies.device_sharing import DevicesOf, search_sharing, share_on_nodes

SHARING_WORK: Final = 20
"""The work of finding out whether members find devices on a node at once, in units of about two microseconds. Each step
of that search is a quarter of it."""
WORK_AT_ONCE: Final = 500
"""The work that is done at once while victims are dropped."""


def want_devices(members: Iterable[Allocation]) -> bool:
    """Tells whether any of *members* wants devices."""
    return any(ask.shape.devices is not None for ask in members)


def devices_after(node: Node, gone: Iterable[Allocation], given_up: Container[Allocation]) -> NodeDevices | None:
    """Returns a copy of the devices of *node* that is without what *gone* hold, and what those hold that leave it
    already."""
    if node.devices is None:
        return None
    devices = node.devices.copy()
    for allocation in (*(a for a in node.allocations.values() if a.preempted and a not in given_up), *gone):
        devices.give_back(allocation)
    return devices


def assign_devices(
    places: Iterable[tuple[Allocation, Node]], gone: Sequence[Allocation], given_up: Container[Allocation]
) -> DevicesOf | None:
    """Returns devices for all members in *places* on their nodes once *gone* have left, or ``None`` if there are none
    for all of them."""
    return share_on_nodes(places, lambda node, _: devices_after(node, gone, given_up))


class DevicesBeside:
    """The devices of the members of a plan, while victims that are not needed are dropped from it one by one."""

    def __init__(
        self,
        places: Iterable[tuple[Allocation, Node]],
        victims: Iterable[Allocation],
        given_up: Container[Allocation],
    ) -> None:
        self.chosen: Final[dict[Allocation, tuple[str, ...]]] = {}
        """The devices of the members on nodes from which victims were dropped."""
        self._given_up: Final = given_up
        self._members: Final[dict[Node, list[Allocation]]] = {}
        for ask, node in places:
            if ask.shape.devices is not None:
                self._members.setdefault(node, []).append(ask)
        self._gone: Final[dict[Node, dict[Allocation, None]]] = {node: {} for node in self._members}
        for victim in victims:
            if victim.node in self._gone:
                self._gone[victim.node][victim] = None
        self._work = 0

    def may_stay(self, victims: Collection[Allocation]) -> bool:
        """Drops *victims* if all members find devices without them, and tells whether they do."""
        nodes = {victim.node: None for victim in victims if victim.node in self._members}
        found: dict[Allocation, tuple[str, ...]] = {}
        for node in nodes:
            assert node is not None, "what runs has a node"
            devices = devices_after(node, [v for v in self._gone[node] if v not in victims], self._given_up)
            if devices is None:
                return False
            search = search_sharing(devices, self._members[node])
            enough = search.serve_all()
            self._work += SHARING_WORK + search.steps * SHARING_WORK // 4
            if not enough:
                return False
            found.update(search.name_devices())
        self.chosen.update(found)
        for victim in victims:
            if victim.node in self._gone:
                del self._gone[victim.node][victim]
        return True

    def is_tired(self) -> bool:
        """Tells whether it has done enough work for now."""
        tired = self._work >= WORK_AT_ONCE
        if tired:
            self._work = 0
        return tired
