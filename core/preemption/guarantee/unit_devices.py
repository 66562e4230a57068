"""Finds devices for the members of a gang that preempts as a unit: for all members on a node at once, in what is left
once the victims have gone (preemption.md B.12).

Each member gets the devices that it would be given by itself, members that are hard to serve first. If this leaves
somebody without devices and the node is small, all other ways are tried.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices
from kornel.core.model.nodes import Node
from kornel.core.policies.device_sharing import DevicesOf, share_on_nodes


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
