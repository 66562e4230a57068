"""Finds devices of one node for several asks at once.

Each ask gets the devices that it would be given by itself, asks that are hard to serve first. If this leaves somebody
without devices, other ways are tried, up to a number of steps.

Devices between which none of the asks can tell a difference count as one kind, and a set of devices is tried only if
its kinds differ from those of all sets tried before. What was left when the rest of the asks could not be served is
remembered, because other ways often leave the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import proxy

from kornel.core.domain.devices import WHOLE, DeviceRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import Device, NodeDevices, Taken
from kornel.core.model.nodes import Node
from kornel.core.policies.device_choice import choose_devices

MOST_STEPS: Final = 200
"""The most steps while all ways are tried on one node, which take about three milliseconds."""
DEVICES_PER_STEP: Final = 16
"""The number of devices for which giving an ask some of them counts as one step."""

DeviceKind = tuple[str, int, str, int, int]
"""Everything about a device that matters to asks: its type, memory, link group and free part, and what of that part is
kept for nobody."""

Left = tuple[tuple[int, int], ...]
"""The kind and the free part of each device, sorted."""

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
        self._cost: Final = 1 + len(devices.devices) // DEVICES_PER_STEP
        self.steps = 0
        """The steps taken so far."""
        self._taken: Final[list[Sequence[Taken]]] = []
        """The parts given to each of those served so far."""
        self._choices: Final[list[Iterator[Sequence[Taken]]]] = []
        """The choices that are left for each of those served so far, and for the next one."""
        self._kinds: dict[Device, int] = {}
        """The number of the kind of each device, which is made when it is needed first."""
        self._failed: Final[set[tuple[int, Left]]] = set()
        """The states from which not all of the others could be served: the number of asks served, and what was left."""

    @property
    def cut_short(self) -> bool:
        """Tells whether the search has ended before all ways were tried."""
        return self.steps >= self._most

    @property
    def found(self) -> list[tuple[str, ...]]:
        """Returns the names of the devices of each of those served so far."""
        return [tuple([name for name, _ in taken]) for taken in self._taken]

    def serve_all(self) -> bool:
        """Gives devices to everybody who has none yet, and tells whether all have some."""
        while len(self._taken) < len(self._wanting):
            at = len(self._taken)
            if at == len(self._choices):
                # A generator that referred to its owner would keep it, and be freed by the collector alone.
                self._choices.append(Sharing._list_choices(proxy(self), at))
            taken = next(self._choices[at], None)
            if taken is not None:
                self.steps += self._cost
                self._devices.put_on_paper(taken)
                self._taken.append(taken)
                continue
            if not at or self.cut_short:
                return False
            self._choices.pop()
            self._devices.put_on_paper([Taken(name, -share) for name, share in self._taken.pop()])
        return True

    def name_devices(self) -> DevicesOf:
        """Returns the devices of each ask served so far."""
        served = zip(self._wanting, self.found, strict=False)
        return {wanting.ask: names for wanting, names in served if wanting.ask is not None}

    def _list_choices(self, at: int) -> Iterator[Sequence[Taken]]:
        """Yields the choice for the ask at the position *at* alone, and then all others that differ in more than the
        names of devices."""
        request, ask = self._wanting[at]
        first = choose_devices(self._devices, request, ask)
        if first is None:
            return
        yield first
        state = at, self._describe_left()
        if state in self._failed:
            return
        alike: dict[tuple[int, int], list[Taken]] = {}
        for device in self._devices:
            share = device.share_for(request)
            if 0 < share <= device.free_for(ask):
                alike.setdefault((self._kinds[device], device.free), []).append(Taken(device.spec.device_id, share))
        linked: dict[str, list[list[Taken]]] = {}
        for same in alike.values():
            link = self._devices.devices[same[0].device_id].spec.link if _must_be_linked(request) else ""
            linked.setdefault(link, []).append(same)
        if _must_be_linked(request):
            linked.pop("", None)
        tried = self._kinds_of(first)
        for groups in linked.values():
            for taken in _list_sets(groups, request.number or 1):
                if self._kinds_of(taken) != tried:
                    yield taken
        self._failed.add(state)

    def _describe_left(self) -> Left:
        """Returns what is left of all devices, with equal answers for states between which no ask can tell a
        difference."""
        if not self._kinds:
            self._kinds = _number_kinds(self._devices, [wanting.request for wanting in self._wanting])
        return tuple(sorted([(kind, device.free) for device, kind in self._kinds.items()]))

    def _kinds_of(self, taken: Sequence[Taken]) -> Left:
        devices = [self._devices.devices[name] for name, _ in taken]
        return tuple(sorted([(self._kinds[device], device.free) for device in devices]))


def _must_be_linked(request: DeviceRequest) -> bool:
    return request.linked and request.number > 1


def _number_kinds(devices: NodeDevices, requests: Sequence[DeviceRequest]) -> dict[Device, int]:
    """Returns the number of the kind of each of *devices*: those of one kind are worth the same to all *requests*."""
    different = list(dict.fromkeys(requests))
    links_matter = any(map(_must_be_linked, different))
    numbers: dict[object, int] = {}
    return {
        device: numbers.setdefault(
            (
                tuple([device.share_for(request) for request in different]),
                device.spec.link if links_matter else "",
                frozenset(device.kept.items()),
            ),
            len(numbers),
        )
        for device in devices
    }


def _list_sets(groups: Sequence[Sequence[Taken]], number: int) -> Iterator[list[Taken]]:
    """Yields every way to take *number* of *groups*. Only the number taken of each group matters, so its first ones are
    taken."""
    if not number:
        yield []
    elif sum(map(len, groups)) >= number:
        first, rest = groups[0], groups[1:]
        for count in range(min(number, len(first)), -1, -1):
            for others in _list_sets(rest, number - count):
                yield [*first[:count], *others]


def search_sharing(devices: NodeDevices, members: Sequence[Allocation]) -> Sharing:
    """Returns a search, not begun yet, of devices of a node for all of *members* at once. It changes *devices*."""
    wanting = [Wanting(ask.shape.devices, ask) for ask in members if ask.shape.devices is not None]
    wanting.sort(key=_by_hardness)
    return Sharing(devices, wanting)


def share_devices(devices: NodeDevices, members: Sequence[Allocation]) -> DevicesOf | None:
    """Returns devices of a node for all of *members* at once, or ``None`` if there are none. Changes *devices*."""
    search = search_sharing(devices, members)
    return search.name_devices() if search.serve_all() else None


def _by_hardness(wanting: Wanting) -> tuple[object, ...]:
    """Returns the sort key of an ask. Asks with equal requests stand together, so that equal groups of requests are
    always served in the same order."""
    request, ask = wanting
    return hardness_of(request), request.types, request.memory, () if ask is None else ask.order


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
