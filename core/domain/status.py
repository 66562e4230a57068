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


class UserStatus(NamedTuple):
    """A user that holds something: how much in all queues together, and how many applications hold it."""

    user: str
    used: Resources
    applications: int


class PartitionStatus(NamedTuple):
    """One partition; ``queues`` parents before children, in tree order, ``users`` by name."""

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
    users: tuple[UserStatus, ...]
    ignored: tuple[tuple[str, int], ...] = ()
    """Request entries without effect, by cause (:class:`core.domain.reasons.Ignored`)."""


class EngineStatus(NamedTuple):
    """The whole core. ``rm_id`` empty: nobody is registered."""

    rm_id: str
    checksum: str
    partitions: tuple[PartitionStatus, ...]
    unrouted: int = 0
    """Unanswered request entries that named no partition there is."""


class AskFailure(NamedTuple):
    """Something that kept an ask from being placed, so many ``times``, the last one at ``last_ns``."""

    message: str
    times: int
    last_ns: int


class AskExplanation(NamedTuple):
    """One ask or allocation. ``state``: Pending, Reserved, Held, Replacing or Allocated.

    ``node_id``: where it runs, or which node is kept for it; empty: none. ``failures``: the most recent first.
    """

    application_id: str
    queue: str
    state: str
    node_id: str
    failures: tuple[AskFailure, ...] = ()
