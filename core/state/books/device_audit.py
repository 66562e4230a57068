"""The audit of devices: it counts the parts of each device and their holders again from the allocations
(docs/devices.md).

It deliberately shares no code with the functions that keep the accounts.
"""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.books.findings import Broken
from kornel.core.state.partition_state import PartitionState

_WHOLE = 1_000


def check(state: PartitionState) -> Iterator[Broken]:
    """Yields all inconsistencies of devices."""
    sharing: dict[Node, int] = {}
    for node in state.nodes.values():
        yield from _check_node(node)
        devices = [] if node.devices is None else list(node.devices.devices.values())
        held = [sum(device.holders.values()) for device in devices if not device.leaving]
        parts = [_WHOLE - share for share in held if 0 < share < _WHOLE]
        if parts:
            sharing[node] = max(parts)
    if sharing != state.sharing:
        yield Broken("D1", state.name, f"{state.sharing} have devices held in part, and {sharing} really do")
    for application in state.applications.values():
        for ask in application.asks.values():
            if ask.devices and ask.node is None and ask.held_on is None:
                yield Broken("D2", ask.key, f"waits, and holds {ask.devices}")


def _check_node(node: Node) -> Iterator[Broken]:
    charged: list[Allocation] = [*node.allocations.values(), *node.held.values()]
    named: dict[str, set[Allocation]] = {}
    for allocation in charged:
        wanted = allocation.shape.devices
        if wanted is not None and allocation.devices and len(allocation.devices) != (wanted.number or 1):
            yield Broken("D2", allocation.key, f"wants {wanted}, and holds {allocation.devices}")
        for name in allocation.devices:
            named.setdefault(name, set()).add(allocation)
    if node.devices is None:
        if named:
            yield Broken("D2", node.node_id, f"has no devices, and {named} are held on it")
        return
    for name, device in node.devices.devices.items():
        holders = named.pop(name, set())
        if device.spec.device_id != name or set(device.holders) != holders:
            yield Broken("D1", node.node_id, f"{name} is held by {list(device.holders)}, allocations say {holders}")
        for ask, share in device.kept.items():
            if ask.reservation is None or ask.reservation.node is not node:
                yield Broken("D4", node.node_id, f"{name} is kept for {ask.key}, which holds no room there")
            wanted = ask.shape.devices
            if wanted is None or (wanted.number and share != _WHOLE) or not 0 < share <= _WHOLE:
                yield Broken("D4", node.node_id, f"{share} of {name} are kept for {ask.key}, which wants {wanted}")
        held = sum(device.holders.values())
        if device.free != _WHOLE - held or held > _WHOLE:
            yield Broken("D1", node.node_id, f"{name} has {device.free} free, and {held} are held")
        if device.leaving and not holders:
            yield Broken("D1", node.node_id, f"{name} is reported no more, and nobody holds it")
        for allocation in holders:
            wanted = allocation.shape.devices
            if wanted is not None and wanted.number and device.holders.get(allocation) != _WHOLE:
                yield Broken("D3", node.node_id, f"{name} is to be {allocation.key}'s alone")
    if named:
        yield Broken("D2", node.node_id, f"has no {sorted(named)}, which allocations hold")
