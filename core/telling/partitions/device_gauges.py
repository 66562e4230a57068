"""Counts the devices of nodes for the metrics: by type and state, and how much of what is free is whole.

Rules: docs/devices.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kornel.core.domain.devices import WHOLE
from kornel.core.model.devices import Device
from kornel.core.model.nodes import Node

FREE, SHARED, FULL, CLOSED, LEAVING = "free", "shared", "full", "closed", "leaving"
STATES: Final = (FREE, SHARED, FULL, CLOSED, LEAVING)
"""Held by nobody; held in part; without a free part; not full, on a node that takes no work; no longer reported."""

UNKNOWN: Final = "unknown"
OTHERS: Final = "others"
MOST_TYPES: Final = 50
"""The most types that are counted separately; devices of all further types count together as :data:`OTHERS`."""


class DeviceGauges(NamedTuple):
    """The devices of one type.

    states  the number of devices in each of :data:`STATES`
    whole   the number of devices of which all is free, on nodes that take work
    parts   the thousandths that are free on devices of which others hold a part, on nodes that take work
    linked  the most of the whole ones that are in one link group
    """

    type: str
    states: tuple[int, ...]
    whole: int
    parts: int
    linked: int


class DeviceCount:
    """Counts the devices of node after node."""

    def __init__(self) -> None:
        self._states: dict[str, dict[str, int]] = {}
        self._parts: dict[str, int] = {}
        self._linked: dict[str, int] = {}

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Counts the devices of *nodes*."""
        for node in nodes:
            if node.devices is not None:
                links: dict[tuple[str, str], int] = {}
                for device in node.devices:
                    kind = self._type_of(device)
                    state = _state_of(device, node)
                    self._states[kind][state] += 1
                    if state == SHARED:
                        self._parts[kind] += device.free
                    elif state == FREE and device.spec.link:
                        links[kind, device.spec.link] = links.get((kind, device.spec.link), 0) + 1
                for (kind, _), count in links.items():
                    self._linked[kind] = max(self._linked[kind], count)

    def by_type(self) -> tuple[DeviceGauges, ...]:
        """Returns what was counted, by type."""
        return tuple(
            DeviceGauges(
                kind, tuple(states[state] for state in STATES), states[FREE], self._parts[kind], self._linked[kind]
            )
            for kind, states in sorted(self._states.items())
        )

    def _type_of(self, device: Device) -> str:
        kind = device.spec.type or UNKNOWN
        if kind not in self._states and len(self._states) >= MOST_TYPES:
            kind = OTHERS
        if kind not in self._states:
            self._states[kind] = dict.fromkeys(STATES, 0)
            self._parts[kind] = self._linked[kind] = 0
        return kind


def _state_of(device: Device, node: Node) -> str:
    if device.leaving:
        return LEAVING
    if not device.free:
        return FULL
    if not node.schedulable:
        return CLOSED
    return FREE if device.free == WHOLE else SHARED
