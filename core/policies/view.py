"""The view of a partition that policies look at: its records, read-only by agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import ResourceTypes


class PartitionView(Protocol):
    """The state a decision is made from. Policies never change what they reach through it."""

    @property
    def name(self) -> str:
        """The name of the partition."""

    @property
    def root(self) -> Queue:
        """The root of the queue tree."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes, draining ones included, by ID."""
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
        """Victims that have not left in time: nobody counts on their room any more."""
        ...

    @property
    def victim_order(self) -> str:
        """Name of the order of victims (:data:`kornel.core.preemption.guarantee.victim_orders.COSTS`)."""
        ...
