"""What the shim has reported to the scripted core since it registered, and what the core has placed for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from si.v1 import si_pb2 as si

from conformance.messages import read_amounts


@dataclass(slots=True)
class Node:
    """*accepted* once the shim has been told so."""

    capacity: dict[str, int]
    draining: bool
    accepted: bool = False


@dataclass(slots=True)
class Running:
    """An allocation on a node."""

    allocation: si.Allocation
    node: str

    @property
    def key(self) -> str:
        return self.allocation.allocationKey

    @property
    def app(self) -> str:
        return self.allocation.applicationID


@dataclass(slots=True)
class Books:
    """All of it. ``apps`` tells of each application whether the shim has been told that it is accepted."""

    nodes: dict[str, Node] = field(default_factory=dict)
    apps: dict[str, bool] = field(default_factory=dict)
    asks: dict[str, si.Allocation] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    foreign: dict[str, Running] = field(default_factory=dict)

    def room_for(self, ask: si.Allocation) -> str | None:
        """The first open node that *ask* fits on."""
        wanted = read_amounts(ask.resourcePerAlloc)
        for name, node in self.nodes.items():
            if node.accepted and not node.draining:
                free = self._free(name, node)
                if all(free.get(kind, 0) >= amount for kind, amount in wanted.items()):
                    return name
        return None

    def placeholders(self) -> Iterator[Running]:
        """Those that run."""
        return (each for each in self.running.values() if each.allocation.placeholder)

    def reals(self) -> Iterator[Running]:
        """Allocations that run and are no placeholders."""
        return (each for each in self.running.values() if not each.allocation.placeholder)

    def on(self, node: str) -> list[Running]:
        """What runs on *node*."""
        return [run for run in self.running.values() if run.node == node]

    def remove_application(self, app: str) -> list[Running]:
        """Forget *app*; what ran of it."""
        self.apps.pop(app, None)
        self.asks = {key: ask for key, ask in self.asks.items() if ask.applicationID != app}
        gone = [run for run in self.running.values() if run.app == app]
        for run in gone:
            del self.running[run.key]
        return gone

    def schedulable(self) -> bool:
        """Whether an ask could be placed anywhere."""
        return any(node.accepted and not node.draining for node in self.nodes.values())

    def _free(self, name: str, node: Node) -> dict[str, int]:
        free = dict(node.capacity)
        for each in (*self.running.values(), *self.foreign.values()):
            if each.node == name:
                for kind, amount in read_amounts(each.allocation.resourcePerAlloc).items():
                    free[kind] = free.get(kind, 0) - amount
        return free
