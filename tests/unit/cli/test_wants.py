"""What ``kornel what-if`` makes of its options about devices, as the core reads it."""

from __future__ import annotations

import pytest

from kornel.cli.commands.explain import _write_wants
from kornel.core.domain.devices import DeviceRequest, read_wants


@pytest.mark.parametrize(
    ("devices", "types", "linked", "read"),
    [
        ("", [], False, None),
        ("2", [], False, DeviceRequest(number=2)),
        ("2", ["A", "B"], True, DeviceRequest(number=2, linked=True, types=("A", "B"))),
        ("0.25", [], False, DeviceRequest(share=250)),
        ("16Gi", ["A"], False, DeviceRequest(memory=16 * 2**30, types=("A",))),
    ],
)
def test_options_are_read_as_they_are_meant(
    devices: str, types: list[str], linked: bool, read: DeviceRequest | None
) -> None:
    assert read_wants(_write_wants(devices, types, linked=linked).items()) == read


@pytest.mark.parametrize(("devices", "linked"), [("x", False), ("1.5", False), ("", True), ("0.5", True)])
def test_nonsense_is_for_the_core_to_refuse(devices: str, linked: bool) -> None:
    found = read_wants(_write_wants(devices, [], linked=linked).items())
    assert found is not None
    assert found.flaw
