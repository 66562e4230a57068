"""The reasons why a node does not have the devices that an ask wants, in words and as a distance."""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.domain.devices import WHOLE, DeviceRequest, write_share
from kornel.core.model.devices import Device, NodeDevices
from kornel.core.model.nodes import Node
from kornel.shared.readable_amounts import format_count

MOST_GROUPS = 4
"""The most link groups that are named."""


def describe_lack(node: Node, request: DeviceRequest, *, empty: bool = False) -> str:
    """Returns in words which of the devices in *request* are free on *node*, or, with *empty*, that the devices of the
    node would never be enough."""
    wanted = f"wants {request.describe_request()}"
    if node.devices is None:
        return f"{wanted}; the node has reported no devices"
    fitting = _find_fitting(node.devices, request)
    of_type = f" of type {' or '.join(request.types)}" if request.types else ""
    of_type += " with so much memory" if request.memory else ""
    if empty:
        # The request for which it would not be enough precedes this text.
        number = format_count(len(fitting), "device")
        return f"{wanted}; the node has {number}{of_type}{_write_groups(fitting, request, empty=True)}"
    if not request.number:
        most = max([device.free for device in fitting], default=0)
        return f"{wanted}; at most {write_share(most)} of one{of_type} is free"
    free = sum(device.free == WHOLE for device in fitting)
    parted = sum(0 < device.free < WHOLE for device in fitting)
    parts = f", {parted} held in part" if parted else ""
    groups = _write_groups(fitting, request, empty=False)
    return f"{wanted}; {free} of {format_count(len(fitting), 'device')}{of_type} free as a whole{groups}{parts}"


def measure_lack(node: Node, request: DeviceRequest) -> float:
    """Returns the part of *request* that is missing on *node*, from 0 to 1."""
    if node.devices is None:
        return 1.0
    fitting = _find_fitting(node.devices, request)
    if request.number:
        free = [device for device in fitting if device.free == WHOLE]
        most = max(_count_groups(free).values(), default=0) if request.linked else len(free)
        return max(0.0, 1 - most / request.number)
    shares = [(device.free, device.share_for(request)) for device in fitting]
    return min([max(0.0, 1 - free / share) for free, share in shares if share], default=1.0)


def _find_fitting(devices: NodeDevices, request: DeviceRequest) -> list[Device]:
    """Returns the devices that suit *request* when they are free."""
    return [device for device in devices if device.share_for(request)]


def _count_groups(devices: Iterable[Device]) -> dict[str, int]:
    """Returns the number of *devices* in each link group. A device without links is a group by itself."""
    found: dict[str, int] = {}
    for device in devices:
        found[device.spec.link] = 1 if not device.spec.link else found.get(device.spec.link, 0) + 1
    return found


def _write_groups(devices: list[Device], request: DeviceRequest, *, empty: bool) -> str:
    if not request.linked:
        return ""
    names = list(dict.fromkeys(device.spec.link for device in devices if device.spec.link))
    if not names:
        return ", linked with none"
    free = _count_groups([device for device in devices if empty or device.free == WHOLE])
    said = [f"{name} {free.get(name, 0)}" for name in names[:MOST_GROUPS]]
    more = len(names) - len(said)
    return f" (by link group: {', '.join(said)}{f' and {more} more' if more else ''})"
