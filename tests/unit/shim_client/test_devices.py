"""Devices from the client library to the engine's values and back: reports, wants, and what an allocation holds."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceRequest, DeviceSpec, read_devices
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.service.wire.scheduler_wire import Decoder, Encoder
from kornel.shim_client import Ask, Device, Devices, devices_attribute, devices_of
from kornel.si.v1 import si_pb2 as si

GIB = 2**30


def test_the_engine_reads_the_report_that_the_library_wrote() -> None:
    attributes = devices_attribute([Device("0", "A100", 80 * GIB, "x"), Device("1")])
    message = si.NodeRequest(
        rmID="rm", nodes=[si.NodeInfo(nodeID="n", action=si.NodeInfo.CREATE, attributes=attributes)]
    )
    (command,) = Decoder().node_commands(message)
    text = dict(command.nodes[0].attributes)[DEVICES_ATTRIBUTE]
    assert read_devices(text) == (DeviceSpec("0", "A100", 80 * GIB, "x"), DeviceSpec("1"))
    assert read_devices(devices_attribute([])[DEVICES_ATTRIBUTE]) == ()


@pytest.mark.parametrize(
    ("devices", "read"),
    [
        (Devices(count=2, linked=True, types=("A100", "H100")), DeviceRequest(2, linked=True, types=("A100", "H100"))),
        (Devices(fraction=0.25), DeviceRequest(share=250)),
        (Devices(memory="16Gi"), DeviceRequest(memory=16 * GIB)),
    ],
)
def test_the_engine_reads_the_wants_that_the_library_wrote(devices: Devices, read: DeviceRequest) -> None:
    ask = Ask("k", "app", {"vcore": 1}, devices=devices)
    newer = si.AllocationRequest(rmID="rm", allocations=[ask.to_g3()])
    older = si.AllocationRequest(rmID="rm", asks=[ask.to_g2()])
    for message in (newer, older):
        (command,) = Decoder().allocation_commands(message)
        assert [spec.devices for spec in command.allocations] == [read]


def test_an_ask_without_wants_says_nothing() -> None:
    message = si.AllocationRequest(rmID="rm", allocations=[Ask("k", "app", {"vcore": 1}).to_g3()])
    (command,) = Decoder().allocation_commands(message)
    assert command.allocations[0].devices is None


@pytest.mark.parametrize("wrong", [{}, {"count": 1, "fraction": 0.5}, {"fraction": 1.5}, {"linked": True}])
def test_an_ask_wants_one_kind_of_amount(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"whole devices|fraction"):
        Devices(**wrong)


def test_a_shim_repeats_an_allocation_as_it_was_announced() -> None:
    """The message that announces an allocation says all that the core needs when the shim reports it later."""
    request = DeviceRequest(2, linked=True)
    spec = AllocationSpec("k", "app", "p", Resources({"vcore": 1}), devices=request)
    told = Allocated(spec, "n", Resources({"vcore": 1}), request._replace(given=("0", "3")).tags)
    raw = Encoder().encode_allocations([told, Allocated(spec._replace(key="l"), "n", Resources({"vcore": 1}))])
    with_devices, without = si.AllocationResponse.FromString(raw).new
    assert devices_of(with_devices) == ("0", "3")
    assert devices_of(without) == ()
    assert not without.allocationTags
    (command,) = Decoder().allocation_commands(si.AllocationRequest(rmID="rm", allocations=[with_devices]))
    assert command.allocations[0].devices == request._replace(given=("0", "3"))
    assert command.allocations[0].node_id == "n"
