"""A predicate for the planner that makes victims free the devices which an ask wants. It is asked before the predicate
of the shim (docs/devices.md, preemption.md B.12).

The planner chooses victims by amounts. Whether further victims have to leave depends on the devices that these victims
hold; this predicate decides that, as the shim's predicate decides other matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.devices import Device, NodeDevices, link_group
from kornel.core.model.nodes import Node
from kornel.core.preemption.plan import PreemptionPredicate
from kornel.core.preemption.walk import Candidate

MOST_NODES: Final = 16
"""The most nodes with room for the amounts of an ask on which one attempt looks for victims because of devices."""

MOST_ORDERS: Final = 4
"""The most devices of one node of which an attempt tries to free a part."""


class DevicePredicate:
    """A predicate that is satisfied once enough victims leave for the devices of the ask and, if the shim has a
    predicate, the shim agrees."""

    __slots__ = ("_given_up", "_inner", "_lent")

    def __init__(
        self,
        inner: PreemptionPredicate | None,
        given_up: Mapping[Allocation, object],
        lent: Mapping[Node, Sequence[Reservation]],
    ) -> None:
        self._inner: Final = inner
        self._given_up: Final = given_up
        self._lent: Final = lent

    def devices_on(self, node: Node) -> NodeDevices | None:
        """Returns the devices of *node*, as if those kept none that lend to the ask; ``None``: it has none."""
        lenders = self._lent.get(node)
        if node.devices is None or not lenders:
            return node.devices
        return node.devices.copy_unkept(claim.ask for claim in lenders)

    def __call__(self, ask: Allocation, node: Node, victims: tuple[Allocation, ...], start: int) -> int | None:
        last = next((at for at in range(start, len(victims)) if self.has_devices(ask, node, victims[: at + 1])), None)
        if last is None or self._inner is None:
            return last
        return self._inner(ask, node, victims, last)

    def has_devices(self, ask: Allocation, node: Node, victims: tuple[Allocation, ...] = ()) -> bool:
        """Tells whether *ask* finds its devices on *node* once *victims* and the allocations that are leaving already
        have left."""
        request = ask.shape.devices
        if request is None:
            return True
        devices = self.devices_on(node)
        if devices is None:
            return False
        leaving = [a for a in node.allocations.values() if a.preempted and a not in self._given_up]
        return devices.has_room_without([*leaving, *victims], request, ask)


def measure_missing(node: Node, ask: Allocation) -> int:
    """Returns the least number of thousandths of devices that have to become free on *node* for *ask*. Nodes with the
    lowest number are tried first."""
    request = ask.shape.devices
    if request is None or node.devices is None:
        return 0
    shares = sorted(share - device.free for device in node.devices if (share := device.share_for(request)))
    return sum(max(0, missing) for missing in shares[: request.number or 1])


def list_orders(
    ask: Allocation, there: NodeDevices | None, offered: Sequence[Candidate]
) -> Iterator[tuple[list[Candidate], int]]:
    """Yields orders of *offered*, the possible victims on the node with the devices *there*, each with a number: if
    that many victims at its beginning leave, *ask* finds its devices. They hold one device, or as many as it wants,
    and devices with few holders are chosen."""
    request = ask.shape.devices
    if request is None or there is None:
        return
    at = {victim[4]: index for index, victim in enumerate(offered)}
    groups: dict[str, list[list[int]]] = {}
    for device in there:
        holders = _holders_to_leave(device, request, at, ask)
        if holders is not None:
            groups.setdefault(link_group(device) if request.linked else "", []).append(holders)
    for devices in groups.values():
        devices.sort(key=lambda holders: (len(holders), holders))
        if request.number and len(devices) < request.number:
            continue
        choices = [devices[: request.number]] if request.number else [[holders] for holders in devices[:MOST_ORDERS]]
        for chosen in choices:
            first = sorted({index for holders in chosen for index in holders})
            rest = [index for index in range(len(offered)) if index not in set(first)]
            yield [offered[index] for index in (*first, *rest)], len(first)


def _holders_to_leave(
    device: Device, request: DeviceRequest, at: Mapping[Allocation, int], ask: Allocation
) -> list[int] | None:
    """Returns the indexes of the first victims in order that free enough of *device*, or ``None`` if there are not
    enough of them or the device does not suit the request."""
    share = device.share_for(request)
    kept = sum(part for other, part in device.kept.items() if other is not ask)
    missing = share + kept - device.free - sum(part for holder, part in device.holders.items() if holder.preempted)
    if not share:
        return None
    found: list[int] = []
    for holder, part in sorted(device.holders.items(), key=lambda entry: at.get(entry[0], len(at))):
        if missing <= 0 or holder not in at:
            break
        found.append(at[holder])
        missing -= part
    return found if missing <= 0 else None
