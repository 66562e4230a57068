"""The devices of simulated nodes: it records which tasks use them, and checks the choices of the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kornel.shim_client import Device, Devices

WHOLE: Final = 1_000


def share_of(wants: Devices) -> int:
    """Returns the thousandths that a task with *wants* takes of each of its devices. Memory is not simulated."""
    return round(wants.fraction * WHOLE) if wants.fraction else WHOLE


class DeviceBooks:
    """The thousandths of each device that are in use, by node."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._types: dict[str, dict[str, str]] = {}

    def add_node(self, node_id: str, devices: Sequence[Device]) -> None:
        """Notes the *devices* of a node, which are all free."""
        if devices:
            self._used[node_id] = {device.device_id: 0 for device in devices}
            self._types[node_id] = {device.device_id: device.type for device in devices}

    def use(self, node_id: str, names: Sequence[str], wants: Devices | None) -> Iterator[str]:
        """Books the devices called *names* for a task with *wants*. Yields the mistakes of the core in words."""
        if wants is None:
            if names:
                yield f"got devices {', '.join(names)} and wants none"
            return
        used, share = self._used.get(node_id, {}), share_of(wants)
        wanted = wants.count or 1
        if len(names) != wanted:
            yield f"got {len(names)} devices and wants {wanted}"
        for name in names:
            if name not in used:
                yield f"got device {name}, which {node_id} does not have"
                continue
            if wants.types and self._types[node_id][name] not in wants.types:
                yield f"got device {name} of type {self._types[node_id][name]!r} and wants {', '.join(wants.types)}"
            used[name] += share
            if used[name] > WHOLE:
                yield f"overfills device {name} of {node_id}: {used[name]} of {WHOLE} thousandths"

    def free(self, node_id: str, names: Iterable[str], wants: Devices | None) -> None:
        """Frees the devices called *names*, which a task with *wants* used."""
        used = self._used.get(node_id, {})
        for name in names:
            if wants is not None and name in used:
                used[name] -= share_of(wants)

    def fits_beside(self, node_id: str, wants: Devices | None, staying: Mapping[str, int]) -> bool:
        """Tells whether a task with *wants* would find its devices on a node on which only the parts in *staying* are
        in use."""
        if wants is None:
            return True
        share = share_of(wants)
        usable = [
            name
            for name, kind in self._types.get(node_id, {}).items()
            if staying.get(name, 0) + share <= WHOLE and (not wants.types or kind in wants.types)
        ]
        return len(usable) >= (wants.count or 1)

    def share_in_use(self) -> tuple[int, int, int]:
        """Returns the number of devices that are fully used, the number that are used in part, and the number of all
        devices."""
        amounts = [amount for used in self._used.values() for amount in used.values()]
        whole = sum(amount == WHOLE for amount in amounts)
        return whole, sum(0 < amount < WHOLE for amount in amounts), len(amounts)
