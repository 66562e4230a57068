"""Which devices allocations may hold, and where an ask for some finds them, reckoned from reports, tags and answers
alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kornel.core.domain.commands import NodeAction, NodeSpec
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceSpec, InvalidDevices, read_devices
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import Device
from kornel.core.model.nodes import Node
from tests.properties.machine.view import ContractBroken, NodeView, PartitionView, RequestView


def reported(spec: NodeSpec) -> tuple[DeviceSpec, ...] | None:
    """The devices that *spec* reports; ``None``: it says nothing. Raises for a list that cannot be read."""
    text = dict(spec.attributes).get(DEVICES_ATTRIBUTE)
    return None if text is None else read_devices(text)


def is_readable(spec: NodeSpec) -> bool:
    """Tells whether the devices of *spec* make sense, if it has some."""
    try:
        reported(spec)
    except InvalidDevices:
        return False
    return True


def update(node: NodeView, spec: NodeSpec) -> None:
    """Takes over the devices of *spec*, if it reports some."""
    found = reported(spec)
    if found is not None and spec.action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN, NodeAction.UPDATE):
        node.devices = {device.device_id: device for device in found}


def judge_devices(partition: PartitionView, request: RequestView, *, checked: bool) -> None:
    """What *request*, which was placed just now, holds is on its node, is what it wants, and is nobody else's.

    *checked*: the core chose the node, so it must have found the devices there.
    """
    wanted, node = request.wanted, partition.nodes[request.node]
    said = None if request.spec.devices is None else request.spec.devices.demand
    group = request.owner, request.spec.task_group
    if request.placeholder:
        partition.group_wants.setdefault(group, set()).add(wanted)
    # A real ask that says nothing keeps what its placeholder wanted, also if it has to wait again after all.
    inherited = said is None and not request.placeholder and wanted in partition.group_wants.get(group, ())
    if wanted != said and not inherited:
        raise ContractBroken("devices", f"{request.name!r} wanted {said}, and was told that it wanted {wanted}")
    if wanted is None or not request.devices:
        if request.devices or (checked and wanted is not None):
            raise ContractBroken("devices", f"{request.name!r} wants {wanted} and got {request.devices}")
        return
    if len(request.devices) != (wanted.number or 1):
        raise ContractBroken("devices", f"{request.name!r} wants {wanted} and got {request.devices}")
    if checked:
        found = [node.devices[name] for name in request.devices if name in node.devices]
        if len(found) < len(request.devices) or (wanted.linked and not _are_linked(found)):
            raise ContractBroken("devices", f"{request.name!r} wants {wanted} and got {found} of {request.devices}")
        if wanted.types and any(device.type not in wanted.types for device in found):
            raise ContractBroken("devices", f"{request.name!r} wants {wanted} and got {found}")
    for name in request.devices:
        others = [other for other in partition.on(request.node) if name in other.devices and other is not request]
        shares = [_share(other, node.devices.get(name)) for other in (request, *others)]
        if others and (sum(shares) > 1000 or wanted.number or any(o.wanted and o.wanted.number for o in others)):
            raise ContractBroken("devices", f"{request.name!r} shares {name} with {others}")


def _are_linked(devices: Sequence[DeviceSpec]) -> bool:
    return len(devices) == 1 or (len({device.link for device in devices}) == 1 and bool(devices[0].link))


def _share(request: RequestView, device: DeviceSpec | None) -> int:
    """The least that *request* holds of *device*, in thousandths; 0 where nobody can say."""
    wanted = request.wanted
    if wanted is None:
        return 0
    if wanted.number:
        return 1000
    if wanted.memory and device is not None and device.memory:
        return -(-wanted.memory * 1000 // device.memory)
    return wanted.share


def finds_devices(node: Node, ask: Allocation) -> bool:
    """Tells whether *ask* finds on *node* what it wants, as things stand."""
    wanted = ask.shape.devices
    if wanted is None:
        return True
    usable = [
        device
        for device in (node.devices.devices.values() if node.devices is not None else ())
        if not device.leaving and (not wanted.types or device.spec.type in wanted.types)
    ]
    if wanted.number:
        whole = [device.spec for device in usable if not device.holders and not _kept_for_others(device, node, ask)]
        if not wanted.linked:
            return len(whole) >= wanted.number
        return wanted.number == 1 <= len(whole) or any(_size(whole, link) >= wanted.number for link in _links(whole))
    for device in usable:
        left = 1000 - sum(device.holders.values()) - _kept_for_others(device, node, ask)
        share = wanted.share
        if wanted.memory:
            if device.spec.memory < wanted.memory:
                continue
            share = -(-wanted.memory * 1000 // device.spec.memory)
        if share <= left:
            return True
    return False


def _kept_for_others(device: Device, node: Node, ask: Allocation) -> int:
    """The thousandths of *device* that others than *ask* have preempted for and hold room for on *node*."""
    holding = [r.ask for r in node.reservations.values() if r.ask is not ask]
    return sum(share for other, share in device.kept.items() if other in holding)


def _links(devices: Iterable[DeviceSpec]) -> set[str]:
    return {device.link for device in devices if device.link}


def _size(devices: Iterable[DeviceSpec], link: str) -> int:
    return sum(device.link == link for device in devices)


def find_devices_together(node: Node, asks: Sequence[Allocation]) -> bool:
    """Tells whether all of *asks*, which want the same or nothing, find their devices on *node* at once."""
    wanting = [ask for ask in asks if ask.shape.devices is not None]
    if not wanting:
        return True
    if not finds_devices(node, wanting[0]):
        return False
    wanted = wanting[0].shape.devices
    assert wanted is not None
    assert node.devices is not None
    places = 0
    usable = [
        device
        for device in node.devices.devices.values()
        if not device.leaving and (not wanted.types or device.spec.type in wanted.types)
    ]
    if wanted.number:
        whole = [device.spec for device in usable if not device.holders]
        if wanted.linked and wanted.number > 1:
            places = sum(_size(whole, link) // wanted.number for link in _links(whole))
        else:
            places = len(whole) // wanted.number
        return places >= len(wanting)
    for device in usable:
        left = 1000 - sum(device.holders.values())
        share = wanted.share
        if wanted.memory:
            if device.spec.memory < wanted.memory:
                continue
            share = -(-wanted.memory * 1000 // device.spec.memory)
        places += left // share
    return places >= len(wanting)
