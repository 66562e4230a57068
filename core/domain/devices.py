"""The devices that nodes report, and the devices that asks request. They are read from an attribute of nodes and from
tags of asks.

A part of a device is counted in thousandths of it. Rules: docs/devices.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kornel.core.domain.names import show_name

DEVICES_ATTRIBUTE: Final = "kornel.devices"
"""The attribute of a node that lists its devices as JSON."""

COUNT_TAG: Final = "kornel.gpu.count"
FRACTION_TAG: Final = "kornel.gpu.fraction"
MEMORY_TAG: Final = "kornel.gpu.memory"
LINK_TAG: Final = "kornel.gpu.link"
TYPE_TAG: Final = "kornel.gpu.type"
GIVEN_TAG: Final = "kornel.gpu.devices"
"""The tag that names the devices of an allocation. The core sends it, and the shim repeats it."""

DEVICE_TAGS: Final = frozenset({COUNT_TAG, FRACTION_TAG, MEMORY_TAG, LINK_TAG, TYPE_TAG, GIVEN_TAG})

WHOLE: Final = 1_000
"""The parts of a whole device."""

MOST_DEVICES: Final = 256
"""The most devices of a node, and the most that an ask may want."""

MOST_MEMORY: Final = 2**50
"""The most bytes of one device."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", re.ASCII)
_NAME_RULE: Final = "1 to 128 letters, digits or . _ : / -, a letter or digit first"
_COUNT: Final = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_FRACTION: Final = re.compile(r"0?\.([0-9]{1,3})", re.ASCII)
_MEMORY: Final = re.compile(r"([1-9][0-9]{0,15})([KMGT]i|[kMGT])?", re.ASCII)
_UNITS: Final = {
    None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_FIELDS: Final = frozenset({"id", "type", "memory", "link"})


class InvalidDevices(ValueError):
    """The list of devices of a node cannot be read; the text gives the reason."""


class DeviceSpec(NamedTuple):
    """One device as a node reports it. ``memory`` is in bytes; 0: unknown. ``link`` is its link group; empty: none."""

    device_id: str
    type: str = ""
    memory: int = 0
    link: str = ""


class DeviceRequest(NamedTuple):
    """The devices that an ask wants: ``number`` whole ones, ``share`` thousandths of one, or ``memory`` bytes of one.

    linked  all in one link group
    types   of one of these types; empty: of any
    given   the devices of an allocation that runs already, as the shim reports them
    flaw    the reason why the tags make no sense; the entry is then refused
    """

    number: int = 0
    share: int = 0
    memory: int = 0
    linked: bool = False
    types: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    flaw: str = ""

    @property
    def demand(self) -> DeviceRequest:
        """The part of the request on which the possible nodes of an ask depend."""
        return self._replace(given=(), flaw="") if self.given or self.flaw else self

    @property
    def tags(self) -> tuple[tuple[str, str], ...]:
        """The tags that express this request."""
        fraction = write_share(self.share) if self.share else ""
        memory = write_memory(self.memory) if self.memory else ""
        wants = want_tags(count=self.number, fraction=fraction, memory=memory, linked=self.linked, types=self.types)
        return (*wants, (GIVEN_TAG, ",".join(self.given))) if self.given else wants

    def describe_request(self) -> str:
        """Returns the request in words: ``2 whole devices of type A100, linked``."""
        if self.number:
            what = f"{self.number} whole device{'s' if self.number > 1 else ''}"
        elif self.share:
            what = f"{write_share(self.share)} of a device"
        else:
            what = f"{write_memory(self.memory)} of a device"
        types = f" of type {' or '.join(self.types)}" if self.types else ""
        return f"{what}{types}{', in one link group' if self.linked else ''}"


def write_share(share: int) -> str:
    """Returns thousandths as a decimal fraction: ``0.25``."""
    return f"{share / WHOLE:.3f}".rstrip("0").rstrip(".")


def write_memory(memory: int) -> str:
    """Returns bytes in the largest unit that divides them: ``16Gi``."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if memory and not memory % _UNITS[unit]:
            return f"{memory // _UNITS[unit]}{unit}"
    return str(memory)


def read_devices(text: str) -> tuple[DeviceSpec, ...]:
    """Returns the devices in *text*, the value of :data:`DEVICES_ATTRIBUTE`. An empty text lists none.

    Raises :class:`InvalidDevices`.
    """
    if not text:
        return ()
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDevices("the list of devices is not JSON") from error
    if not isinstance(entries, list):
        raise InvalidDevices("the devices are not a list")
    if len(entries) > MOST_DEVICES:
        raise InvalidDevices(f"{len(entries):,} devices are more than {MOST_DEVICES}")
    devices = [_read_device(at, entry) for at, entry in enumerate(entries)]
    seen: set[str] = set()
    for at, device in enumerate(devices):
        if device.device_id in seen:
            raise InvalidDevices(f"devices[{at}].id: {device.device_id} occurs twice")
        seen.add(device.device_id)
    return tuple(devices)


def _read_device(at: int, entry: Any) -> DeviceSpec:
    where = f"devices[{at}]"
    if not isinstance(entry, dict):
        raise InvalidDevices(f"{where} is not an object with id, type, memory and link")
    unknown = sorted(entry.keys() - _FIELDS)
    if unknown:
        raise InvalidDevices(f"{where}: {show_name(unknown[0])} is not one of id, type, memory and link")
    for name in ("id", "type", "link"):
        value = entry.get(name, "")
        if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
            raise InvalidDevices(f"{where}.{name}: {_show(value)} is not a name: {_NAME_RULE}")
    if not entry.get("id"):
        raise InvalidDevices(f"{where}.id: is missing")
    memory = entry.get("memory", 0)
    if isinstance(memory, bool) or not isinstance(memory, int) or not 0 <= memory <= MOST_MEMORY:
        raise InvalidDevices(f"{where}.memory: {_show(memory)} is not a number of bytes from 0 to {MOST_MEMORY}")
    return DeviceSpec(entry["id"], entry.get("type", ""), memory, entry.get("link", ""))


def _show(value: object) -> str:
    return show_name(value if isinstance(value, str) else str(value)[:80])


def read_wants(tags: Iterable[tuple[str, str]]) -> DeviceRequest | None:
    """Returns the request for devices in *tags*, or ``None`` if there is none."""
    said = {key: value for key, value in tags if key in DEVICE_TAGS}
    if not said:
        return None
    given: tuple[str, ...] = ()
    if GIVEN_TAG in said:
        given = tuple(said.pop(GIVEN_TAG).split(","))
        if len(given) > MOST_DEVICES or len(set(given)) < len(given) or not all(map(_NAME.fullmatch, given)):
            return DeviceRequest(flaw=f"{GIVEN_TAG} is not a list of different devices")
    amounts = [key for key in (COUNT_TAG, FRACTION_TAG, MEMORY_TAG) if key in said]
    if len(amounts) != 1:
        which = " and ".join(amounts) if amounts else "none of them is there"
        flaw = f"one of {COUNT_TAG}, {FRACTION_TAG} and {MEMORY_TAG} has to be given, and {which}"
        return DeviceRequest(given=given, flaw=f"{flaw} are" if amounts else flaw)
    found = _read_amount(amounts[0], said[amounts[0]])._replace(given=given)
    if TYPE_TAG in said:
        types = tuple(dict.fromkeys(part.strip() for part in said[TYPE_TAG].split(",")))
        if not all(map(_NAME.fullmatch, types)) or len(types) > MOST_DEVICES:
            flaw = f"{TYPE_TAG} is {show_name(said[TYPE_TAG])}, not one or several types with commas between them"
            return found._replace(flaw=found.flaw or flaw)
        found = found._replace(types=types)
    if LINK_TAG in said:
        if said[LINK_TAG] != "same":
            return found._replace(flaw=found.flaw or f"{LINK_TAG} is {show_name(said[LINK_TAG])}, not same")
        if not found.number:
            return found._replace(flaw=found.flaw or f"{LINK_TAG} is for whole devices, and {amounts[0]} is given")
        found = found._replace(linked=True)
    return found


def _read_amount(tag: str, value: str) -> DeviceRequest:
    if tag == COUNT_TAG:
        if not _COUNT.fullmatch(value) or int(value) > MOST_DEVICES:
            return DeviceRequest(flaw=f"{tag} is {show_name(value)}, not 1 to {MOST_DEVICES}")
        return DeviceRequest(number=int(value))
    if tag == FRACTION_TAG:
        match = _FRACTION.fullmatch(value)
        share = int(match[1].ljust(3, "0")) if match is not None else 0
        if not share:
            return DeviceRequest(flaw=f"{tag} is {show_name(value)}, not a fraction from 0.001 to 0.999")
        return DeviceRequest(share=share)
    match = _MEMORY.fullmatch(value)
    memory = int(match[1]) * _UNITS[match[2]] if match is not None else 0
    if not 0 < memory <= MOST_MEMORY:
        return DeviceRequest(flaw=f"{tag} is {show_name(value)}, not an amount of bytes such as 16Gi")
    return DeviceRequest(memory=memory)


def want_tags(
    *, count: int = 0, fraction: str = "", memory: str = "", linked: bool = False, types: Iterable[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Returns the tags for a request. It is the inverse of :func:`read_wants`."""
    said = (
        (COUNT_TAG, str(count) if count else ""),
        (FRACTION_TAG, fraction),
        (MEMORY_TAG, memory),
        (LINK_TAG, "same" if linked else ""),
        (TYPE_TAG, ",".join(types)),
    )
    return tuple((key, value) for key, value in said if value)
