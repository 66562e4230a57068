"""Nodes: capacity, load and what may still be placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from core.domain.commands import AllocationSpec
from core.model.shapes import Pairs, Shape, Vector, widen

if TYPE_CHECKING:
    from core.model.allocations import Allocation, Reservation


INSTANCE_TYPE: Final = "si/instance-type"
UNKNOWN_INSTANCE_TYPE: Final = "UNKNOWN"


class ForeignLoad(NamedTuple):
    """Load of another scheduler as the shim described it, here since ``since_ns``."""

    spec: AllocationSpec
    shape: Shape
    since_ns: int


class Node:
    """A node of a partition. ``free`` = capacity - allocated - occupied, per type; negative when over-allocated."""

    __slots__ = (
        "allocated", "allocations", "attributes", "capacity", "foreign", "foreign_loads", "free", "held",
        "instance_type", "node_id", "occupied", "reservations", "schedulable", "score", "version",
    )  # fmt: skip

    def __init__(self, node_id: str, attributes: tuple[tuple[str, str], ...], capacity: Vector) -> None:
        self.node_id: Final = node_id
        self.attributes: Final = attributes
        self.instance_type: Final = dict(attributes).get(INSTANCE_TYPE) or UNKNOWN_INSTANCE_TYPE
        self.capacity = capacity
        self.allocated: Vector = [0] * len(capacity)
        self.occupied: Vector = [0] * len(capacity)
        self.free: Vector = list(capacity)
        self.schedulable = True
        self.allocations: dict[str, Allocation] = {}
        """Own allocations by key, victims that have not left yet included."""
        self.held: dict[str, Allocation] = {}
        """Asks whose amount is charged here while the shim is asked whether they may run here."""
        self.foreign: dict[str, Pairs] = {}
        """Load of other schedulers, by its key."""
        self.foreign_loads: dict[str, ForeignLoad] = {}
        """What is known of it; nothing of what was reported for the node as a whole."""
        self.reservations: dict[str, Reservation] = {}
        """By the key of the ask the node is held for."""
        self.score = 0.0
        self.version = 0
        """Changes whenever its load or capacity does."""

    def fits(self, pairs: Pairs) -> bool:
        """Whether the free room holds *pairs* now; a type the node lacks counts as 0."""
        free = self.free
        for t, amount in pairs:
            if free[t] < amount:
                return False
        return True

    def could_hold(self, pairs: Pairs) -> bool:
        """Whether the empty node would hold *pairs*."""
        capacity = self.capacity
        return all(capacity[t] >= amount for t, amount in pairs)

    def charge(self, pairs: Pairs) -> None:
        """Book an own allocation of *pairs*, whether it fits or not."""
        allocated, free = self.allocated, self.free
        for t, amount in pairs:
            allocated[t] += amount
            free[t] -= amount
        self.version += 1

    def refund(self, pairs: Pairs) -> None:
        """Take an own allocation of *pairs* off the books."""
        allocated, free = self.allocated, self.free
        for t, amount in pairs:
            allocated[t] -= amount
            free[t] += amount
        self.version += 1

    def occupy(self, key: str, pairs: Pairs, load: ForeignLoad | None = None) -> None:
        """Book foreign load under *key*, replacing what stood there. *load*: what is known of it."""
        self.vacate(key)
        self.version += 1
        if load is not None:
            self.foreign_loads[key] = load
        self.foreign[key] = pairs
        for t, amount in pairs:
            self.occupied[t] += amount
            self.free[t] -= amount

    def vacate(self, key: str) -> None:
        """Take foreign load off the books; an unknown key does nothing."""
        self.version += 1
        self.foreign_loads.pop(key, None)
        for t, amount in self.foreign.pop(key, ()):
            self.occupied[t] -= amount
            self.free[t] += amount

    def resize(self, capacity: Vector) -> None:
        """Replace the capacity; ``free`` may become negative."""
        self.version += 1
        self.capacity = capacity
        self.free = [c - a - o for c, a, o in zip(capacity, self.allocated, self.occupied, strict=True)]

    def widen(self, width: int) -> None:
        for vector in (self.capacity, self.allocated, self.occupied, self.free):
            widen(vector, width)

    def __repr__(self) -> str:
        return f"Node({self.node_id})"
