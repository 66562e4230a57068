"""Finds devices for the members of a gang that preempts as a unit: for all members on a node at once, in what is left
once the victims have gone (preemption.md B.12).

Each member gets the devices that it would be given by itself, members that are hard to serve first. If this leaves
somebody without devices and the node is small, all other ways are tried.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final

from kornel.core.domain.devices import WHOLE, DeviceRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices, Taken
from kornel.core.model.nodes import Node
from kornel.core.policies.device_choice import choose_devices

MOST_STEPS: Final = 2_000
"""The most times that a member is given devices while all ways are tried on one node."""

DevicesOf = Mapping[Allocation, tuple[str, ...]]
"""The names of the devices of each member that wants some."""


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
    on_node: dict[Node, list[Allocation]] = {}
    for ask, node in places:
        if ask.shape.devices is not None:
            on_node.setdefault(node, []).append(ask)
    found: dict[Allocation, tuple[str, ...]] = {}
    for node, members in on_node.items():
        devices = devices_after(node, gone, given_up)
        theirs = None if devices is None else share_devices(devices, members)
        if theirs is None:
            return None
        found.update(theirs)
    return found


def share_devices(devices: NodeDevices, members: Sequence[Allocation]) -> DevicesOf | None:
    """Returns devices of a node for all of *members* at once, or ``None`` if there are none. Changes *devices*."""
    search = _Sharing(devices, sorted(members, key=_hardest_first))
    return search.found if search.serve_from(0) else None


class _Sharing:
    """The search of devices of one node for several members."""

    def __init__(self, devices: NodeDevices, members: Sequence[Allocation]) -> None:
        self._devices: Final = devices
        self._members: Final = members
        self._steps = 0
        self.found: Final[dict[Allocation, tuple[str, ...]]] = {}

    def serve_from(self, at: int) -> bool:
        """Gives devices to the members from *at* on, and tells whether all of them have some."""
        if at == len(self._members):
            return True
        ask = self._members[at]
        for taken in self._list_choices(ask):
            self._steps += 1
            self._devices.put_on_paper(taken)
            self.found[ask] = tuple([name for name, _ in taken])
            if self.serve_from(at + 1):
                return True
            del self.found[ask]
            self._devices.put_on_paper([Taken(name, -share) for name, share in taken])
            if self._steps >= MOST_STEPS:
                return False
        return False

    def _list_choices(self, ask: Allocation) -> Iterator[Sequence[Taken]]:
        """Yields the choice for an ask alone, and then all others that differ in more than the names of devices."""
        request = ask.shape.devices
        assert request is not None, "the caller has checked"
        first = choose_devices(self._devices, request, ask)
        if first is None:
            return
        yield first
        tried = {self._kind_of(first)}
        free = [(device, device.free_for(ask)) for device in self._devices]
        suiting = [(device, share) for device, left in free if 0 < (share := device.share_for(request)) <= left]
        usable = [Taken(device.spec.device_id, share) for device, share in suiting]
        for taken in islice(combinations(usable, request.number or 1), MOST_STEPS):
            kind = self._kind_of(taken)
            if kind in tried or (request.linked and not self._is_linked(taken)):
                continue
            tried.add(kind)
            yield taken

    def _kind_of(self, taken: Sequence[Taken]) -> tuple[object, ...]:
        """Returns everything about the devices *taken* that matters to others."""
        specs = [(self._devices.devices[name].spec, self._devices.devices[name]) for name, _ in taken]
        return tuple(sorted((spec.type, spec.memory, spec.link, device.free) for spec, device in specs))

    def _is_linked(self, taken: Sequence[Taken]) -> bool:
        links = {self._devices.devices[name].spec.link for name, _ in taken}
        return len(taken) == 1 or (len(links) == 1 and "" not in links)


def _hardest_first(ask: Allocation) -> tuple[bool, int, int, bool, tuple[int, int, int]]:
    """Returns the sort key for the order in which members get devices: linked ones first, then whole ones, the largest
    number first, then parts, the largest first."""
    request = ask.shape.devices
    assert request is not None, "the caller has checked"
    return not request.linked, -request.number, -_size_of(request), not request.types, ask.order


def _size_of(request: DeviceRequest) -> int:
    return request.share or request.memory or WHOLE
