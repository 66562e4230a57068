"""Devices of one node for several asks at once."""

from __future__ import annotations

from kornel.core.domain.devices import WHOLE, DeviceRequest, DeviceSpec
from kornel.core.model.devices import NodeDevices
from kornel.core.policies.device_sharing import Sharing, Wanting
from tests.unit.model.test_ask_group import Asks


def test_equal_devices_of_which_different_parts_are_kept_are_both_tried() -> None:
    """The largest part belongs on the device of which nothing is kept, because only the two smallest fill the other."""
    devices = NodeDevices([DeviceSpec("d1"), DeviceSpec("d2")])
    devices.devices["d1"].kept[Asks().made(0)] = 500
    parts = (400, 350, 260, 250, 240)
    search = Sharing(devices, [Wanting(DeviceRequest(share=part)) for part in parts])
    assert search.serve_all()
    taken = {"d1": 0, "d2": 0}
    for part, (name,) in zip(parts, search.found, strict=True):
        taken[name] += part
    assert taken == {"d1": WHOLE - 500, "d2": WHOLE}
