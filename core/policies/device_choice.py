"""Chooses the devices of a node that an ask gets. Rules: docs/devices.md.

Parts of devices are taken from devices of which others hold parts already, the tightest first, and whole devices from
the link groups with the fewest free devices. So whole devices, and whole link groups, stay free for asks that need
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.domain.devices import WHOLE, DeviceRequest
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.devices import Device, NodeDevices, Taken, link_group
from kornel.core.model.nodes import Node


def choose_devices(
    devices: NodeDevices, request: DeviceRequest, ask: Allocation | None = None
) -> tuple[Taken, ...] | None:
    """Returns the devices that an ask for *request* gets now, or ``None`` if there are none for it. *ask* is that ask,
    if devices may be kept for it."""
    found = [(device, device.free_for(ask)) for device in devices]
    if request.number:
        usable = [device for device, free in found if free == WHOLE and device.share_for(request)]
        chosen = _choose_whole(usable, request.number, linked=request.linked)
        return None if chosen is None else tuple(Taken(device.spec.device_id, WHOLE) for device in chosen)
    fitting = [(device, share, free) for device, free in found if 0 < (share := device.share_for(request)) <= free]
    begun = [(free - share, at) for at, (_, share, free) in enumerate(fitting) if free < WHOLE]
    if begun:
        device, share, _ = fitting[min(begun)[1]]
        return (Taken(device.spec.device_id, share),)
    first = _choose_whole([device for device, _, _ in fitting], 1, linked=False)
    if first is None:
        return None
    return (Taken(first[0].spec.device_id, first[0].share_for(request)),)


def choose_saved(devices: NodeDevices, request: DeviceRequest, ask: Allocation) -> list[str]:
    """Returns the names of the devices that are kept for *ask*, which saves room: those that it gets now, or, if there
    are too few, as many as it wants, those with the most free parts. Linked ones are of the group with the most."""
    chosen = choose_devices(devices, request, ask)
    if chosen is not None:
        return [device_id for device_id, _ in chosen]
    number, groups = request.number or 1, dict[str, list[tuple[int, str]]]()
    for device in devices:
        share = device.share_for(request)
        if share and share + device.kept_from(ask) <= WHOLE:  # Nobody loses what is kept for him already.
            group = groups.setdefault(link_group(device) if request.linked else "", [])
            group.append((min(share, device.free_for(ask)), device.spec.device_id))
    most = [sorted(group, key=lambda one: -one[0])[:number] for group in groups.values() if len(group) >= number]
    return [name for free, name in max(most, key=lambda group: sum(free for free, _ in group), default=()) if free]


def count_left(node: Node, before: Iterable[Reservation], request: DeviceRequest) -> int:
    """Returns the number of asks for *request* that would find their devices on *node*, beside those of the saved
    claims *before*, if everybody ended who may run elsewhere."""
    if node.devices is None:
        return 0
    left = node.devices.copy_unkept({ask for device in node.devices for ask in device.kept})
    for holder in [other for device in node.devices for other in device.holders if not other.spec.required_node]:
        left.give_back(holder)
    for wanted in filter(None, [claim.ask.shape.devices for claim in before]):
        left.put_on_paper(choose_devices(left, wanted) or ())
    return left.count_room(request)


def _choose_whole(usable: Iterable[Device], count: int, *, linked: bool) -> list[Device] | None:
    """Returns *count* of the free devices *usable*, from as few link groups as possible.

    All of these groups but the last are the ones with the most free devices. The last one is the group with the fewest
    free devices that is enough for the rest. Among equal groups, the order of the report counts.
    """
    groups: dict[str, list[Device]] = {}
    for device in usable:
        groups.setdefault(link_group(device), []).append(device)
    left = list(groups.values())
    chosen: list[Device] = []
    while True:
        missing = count - len(chosen)
        enough = [group for group in left if len(group) >= missing]
        if enough:
            return chosen + min(enough, key=len)[:missing]
        if linked or not left:
            return None
        roomiest = max(left, key=len)
        chosen += roomiest
        left.remove(roomiest)
