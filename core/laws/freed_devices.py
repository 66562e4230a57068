"""Judges whether victims free the devices that an ask wants, and which victims are needed for this.

It binds every kind of preemption that serves asks with devices. It counts the remaining part of each device by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Final

from kornel.core.domain.devices import DeviceRequest, DeviceSpec
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node

MOST_MEMBERS: Final = 6
MOST_DEVICES: Final = 8
"""The most members and devices of one node for which all ways to share them are tried."""
MOST_WAYS: Final = 500
"""The most ways that are tried on one node, which take about two milliseconds."""
_WHOLE = 1_000


def leaves_enough(
    node: Node,
    ask: Allocation,
    victims: Collection[Allocation],
    given_up: Mapping[Allocation, object],
    lenders: Collection[Allocation] = (),
) -> bool:
    """Tells whether *ask* finds its devices on *node* once *victims* have left, and those that are leaving already.

    *given_up*: victims that did not leave in time, and are no longer expected to leave. *lenders*: those whose kept
    devices the ask may have.
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
            others = (other for other in device.kept if other is not ask and other not in lenders)
            left[name] = _WHOLE - held - sum(device.kept[other] for other in others)
    return _has_enough(node, request, left)


def list_faults(
    node: Node,
    named: Mapping[Allocation, Collection[str]],
    victims: Collection[Allocation],
    given_up: Mapping[Allocation, object],
    lenders: Collection[Allocation],
) -> Iterator[str]:
    """Yields what is wrong with giving members of a gang the devices *named* for them on *node*, all of them at once,
    when *victims* have left, and those that are leaving already. *lenders*: as for :func:`leaves_enough`."""
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
    left = _left_on(node, {*named, *lenders}, victims, given_up)
    for name, share in taken.items():
        if share > left.get(name, 0):
            yield f"{name} of {node.node_id} would have {left.get(name, 0)} thousandths for {share}"


def could_share(
    node: Node,
    members: Collection[Allocation],
    victims: Collection[Allocation],
    given_up: Mapping[Allocation, object],
    lenders: Collection[Allocation] = (),
) -> bool | None:
    """Tells whether *members* would all find devices on *node* at once when *victims* have left; ``None``: there are
    too many ways to try them all. *lenders*: as for :func:`leaves_enough`."""
    if node.devices is None:
        return False
    requests = [ask.shape.devices for ask in members if ask.shape.devices is not None]
    left = _left_on(node, {*members, *lenders}, victims, given_up)
    if sum(map(_least_share, requests)) > sum(left.values()):
        return False
    if len(requests) > MOST_MEMBERS or len(left) > MOST_DEVICES:
        return None
    specs = [node.devices.devices[name].spec for name in left]
    # Devices that no request tells apart are one kind, so that equal states are looked at once.
    links = any(request.linked for request in requests)
    types = any(request.types for request in requests)
    memory = any(request.memory for request in requests)
    kinds = [
        DeviceSpec("", spec.type if types else "", spec.memory if memory else 0, spec.link if links else "")
        for spec in specs
    ]
    states = {tuple(sorted(zip(kinds, left.values(), strict=True)))}
    tried = 0
    for request in requests:
        served: set[tuple[tuple[DeviceSpec, int], ...]] = set()
        for before in states:
            for after in _ways_to_serve(request, before):
                served.add(after)
                tried += 1
                if tried > MOST_WAYS:
                    return None
        states = served
    return bool(states)


def _least_share(request: DeviceRequest) -> int:
    """Returns the fewest thousandths of devices that *request* takes, whatever devices there are."""
    return _WHOLE * request.number or request.share or 1


def _ways_to_serve(
    request: DeviceRequest, left: tuple[tuple[DeviceSpec, int], ...]
) -> Iterator[tuple[tuple[DeviceSpec, int], ...]]:
    """Yields what could be left of each device once *request* is served, equal ways once."""
    usable = [at for at, (spec, parts) in enumerate(left) if _share_of(spec, request) <= parts]
    seen: set[tuple[tuple[DeviceSpec, int], ...]] = set()
    for chosen in combinations(usable, request.number or 1):
        taken = tuple([left[at] for at in chosen])
        if taken in seen:
            continue
        seen.add(taken)
        links = {spec.link for spec, _ in taken}
        if request.linked and len(chosen) > 1 and (len(links) > 1 or "" in links):
            continue
        after = [
            (spec, parts - _share_of(spec, request)) if at in chosen else (spec, parts)
            for at, (spec, parts) in enumerate(left)
        ]
        yield tuple(sorted(after))


def _share_of(spec: DeviceSpec, request: DeviceRequest) -> int:
    """Returns the thousandths of a device of *spec* that *request* takes; more than all if it does not suit it."""
    if request.types and spec.type not in request.types:
        return _WHOLE + 1
    if request.memory:
        return -(-request.memory * _WHOLE // spec.memory) if spec.memory else _WHOLE + 1
    return _WHOLE if request.number else request.share


def _left_on(
    node: Node, asks: Collection[Allocation], victims: Collection[Allocation], given_up: Mapping[Allocation, object]
) -> dict[str, int]:
    """Returns, by device of *node* that is still reported, the thousandths that are left for *asks*, who may have what
    is kept for any of them, when *victims* and those that leave already are gone."""
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
