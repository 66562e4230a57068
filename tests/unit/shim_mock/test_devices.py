"""Devices of simulated nodes: what the core may not do with them is found, whatever it says."""

from __future__ import annotations

import pytest

from kornel.shim_client import Device, Devices
from kornel.shim_mock.documents import InputError
from kornel.shim_mock.model.devices import DeviceBooks
from kornel.shim_mock.scenario import parse_scenario

SCENARIO = """
name: devices
nodes:
  - {name: n, resources: {vcore: 8}, devices: [{id: g0, type: T4, link: x}, {id: g1}]}
queues: {partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]}
applications:
  - {id: app, queue: root.a, tasks: [{name: t, resources: {vcore: 1}, devices: WANTS}]}
"""


def books() -> DeviceBooks:
    found = DeviceBooks()
    found.add_node("n", [Device("g0", "T4"), Device("g1", "A100")])
    return found


def test_what_is_given_as_wanted_is_no_fault() -> None:
    found = books()
    assert not list(found.use("n", ("g0",), Devices(fraction=0.4)))
    assert not list(found.use("n", ("g0",), Devices(fraction=0.6)))
    assert not list(found.use("n", ("g1",), Devices(count=1, types=("A100",))))
    assert found.share_in_use() == (2, 0, 2)
    found.free("n", ("g0",), Devices(fraction=0.6))
    assert found.share_in_use() == (1, 1, 2)
    assert not list(found.use("elsewhere", (), None))


@pytest.mark.parametrize(
    ("names", "wants", "fault"),
    [
        (("g0",), Devices(count=1), "overfills device g0 of n: 1400 of 1000 thousandths"),
        (("g0",), Devices(fraction=0.7), "overfills device g0 of n: 1100 of 1000 thousandths"),
        (("g1",), Devices(count=2), "got 1 devices and wants 2"),
        ((), Devices(count=1), "got 0 devices and wants 1"),
        (("g9",), Devices(count=1), "got device g9, which n does not have"),
        (("g1",), Devices(count=1, types=("T4",)), "got device g1 of type 'A100' and wants T4"),
        (("g1",), None, "got devices g1 and wants none"),
    ],
)
def test_faults_are_told(names: tuple[str, ...], wants: Devices | None, fault: str) -> None:
    found = books()
    list(found.use("n", ("g0",), Devices(fraction=0.4)))
    assert list(found.use("n", names, wants)) == [fault]


def test_room_beside_those_who_stay() -> None:
    found = books()
    assert found.fits_beside("n", Devices(count=2), {})
    assert not found.fits_beside("n", Devices(count=2), {"g0": 1})
    assert found.fits_beside("n", Devices(fraction=0.5), {"g0": 600, "g1": 500})
    assert not found.fits_beside("n", Devices(fraction=0.5, types=("T4",)), {"g0": 600})
    assert found.fits_beside("n", None, {"g0": 1000})


def test_scenarios_say_devices_and_wants() -> None:
    scenario = parse_scenario(SCENARIO.replace("WANTS", "{count: 2, linked: true, types: [T4, A100]}"))
    assert scenario.nodes[0].devices == (Device("g0", "T4", link="x"), Device("g1"))
    assert scenario.applications[0].tasks[0].devices == Devices(count=2, linked=True, types=("T4", "A100"))
    scenario = parse_scenario(SCENARIO.replace("WANTS", "{fraction: 0.25}"))
    assert scenario.applications[0].tasks[0].devices == Devices(fraction=0.25)


def test_wants_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="whole devices, a fraction of one or memory"):
        parse_scenario(SCENARIO.replace("WANTS", "{count: 1, fraction: 0.5}"))
