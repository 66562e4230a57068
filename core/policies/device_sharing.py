"""Finds devices of one node for several asks at once.

Each ask gets the devices that it would be given by itself, asks that are hard to serve first. If this leaves somebody
without devices, other ways are tried, up to a number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final, NamedTuple

from kornel.core.domain.devices import WHOLE, DeviceRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import Device, NodeDevices, Taken
from kornel.core.model.nodes import Node
from kornel.core.policies.device_choice import choose_devices

MOST_STEPS: Final = 2_000
"""The most times that an ask is given devices while all ways are tried on one node."""

DeviceKind = tuple[str, int, str, int, int]
"""Everything about a device that matters to asks: its type, memory, link group and free part, and what of that part is
kept for nobody."""

DevicesOf = Mapping[Allocation, tuple[str, ...]]
"""The names of the devices of each member that wants some."""


class Wanting(NamedTuple):
    """A request for devices; *ask* is the ask that has it, if devices may be kept for it."""

    request: DeviceRequest
    ask: Allocation | None = None


class Sharing:
    """The search of devices of one node for all of *wanting*, which are served in their order."""

    def __init__(self, devices: NodeDevices, wanting: Sequence[Wanting], most: int = MOST_STEPS) -> None:
        """Prepares the search in *devices*, which it changes. It ends after *most* steps."""
        self._devices: Final = devices
        self._wanting: Final = wanting
        self._most: Final = most
        self.steps = 0
        """The number of times that somebody was given devices."""
        self.looked = 0
        """The number of sets of devices that were compared with others."""
        self.found: Final[list[tuple[str, ...]]] = []
        """The names of the devices of each of those served so far."""

    @property
    def cut_short(self) -> bool:
        """Tells whether the search has ended before all ways were tried."""
        return self.steps >= self._most or self.looked >= self._most

    def serve_all(self) -> bool:
        """Gives devices to everybody who has none yet, and tells whether all have some."""
        if len(self.found) == len(self._wanting):
            return True
        for taken in self._list_choices(self._wanting[len(self.found)]):
            self.steps += 1
            self._devices.put_on_paper(taken)
            self.found.append(tuple([name for name, _ in taken]))
            if self.serve_all():
                return True
            self.found.pop()
            self._devices.put_on_paper([Taken(name, -share) for name, share in taken])
            if self.steps >= self._most:
                return False
        return False

    def _list_choices(self, wanting: Wanting) -> Iterator[Sequence[Taken]]:
        """Yields the choice for an ask alone, and then all others that differ in more than the names of devices."""
        request, ask = wanting
        first = choose_devices(self._devices, request, ask)
        if first is None:
            return
        yield first
        tried = {self._kinds_of(first)}
        free = [(device, device.free_for(ask)) for device in self._devices]
        suiting = [(device, share) for device, left in free if 0 < (share := device.share_for(request)) <= left]
        usable = [Taken(device.spec.device_id, share) for device, share in suiting]
        for taken in islice(combinations(usable, request.number or 1), self._most):
            self.looked += 1
            kinds = self._kinds_of(taken)
            if kinds in tried or (request.linked and not self._is_linked(taken)):
                continue
            tried.add(kinds)
            yield taken

    def _kinds_of(self, taken: Sequence[Taken]) -> tuple[DeviceKind, ...]:
        return tuple(sorted(kind_of(self._devices.devices[name]) for name, _ in taken))

    def _is_linked(self, taken: Sequence[Taken]) -> bool:
        links = {self._devices.devices[name].spec.link for name, _ in taken}
        return len(taken) == 1 or (len(links) == 1 and "" not in links)


def share_devices(devices: NodeDevices, members: Sequence[Allocation]) -> DevicesOf | None:
    """Returns devices of a node for all of *members* at once, or ``None`` if there are none. Changes *devices*."""
    wanting = [Wanting(ask.shape.devices, ask) for ask in members if ask.shape.devices is not None]
    wanting.sort(key=lambda one: (hardness_of(one.request), one.ask.order if one.ask is not None else ()))
    search = Sharing(devices, wanting)
    if not search.serve_all():
        return None
    return {one.ask: names for one, names in zip(wanting, search.found, strict=True) if one.ask is not None}


def share_on_nodes(
    places: Iterable[tuple[Allocation, Node]], left_on: Callable[[Node, Sequence[Allocation]], NodeDevices | None]
) -> DevicesOf | None:
    """Returns devices for all members in *places* on their nodes, or ``None`` if there are none for all of them.

    *left_on* returns the devices of a node that its members may share, as a copy; ``None``: it has none.
    """
    on_node: dict[Node, list[Allocation]] = {}
    for ask, node in places:
        if ask.shape.devices is not None:
            on_node.setdefault(node, []).append(ask)
    found: dict[Allocation, tuple[str, ...]] = {}
    for node, members in on_node.items():
        devices = left_on(node, members)
        theirs = None if devices is None else share_devices(devices, members)
        if theirs is None:
            return None
        found.update(theirs)
    return found


def kind_of(device: Device) -> DeviceKind:
    """Returns what of *device* matters to asks."""
    spec = device.spec
    return spec.type, spec.memory, spec.link, device.free, device.free_for(None)


def hardness_of(request: DeviceRequest) -> tuple[bool, int, int, bool]:
    """Returns the sort key for the order in which asks get devices: linked ones first, then whole ones, the largest
    number first, then parts, the largest first."""
    return not request.linked, -request.number, -(request.share or request.memory or WHOLE), not request.types
