"""Writes devices and wishes for a place in the topology as shims send them."""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceSpec
from kornel.core.domain.topology import PREFERRED_TAG, REQUIRED_TAG, SLICE_SIZE_TAG, SPREAD_TAG
from kornel.shim_client import Device, devices_attribute


def write_devices(devices: Iterable[DeviceSpec]) -> str:
    """Returns the value of the attribute that reports *devices*."""
    return devices_attribute(Device(*device) for device in devices)[DEVICES_ATTRIBUTE]


def request_tags(
    *, required: str = "", preferred: str = "", spread: str = "", slice_size: int = 0
) -> tuple[tuple[str, str], ...]:
    """Returns the tags of a wish, even of one that makes no sense."""
    said = ((REQUIRED_TAG, required), (PREFERRED_TAG, preferred), (SPREAD_TAG, spread))
    size = ((SLICE_SIZE_TAG, str(slice_size)),) if slice_size else ()
    return (*((key, level) for key, level in said if level), *size)
