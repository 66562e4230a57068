"""Judges whether victims free the devices that an ask wants, and which victims are needed for this.

It binds every kind of preemption that serves asks with devices. It counts the remaining part of each device by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from kornel.core.domain.devices import DeviceRequest, DeviceSpec
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node

MOST_MEMBERS: Final = 6
MOST_DEVICES: Final = 8
"""The most members and devices of one node for which all ways to share them are tried."""
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
        fits = not request.types or device.spec.type in request.types
        if fits and not device.leaving:
            held = sum(share for holder, share in device.holders.items() if holder not in gone)
            left[name] = _WHOLE - held - sum(share for other, share in device.kept.items() if other is not ask)
    return _has_enough(node, request, left)


def list_faults(
    node: Node,
    named: Mapping[Allocation, Collection[str]],
    victims: Collection[Allocation],
    given_up: Mapping[Allocation, object],
) -> Iterator[str]:
    """Yields what is wrong with giving members of a gang the devices *named* for them on *node*, all of them at once,
    when *victims* have left, and those that are leaving already."""
    if node.devices is None:
        if any(ask.shape.devices is not None for ask in named):
            yield f"{node.node_id} has no devices"
        return
    taken: dict[str, int] = {}
    for ask, names in named.items():
        request = ask.shape.devices
        if request is None:
            continue
        here = [node.devices.devices[name] for name in names if name in node.devices.devices]
        links = {device.spec.link for device in here}
        if len(set(names)) != (request.number or 1) or len(here) < len(names):
            yield f"{ask.key} wants {request.describe_request()}, and would get {', '.join(names) or 'none'}"
        elif request.linked and len(names) > 1 and (len(links) > 1 or "" in links):
            yield f"{ask.key} wants linked devices, and would get {', '.join(names)}"
        for device in here:
            if device.leaving or (request.types and device.spec.type not in request.types):
                yield f"{ask.key} cannot use {device.spec.device_id}"
            share = _WHOLE if request.number else request.share
            if request.memory:
                share = -(-request.memory * _WHOLE // device.spec.memory) if device.spec.memory else _WHOLE + 1
            taken[device.spec.device_id] = taken.get(device.spec.device_id, 0) + share
    left = _left_on(node, named, victims, given_up)
    for name, share in taken.items():
        if share > left.get(name, 0):
            yield f"{name} of {node.node_id} would have {left.get(name, 0)} thousandths for {share}"


def could_share(
    node: Node,
    members: Collection[Allocation],
    victims: Collection[Allocation],
    given_up: Mapping[Allocation, object],
) -> bool | None:
    """Tells whether *members* would all find devices on *node* at once when *victims* have left; ``None``: there are
    too many ways to try them all."""
    if node.devices is None:
        return False
    requests = [ask.shape.devices for ask in members if ask.shape.devices is not None]
    left = _left_on(node, members, victims, given_up)
    specs = [node.devices.devices[name].spec for name in left]
    if len(requests) > MOST_MEMBERS or len(specs) > MOST_DEVICES:
        return None
    states = {tuple(left.values())}
    for request in requests:
        states = {after for before in states for after in _ways_to_serve(request, specs, before)}
    return bool(states)


def _ways_to_serve(
    request: DeviceRequest, specs: Sequence[DeviceSpec], left: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yields what could be left of each device once *request* is served."""
    for chosen in combinations(range(len(left)), request.number or 1):
        links = {specs[at].link for at in chosen}
        if request.linked and len(chosen) > 1 and (len(links) > 1 or "" in links):
            continue
        after = list(left)
        for at in chosen:
            spec = specs[at]
            share = _WHOLE if request.number else request.share
            if request.memory:
                share = -(-request.memory * _WHOLE // spec.memory) if spec.memory else _WHOLE + 1
            after[at] -= share if not request.types or spec.type in request.types else _WHOLE + 1
        if min(after) >= 0:
            yield tuple(after)


def _left_on(
    node: Node, asks: Collection[Allocation], victims: Collection[Allocation], given_up: Mapping[Allocation, object]
) -> dict[str, int]:
    """Returns, by device of *node* that is still reported, the thousandths that are left for *asks* when *victims* and
    those that leave already are gone."""
    assert node.devices is not None, "the caller has checked"
    gone = {a for a in node.allocations.values() if a.preempted and a not in given_up}.union(victims)
    left: dict[str, int] = {}
    for name, device in node.devices.devices.items():
        held = sum(share for holder, share in device.holders.items() if holder not in gone)
        kept = sum(share for other, share in device.kept.items() if other not in asks)
        if not device.leaving:
            left[name] = max(0, _WHOLE - held - kept)
    return left


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
