"""Judges whether victims free the devices that an ask wants, and which victims are needed for this.

It binds every kind of preemption that serves asks with devices. It counts the remaining part of each device by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kornel.core.domain.devices import DeviceRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node

_WHOLE = 1_000


def leaves_enough(
    node: Node, ask: Allocation, victims: Collection[Allocation], given_up: Mapping[Allocation, object]
) -> bool:
    """Tells whether *ask* finds its devices on *node* once *victims* have left, and those that are leaving already.

    *given_up*: victims that did not leave in time, and are no longer expected to leave.
    """
    request = ask.shape.devices
    if request is None:
        return True
    if node.devices is None:
        return False
    leaving = {a for a in node.allocations.values() if a.preempted and a not in given_up}
    gone = leaving.union(victims)
    left: dict[str, int] = {}
    for name, device in node.devices.devices.items():
        kept = device.kept_for is not None and device.kept_for is not ask
        fits = not request.types or device.spec.type in request.types
        if fits and not kept and not device.leaving:
            left[name] = _WHOLE - sum(share for holder, share in device.holders.items() if holder not in gone)
    return _has_enough(node, request, left)


def _has_enough(node: Node, request: DeviceRequest, left: Mapping[str, int]) -> bool:
    assert node.devices is not None, "the caller has checked"
    specs = {name: node.devices.devices[name].spec for name in left}
    if request.number:
        whole = [name for name, parts in left.items() if parts == _WHOLE]
        if not request.linked or request.number == 1:
            return len(whole) >= request.number
        links = [specs[name].link for name in whole if specs[name].link]
        return any(links.count(link) >= request.number for link in set(links))
    if request.share:
        return any(parts >= request.share for parts in left.values())
    # The memory of the free parts, in thousandths of bytes, so that nothing is rounded.
    return any(parts * specs[name].memory >= request.memory * _WHOLE for name, parts in left.items())
