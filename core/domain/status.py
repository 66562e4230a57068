"""What the engine says of itself when asked: plain values for status calls, reports and health."""

from __future__ import annotations

from typing import NamedTuple

from core.domain.drains import DrainedNode
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


class ScopeStatus(NamedTuple):
    """What preemption took from one scope within the governor's window, and what it may take there.

    kind, name        ``cluster``, ``queue`` and its path, ``application`` and its ID, or ``interval`` and a kind of
                      preemption that is held back: what that took within one interval of the preemption cycle
    victims           of ``most_victims``; 0: any number
    lost              resource-seconds of ``most_lost``; an absent type is not limited
    paused_until_ns   preemption was said to pause here until then; ``None``: it does not, as far as was said
    """

    kind: str
    name: str
    victims: int
    most_victims: int
    lost: Resources
    most_lost: Resources
    paused_until_ns: int | None = None


class GovernorStatus(NamedTuple):
    """Bounds against storms: how near they are. ``denied``: plans since the core started.

    ``scopes``: the cluster, queues that lost something or where preemption paused, applications where it paused, and
    kinds that the limit of one interval holds back.
    """

    window_ns: int
    denied: int
    shadow: tuple[str, ...]
    scopes: tuple[ScopeStatus, ...]


class StuckVictim(NamedTuple):
    """An allocation that was told to leave and has not within ``preemption.victim.timeout``.

    ``preemptor``: the ask that waited for it and looks elsewhere now, or the path of the queue whose max it was for.
    """

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    preemptor: str


class MonitorStatus(NamedTuple):
    """The periodic policy, where it is on. ``at_risk``: allocations that ``notices`` open notices name."""

    observe_only: bool
    rounds: int
    notices: int
    at_risk: int


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
    governor: GovernorStatus | None = None
    stuck: tuple[StuckVictim, ...] = ()
    """By key."""
    monitor: MonitorStatus | None = None
    """``None``: the periodic policy is off."""
    drained: tuple[DrainedNode, ...] = ()
    """Nodes that operators keep out of scheduling, by ID."""


class EngineStatus(NamedTuple):
    """The whole core. ``rm_id`` empty: nobody is registered."""

    rm_id: str
    checksum: str
    partitions: tuple[PartitionStatus, ...]
    unrouted: int = 0
    """Unanswered request entries that named no partition there is."""


class QueueLevel(NamedTuple):
    """One queue on the way from a queue to the root. ``headroom``: its own max less what is used, types in max only."""

    path: str
    guaranteed: Resources
    max: Resources
    used: Resources
    pending: Resources
    preempting: Resources
    headroom: Resources


class Bound(NamedTuple):
    """The level that leaves least of one type: ``left`` of its ``max``, negative above it."""

    type: str
    path: str
    left: int
    max: int


class LimitLevel(NamedTuple):
    """A limit that binds a user, or a group it counts for, in one queue and below.

    ``kind`` is ``user`` or ``group``. ``applications``: that hold something; ``max_applications`` 0: any number.
    ``headroom``: ``max`` less ``used``, types in ``max`` only.
    """

    path: str
    kind: str
    name: str
    max: Resources
    used: Resources
    headroom: Resources
    applications: int
    max_applications: int


class UserExplanation(NamedTuple):
    """What a user holds, and the limits that bind it: the root's first, the user's before its groups'.

    ``tightest``: the level and type with the smallest part of a limit left; ``None``: no amount is limited.
    """

    user: str
    used: Resources
    applications: int
    levels: tuple[LimitLevel, ...]
    tightest: Bound | None


class AboveMax(NamedTuple):
    """A configured queue that holds more than its max, since ``since_ns``.

    above      how much more, victims that have not left yet included
    leaving    what of it such victims hold
    due_ns     when it is to be enforced; ``None``: no time is set
    course     what is done about it, in words
    protected  what keeps the rest there, in words
    """

    path: str
    since_ns: int
    above: Resources
    leaving: Resources
    due_ns: int | None
    course: str
    protected: tuple[str, ...]


class QueueExplanation(NamedTuple):
    """What a queue may still take, and why no more (config.md 7.3).

    levels      the queue first, the root last
    headroom    the least over all levels; an absent type is not bounded, except that the root offers none of it
    bounds      what sets it, one for each type in ``headroom``, by type
    tightest    the bound with the smallest part of its max left; ``None``: nothing bounds
    above       those of the levels that hold more than their max, the queue first
    """

    path: str
    leaf: bool
    draining: bool
    levels: tuple[QueueLevel, ...]
    headroom: Resources
    bounds: tuple[Bound, ...]
    tightest: Bound | None
    above: tuple[AboveMax, ...] = ()


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
