"""The accounts of the scripted core: everything that the shim has reported since it registered, and its placed
allocations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kornel.conformance.messages import COUNT_TAG, FRACTION_TAG, MEMORY_TAG, read_amounts
from kornel.si.v1 import si_pb2 as si


@dataclass(slots=True)
class Node:
    """A node. It is *accepted* once its acceptance was sent to the shim."""

    capacity: dict[str, int]
    draining: bool
    accepted: bool = False
    devices: tuple[str, ...] = ()
    """The IDs of the devices that it reports."""


@dataclass(slots=True)
class Running:
    """An allocation on a node. ``devices`` are the IDs of the devices that the core has given it."""

    allocation: si.Allocation
    node: str
    devices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.allocation.allocationKey

    @property
    def app(self) -> str:
        return self.allocation.applicationID


@dataclass(slots=True)
class Books:
    """All nodes, applications, asks and allocations. ``apps``: whether each application's acceptance was sent."""

    nodes: dict[str, Node] = field(default_factory=dict)
    apps: dict[str, bool] = field(default_factory=dict)
    asks: dict[str, si.Allocation] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    placing: dict[str, Running] = field(default_factory=dict)
    """The allocations that are placed, and whose ``new`` was not sent yet."""
    foreign: dict[str, Running] = field(default_factory=dict)

    def list_rooms(self, ask: si.Allocation) -> list[str]:
        """Returns the open nodes with room for *ask*."""
        wanted = read_amounts(ask.resourcePerAlloc)
        rooms: list[str] = []
        for name, node in self.nodes.items():
            if node.accepted and not node.draining:
                free = self._free_room(name, node)
                fits = all(free.get(kind, 0) >= amount for kind, amount in wanted.items())
                if fits and self.choose_devices(ask, name) is not None:
                    rooms.append(name)
        return rooms

    def choose_devices(self, ask: si.Allocation, node: str) -> tuple[str, ...] | None:
        """Returns free devices of *node* for *ask* alone: an empty tuple if it wants none, and ``None`` if too few are
        free."""
        tags = ask.allocationTags
        count = int(tags.get(COUNT_TAG, "0")) or int(FRACTION_TAG in tags or MEMORY_TAG in tags)
        taken = (*self.running_on(node), *(run for run in self.placing.values() if run.node == node))
        held = {device for run in taken for device in run.devices}
        free = [device for device in self.nodes[node].devices if device not in held]
        return tuple(free[:count]) if count <= len(free) else None

    def list_placeholders(self) -> Iterator[Running]:
        """Yields the placeholders that run."""
        return (each for each in self.running.values() if each.allocation.placeholder)

    def real_allocations(self) -> Iterator[Running]:
        """Yields the running allocations that are no placeholders."""
        return (each for each in self.running.values() if not each.allocation.placeholder)

    def running_on(self, node: str) -> list[Running]:
        """Returns the allocations that run on *node*."""
        return [run for run in self.running.values() if run.node == node]

    def remove_application(self, app: str) -> list[Running]:
        """Remove *app*, and return its running allocations."""
        self.apps.pop(app, None)
        self.asks = {key: ask for key, ask in self.asks.items() if ask.applicationID != app}
        self.placing = {key: run for key, run in self.placing.items() if run.app != app}
        gone = [run for run in self.running.values() if run.app == app]
        for run in gone:
            del self.running[run.key]
        return gone

    def can_schedule(self) -> bool:
        """Tells whether an ask could be placed anywhere."""
        return any(node.accepted and not node.draining for node in self.nodes.values())

    def _free_room(self, name: str, node: Node) -> dict[str, int]:
        free = dict(node.capacity)
        for each in (*self.running.values(), *self.placing.values(), *self.foreign.values()):
            if each.node == name:
                for kind, amount in read_amounts(each.allocation.resourcePerAlloc).items():
                    free[kind] = free.get(kind, 0) - amount
        return free
