"""The choice of devices against one that tries every set: written from the words of docs/devices.md, not the code."""

from __future__ import annotations

from itertools import combinations, permutations
from unittest.mock import Mock

from hypothesis import assume, given
from hypothesis import strategies as st

from kornel.core.domain.devices import DeviceRequest, DeviceSpec
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices, Taken
from kornel.core.policies.device_choice import choose_devices

GIB = 2**30
TYPES = ("", "A", "B")
LINKS = ("", "", "x", "y", "z")


@st.composite
def some_devices(draw: st.DrawFn, most: int = 7) -> NodeDevices:
    """Up to *most* devices, of which some are held as a whole, some in parts, and one may be leaving."""
    specs = [
        DeviceSpec(
            f"d{at}",
            draw(st.sampled_from(TYPES)),
            draw(st.sampled_from((0, 16, 40))) * GIB,
            draw(st.sampled_from(LINKS)),
        )
        for at in range(draw(st.integers(0, most)))
    ]
    devices = NodeDevices(specs)
    for device in devices:
        share = draw(st.sampled_from((0, 0, 0, 1000, 300, 500, 900)))
        if share:
            devices.book_parts(Mock(spec=Allocation), [Taken(device.spec.device_id, share)])
            device.leaving = draw(st.sampled_from((False, False, False, True)))
    return devices


@st.composite
def some_request(draw: st.DrawFn) -> DeviceRequest:
    types = tuple(draw(st.lists(st.sampled_from(TYPES[1:]), unique=True, max_size=2)))
    kind = draw(st.sampled_from(("whole", "part", "memory")))
    if kind == "whole":
        return DeviceRequest(draw(st.integers(1, 5)), linked=draw(st.booleans()), types=types)
    if kind == "part":
        return DeviceRequest(share=draw(st.sampled_from((1, 100, 300, 500, 700, 999))), types=types)
    return DeviceRequest(memory=draw(st.sampled_from((1, 8 * GIB, 16 * GIB, 24 * GIB, 41 * GIB))), types=types)


def allowed(devices: NodeDevices, request: DeviceRequest) -> list[str]:
    """The devices that are not leaving and of a type that is wanted, in the order of the report."""
    return [
        device.spec.device_id
        for device in devices
        if not device.leaving and (not request.types or device.spec.type in request.types)
    ]


def needs(devices: NodeDevices, name: str, request: DeviceRequest) -> int | None:
    """How many thousandths of one device a part takes: the fewest whose memory is enough."""
    if request.share:
        return request.share
    memory = devices.devices[name].spec.memory
    return next((share for share in range(1, 1001) if share * memory >= request.memory * 1000), None)


def group_of(devices: NodeDevices, name: str) -> object:
    return devices.devices[name].spec.link or (name,)


def lawful_sets(devices: NodeDevices, request: DeviceRequest) -> list[tuple[str, ...]]:
    """Every set of whole devices that would do."""
    free = [name for name in allowed(devices, request) if not devices.devices[name].holders]
    return [
        some
        for some in combinations(free, request.number)
        if not request.linked or len({group_of(devices, name) for name in some}) == 1
    ]


def best_whole(devices: NodeDevices, request: DeviceRequest) -> tuple[str, ...] | None:
    """The set that the rule names: as few groups as any set has; all but the last are those with the most free devices,
    the last is the one with the fewest that holds the rest; among equals, the order of the report."""
    sets = lawful_sets(devices, request)
    if not sets:
        return None
    free = [name for name in allowed(devices, request) if not devices.devices[name].holders]
    groups: dict[object, list[str]] = {}
    for name in free:
        groups.setdefault(group_of(devices, name), []).append(name)
    fewest = min(len({group_of(devices, name) for name in some}) for some in sets)
    order = {group: at for at, group in enumerate(groups)}
    ways = []
    for chosen in permutations(groups, fewest):
        *full, last = chosen
        rest = request.number - sum(len(groups[group]) for group in full)
        if 0 < rest <= len(groups[last]):
            key = ([-len(groups[g]) for g in full], [order[g] for g in full], len(groups[last]), order[last])
            ways.append((key, [*(name for g in full for name in groups[g]), *groups[last][:rest]]))
    return tuple(min(ways)[1])


@given(some_devices(), some_request())
def test_whole_devices_are_the_best_set_of_all(devices: NodeDevices, request: DeviceRequest) -> None:
    assume(request.number)
    found = choose_devices(devices, request)
    expected = best_whole(devices, request)
    assert (None if found is None else tuple(name for name, _ in found)) == expected
    assert found is None or all(share == 1000 for _, share in found)


@given(some_devices(), some_request())
def test_parts_share_before_they_begin_another_device(devices: NodeDevices, request: DeviceRequest) -> None:
    """Of devices that are held in part, the one on which the least is left; only then a whole one, as if one whole
    device was wanted."""
    assume(not request.number)
    found = choose_devices(devices, request)
    fits = {
        name: share
        for name in allowed(devices, request)
        if (share := needs(devices, name, request)) is not None and share <= devices.devices[name].free
    }
    begun = {name: devices.devices[name].free - share for name, share in fits.items() if devices.devices[name].holders}
    if begun:
        tightest = next(name for name, left in begun.items() if left == min(begun.values()))
        assert found == ((tightest, fits[tightest]),)
    elif not fits:
        assert found is None
    else:
        types = request.types
        usable = NodeDevices(devices.devices[name].spec for name in fits)
        expected = best_whole(usable, DeviceRequest(1, types=types))
        assert expected is not None
        assert found == ((expected[0], fits[expected[0]]),)


@given(some_devices(), some_request())
def test_what_is_said_to_fit_does_as_often_as_said(devices: NodeDevices, request: DeviceRequest) -> None:
    """The number of asks that fit is the number of choices that can be made one after the other."""
    expected = devices.count_room(request)
    assert devices.has_room(request) is (expected > 0)
    left = devices.copy()
    for _ in range(expected):
        taken = choose_devices(left, request)
        assert taken is not None
        left.put_on_paper(taken)
    assert choose_devices(left, request) is None
    assert devices.count_room(request) == expected, "the copy is its own"


@given(some_devices(), some_request())
def test_devices_that_are_given_back_fit_again(devices: NodeDevices, request: DeviceRequest) -> None:
    before = {device.spec.device_id: device.free for device in devices}
    taken = choose_devices(devices, request)
    assume(taken is not None)
    assert taken is not None
    holder, successor = Mock(spec=Allocation), Mock(spec=Allocation)
    devices.book_parts(holder, taken)
    assert all(device.free >= 0 for device in devices)
    assert devices.has_room_without([holder], request)
    devices.hand_over(holder, successor)
    assert sorted(devices.held_by(successor)) == sorted(taken)
    assert sorted(devices.give_back(successor)) == sorted(taken)
    assert {device.spec.device_id: device.free for device in devices} == before


@given(some_devices(), some_request())
def test_an_empty_node_could_hold_whatever_fits(devices: NodeDevices, request: DeviceRequest) -> None:
    if devices.has_room(request):
        assert devices.could_hold(request)
    empty = NodeDevices(device.spec for device in devices if not device.leaving)
    assert devices.could_hold(request) is empty.has_room(request)
