"""Views of the devices of a node and of their holders."""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.model.devices import Device
from kornel.core.model.nodes import Node


class DeviceHolder(NamedTuple):
    """One allocation that holds a device, or one ask for which the device is kept while the shim is asked.

    share  thousandths of the device
    """

    key: str
    application_id: str
    share: int


class DeviceView(NamedTuple):
    """One device of a node.

    memory   bytes; 0: unknown
    link     its link group; empty: it has no links
    free     the thousandths that nobody holds
    leaving  the node no longer reports it, so it is removed once it is free
    """

    device_id: str
    type: str
    memory: int
    link: str
    free: int
    leaving: bool
    holders: tuple[DeviceHolder, ...]


def device_views(node: Node) -> tuple[DeviceView, ...]:
    """Returns views of the devices of *node*, in the order of its report."""
    if node.devices is None:
        return ()
    return tuple([_show_device(device) for device in node.devices])


def _show_device(device: Device) -> DeviceView:
    holders = sorted(
        [DeviceHolder(holder.spec.key, holder.spec.application_id, share) for holder, share in device.holders.items()]
    )
    spec = device.spec
    return DeviceView(spec.device_id, spec.type, spec.memory, spec.link, device.free, device.leaving, tuple(holders))
