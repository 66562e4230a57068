"""What the engine says of itself when asked: plain values for status calls, reports and health."""

from __future__ import annotations

from typing import NamedTuple

from core.domain.resources import Resources


class QueueStatus(NamedTuple):
    """One queue. Amounts as in :class:`core.model.queues.Queue`; ``max`` of the root is what its nodes offer."""

    path: str
    leaf: bool
    draining: bool
    guaranteed: Resources
    max: Resources
    used: Resources
    pending: Resources
    preempting: Resources
    preempted: Resources
    """Everything ever taken from this queue by preemption."""
    preempted_allocations: int
    applications: int
    priority: int
    quota_due_ns: int | None = None
    """When its lowered max is to be enforced by preemption; ``None``: not at all."""
    quota_running: bool = False
    """It is being enforced just now."""


class PartitionStatus(NamedTuple):
    """One partition; ``queues`` parents before children, in tree order."""

    name: str
    nodes: int
    asks: int
    allocations: int
    reservations: int
    capacity: Resources
    law_checks: int
    law_violations: int
    invariant_violations: int
    """Books that do not add up; 0 when nobody asked for the audit."""
    preemption_attempts: int
    preemptions: int
    queues: tuple[QueueStatus, ...]


class EngineStatus(NamedTuple):
    """The whole core. ``rm_id`` empty: nobody is registered."""

    rm_id: str
    checksum: str
    partitions: tuple[PartitionStatus, ...]
