"""Defines the view of a partition that policies use: its records, which by convention they only read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.domains import Topology
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, ResourceTypes


class PartitionView(Protocol):
    """The state from which a decision is made. Policies never change anything in it."""

    @property
    def name(self) -> str:
        """The name of the partition."""

    @property
    def now_ns(self) -> int:
        """The time of the call under way."""
        ...

    @property
    def root(self) -> Queue:
        """The root of the queue tree."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by ID, including draining ones."""
        ...

    @property
    def topology(self) -> Topology | None:
        """The levels of the topology with their domains; ``None``: the partition has none."""
        ...

    @property
    def types(self) -> ResourceTypes:
        """The resource types of the partition."""

    @property
    def guarantee_mode(self) -> GuaranteeMode:
        """The reading of law 4: ``reach`` or ``strict`` (preemption.md A)."""
        ...

    @property
    def given_up(self) -> Mapping[Allocation, object]:
        """Stuck victims, whose room no ask counts on any more."""
        ...

    def find_lent(self, ask: Allocation, pairs: Pairs | None = None) -> Mapping[Node, Sequence[Reservation]]:
        """Finds the saved claims of others whose room *ask*, or its gang, which asks for *pairs* together, may use in a
        plan, by node (preemption.md B.7)."""
        ...

    @property
    def victim_order(self) -> str:
        """The name of the order of victims (:data:`kornel.core.preemption.guarantee.rules.cost.COSTS`)."""
        ...

    @property
    def checkpoints(self) -> Mapping[str, int]:
        """When allocations last saved their work, as their applications have reported it, by key."""
        ...
