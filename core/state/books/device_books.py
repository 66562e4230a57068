"""The accounts of devices: they say which allocation holds which devices of its node, and are changed only here.

The ledger calls these functions where it books room on a node, and where it frees it. Rules: docs/devices.md.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from kornel.core.domain.devices import WHOLE, DeviceRequest, DeviceSpec
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices, Taken
from kornel.core.model.nodes import Node
from kornel.core.policies.device_choice import choose_devices, choose_saved
from kornel.core.state.partition_state import PartitionState


def take_devices(state: PartitionState, holder: Allocation, node: Node, request: DeviceRequest) -> None:
    """Books devices for *holder*, which takes room on *node*: the devices that it names already, or else those that are
    chosen for *request*.

    It gets none if none are free; it runs there anyway, because the shim has reported it.
    """
    devices = node.devices
    taken: Sequence[Taken] | None = None
    if devices is not None:
        taken = name_devices(devices, request, holder.devices) if holder.devices else None
        if taken is None:
            taken = choose_devices(devices, request, holder)
        if taken is None and node.claims is not None:  # It is lent some, or nobody can refuse it.
            savers = [claim.ask for claim in node.claims.list_saved()]
            taken = choose_devices(devices.copy_unkept(savers), request, holder)
    if devices is None or taken is None:
        holder.devices = ()
        return
    devices.book_parts(holder, taken)
    holder.devices = tuple([device_id for device_id, _ in taken])
    note_parts(state, node)


def give_back_devices(state: PartitionState, holder: Allocation, node: Node) -> None:
    """Frees the devices of *node* that *holder* holds."""
    holder.devices = ()
    if node.devices is not None:
        node.devices.give_back(holder)
        note_parts(state, node)


def hand_over_devices(state: PartitionState, holder: Allocation, successor: Allocation, node: Node) -> None:
    """Passes the devices of *holder* on to *successor*, which takes the place of *holder* on *node*."""
    if node.devices is not None:
        node.devices.hand_over(holder, successor)
    successor.devices, holder.devices = holder.devices, ()
    if not successor.devices and successor.shape.devices is not None:
        take_devices(state, successor, node, successor.shape.devices)


def report_devices(state: PartitionState, node: Node, specs: Sequence[DeviceSpec]) -> None:
    """Gives *node* the devices *specs*. Devices that it no longer reports stay as long as they are held."""
    if node.devices is None:
        node.devices = NodeDevices(specs)
    else:
        node.devices.report_anew(specs)
    if not node.devices.devices:
        node.devices = None
    note_parts(state, node)


def name_devices(devices: NodeDevices, request: DeviceRequest, names: Sequence[str]) -> tuple[Taken, ...] | None:
    """Returns the devices called *names*, with the part that *request* takes of each, or ``None`` if too little of one
    of them is free."""
    found: list[Taken] = []
    for name in names:
        device = devices.devices.get(name)
        share = 0 if device is None else share_when_running(device.spec, request)
        if device is None or share > device.free:
            return None
        found.append(Taken(name, share))
    return tuple(found)


def share_when_running(spec: DeviceSpec, request: DeviceRequest) -> int:
    """Returns the thousandths of the device *spec* that a running allocation with *request* holds."""
    if request.number:
        return WHOLE
    if request.share:
        return request.share
    return min(WHOLE, -(-request.memory * WHOLE // spec.memory)) if spec.memory else WHOLE


def note_parts(state: PartitionState, node: Node) -> None:
    """Notes the largest free part of a device among the devices of *node* of which a part is held, and keeps what is
    free for those who save room there."""
    parts = [0]
    if node.devices is not None:
        parts += [device.free for device in node.devices if device.free < WHOLE and not device.leaving]
    most = max(parts)
    if most:
        state.sharing[node] = most
    else:
        state.sharing.pop(node, None)
    keep_saved(node)


def are_usable(node: Node, holder: Allocation) -> bool:
    """Tells whether *holder* holds devices of *node* and the node still reports all of them."""
    if node.devices is None or not holder.devices:
        return False
    return all(name in node.devices.devices and not node.devices.devices[name].leaving for name in holder.devices)


def keep_devices(node: Node, ask: Allocation, victims: Iterable[Allocation], given_up: Container[Allocation]) -> None:
    """Keeps for *ask*, which has preempted on *node*, the devices that it gets once *victims* and the allocations that
    are leaving already have left."""
    if node.devices is not None and ask.shape.devices is not None:
        node.devices.keep(ask, find_later(node, ask, victims, given_up) or ())


def list_kept(node: Node, ask: Allocation) -> list[str]:
    """Returns the names of the devices of *node* that are kept for *ask*."""
    return [name for name, device in node.devices.devices.items() if ask in device.kept] if node.devices else []


def find_later(
    node: Node,
    ask: Allocation,
    victims: Iterable[Allocation],
    given_up: Container[Allocation],
    instead_of: Allocation | None = None,
) -> list[str] | None:
    """Returns the names of the devices of *node* that *ask* gets once *victims* and the allocations that are leaving
    already, but for those *given_up*, have left; ``None``: too few. *instead_of*: whoever gives up what is kept for
    it."""
    if ask.shape.devices is None:
        return []
    if node.devices is None:
        return None
    later = node.devices.copy_unkept(() if instead_of is None else (instead_of,))
    for allocation in [*(a for a in node.allocations.values() if a.preempted and a not in given_up), *victims]:
        later.give_back(allocation)
    taken = choose_devices(later, ask.shape.devices, ask)
    return None if taken is None else [name for name, _ in taken]


def keep_saved(node: Node) -> None:
    """Keeps the free devices of *node* for those who save room there, in their order: as many as each asks for."""
    if node.devices is None or node.claims is None:
        return
    wanting = [(claim.ask, claim.ask.shape.devices) for claim in node.claims.list_saved()]
    for ask, _ in wanting:
        node.devices.keep(ask, ())
    for ask, request in wanting:
        if request is not None and ask.held_on is not node:
            node.devices.keep(ask, choose_saved(node.devices, request, ask))


def keep_no_more(node: Node, ask: Allocation) -> None:
    """Stops keeping devices of *node* for *ask*, unless it saves room there."""
    if node.devices is not None:
        node.devices.keep(ask, ())
        keep_saved(node)
