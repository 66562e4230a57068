"""Defines the values that explain why work waits, or why it was preempted, for people and programs.

Amounts are in base units. Times are Unix nanoseconds; ``None``: no time is known.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kornel.core.domain.effects import VictimRecord
from kornel.core.domain.resources import Resources
from kornel.core.model.not_placed import Failures
from kornel.core.preemption.foresight import PreemptionOutlook


class Level(StrEnum):
    """The levels at which blockers occur, in the order in which placement checks them."""

    MANAGER = "manager"
    APPLICATION = "application"
    USER = "user"
    QUEUE = "queue"
    RESERVATION = "reservation"
    NODE = "node"


class BlockerKind(StrEnum):
    """The kinds of blockers, which keep an ask from being placed."""

    SHIM_GONE = "shim-gone"
    """The resource manager has no stream open, so no decision reaches it."""
    APPLICATION_STATE = "application-state"
    """The application has ended or is failing, and gets nothing more."""
    BACK_OFF = "back-off"
    """Too many asks of its application fitted on no node, or all of its gang is being preempted; the application is not
    tried for a while."""
    WAITING_FOR_PLACEHOLDER = "waiting-for-placeholder"
    """The ask takes the place of a placeholder of its task group, and none runs yet."""
    WAITING_FOR_GANG = "waiting-for-gang"
    """The shim has not asked for all members of its gang yet, which are placed together."""
    GANG_INCOMPLETE = "gang-incomplete"
    """Not all members of its gang would find a place, so none is placed."""
    WAITING_FOR_ANSWER = "waiting-for-answer"
    """The shim has not answered yet whether the ask may run on the chosen node."""
    WAITING_FOR_TURN = "waiting-for-turn"
    """The shim has to judge an ask first that comes before it in its queue and depends on other placements."""
    QUEUE_APPLICATIONS = "queue-applications"
    """The application may not start, because its queue runs as many as it may."""
    USER_APPLICATIONS = "user-applications"
    """The application may not start, because its user runs as many as they may."""
    GROUP_APPLICATIONS = "group-applications"
    """The application may not start, because a group of its user runs as many as it may."""
    USER_QUOTA = "user-quota"
    """A limit of the user has no room for the ask."""
    ORIGINATOR_LIMIT = "originator-limit"
    """The originators in the queue hold what they may."""
    GROUP_QUOTA = "group-quota"
    """A limit of a group of the user has no room for the ask."""
    QUEUE_QUOTA = "queue-quota"
    """The queue, or one above it, has no headroom below its max."""
    LIMIT_RESERVED = "limit-reserved"
    """The free amounts below a limit are kept for another ask."""
    CLUSTER_SIZE = "cluster-size"
    """All nodes together have less left than the ask needs."""
    WAITING_FOR_VICTIMS = "waiting-for-victims"
    """The ask has preempted; room is held for it until its victims are gone."""
    RESERVED_NODE_FULL = "reserved-node-full"
    """Room on a node is held for the ask, and is not enough yet."""
    REQUIRED_NODE_UNKNOWN = "required-node-unknown"
    """The node that the ask requires is not registered."""
    REQUIRED_NODE_TAKEN = "required-node-taken"
    """Another ask that must run on the same node comes first."""
    NO_NODES = "no-nodes"
    """The partition has no nodes."""
    NODE_TOO_SMALL = "node-too-small"
    """The node is too small for the ask even when it is empty."""
    NODE_DRAINING = "node-draining"
    """The node is being drained and takes nothing new."""
    NODE_RESERVED = "node-reserved"
    """The free room of the node is held for other asks."""
    NODE_REFUSED = "node-refused"
    """The shim refuses the ask on this node."""
    NODE_FULL = "node-full"
    """The node does not have enough room left."""
    NODE_WITHOUT_DEVICES = "node-without-devices"
    """The node does not have the devices that the ask wants, even when nobody holds any."""
    NODE_DEVICES = "node-devices"
    """The node has room for the ask, and the devices that it wants are not free there."""
    DOMAIN_FULL = "domain-full"
    """No topology domain that is allowed for its group has room for the ask."""
    DOMAIN_UNKNOWN = "domain-unknown"
    """The topology of the partition has no such level, or no node is in a domain of that level."""
    NODE_NOT_REQUIRED = "node-not-required"
    """The ask must run on another node; reported only when a question names a node."""


PERMANENT = frozenset(
    {
        BlockerKind.APPLICATION_STATE,
        BlockerKind.REQUIRED_NODE_UNKNOWN,
        BlockerKind.NO_NODES,
        BlockerKind.NODE_TOO_SMALL,
        BlockerKind.NODE_WITHOUT_DEVICES,
        BlockerKind.DOMAIN_UNKNOWN,
    }
)
"""The kinds of blocker that do not go away by waiting; those of nodes count only if every node is blocked in this way.
A quota below what is asked for is permanent too (``Blocker.permanent``)."""


class Shortage(NamedTuple):
    """The shortage of one type: ``short`` = ``asked`` - (``limit`` - ``used``), above 0.

    On a node ``limit`` is its capacity and ``used`` includes the load of other schedulers.
    """

    type: str
    limit: int
    used: int
    asked: int
    short: int


class Blocker(NamedTuple):
    """One thing that keeps an ask from being placed.

    name       the queue path, ``user NAME in PATH``, node or ask that it is about; for a group of nodes, the closest
    one
    nodes      how many nodes are blocked in this way; 0: it is not about nodes
    distance   how much is missing: the sum over types of the missing part of what is asked, each at most 1
    permanent  waiting alone does not help, because a limit or every node of the group is smaller than the ask
    """

    kind: BlockerKind
    level: Level
    name: str
    detail: str
    shortages: tuple[Shortage, ...] = ()
    nodes: int = 0
    distance: float = 0.0
    permanent: bool = False
    until_ns: int | None = None


class Position(NamedTuple):
    """The place of an ask among the pending asks of its application, leaf and partition, and their numbers."""

    application: int
    application_of: int
    leaf: int
    leaf_of: int
    partition: int
    partition_of: int


class PreemptedWork(NamedTuple):
    """An allocation whose release preemption asked for.

    kind      ``guarantee``, ``required-node``, ``quota`` or another kind of decision
    taken_by  the key of the ask that got the room; empty: the release brought a queue below its max
    reason    what had to be freed and within which fence, or what the queue held above its max
    law       the rule that allowed it
    """

    victim: VictimRecord
    at_ns: int
    kind: str
    taken_by: str
    taken_by_application: str
    taken_by_queue: str
    law: str
    reason: str
    alternatives: str


class AskReport(NamedTuple):
    """The state of one ask or allocation, and why. ``state``: Pending, Reserved, Held or Allocated.

    blockers       in order: a manager that is gone, permanent ones, then by :class:`Level`, the shortest distance last
    node_id        the node on which it runs, or on which room is reserved; empty: none
    fitting_nodes  the number of open nodes that have room for it now
    position, preemption  ``None`` unless it is pending
    preempted             set if preemption asked for its release
    """

    key: str
    application_id: str
    queue: str
    state: str
    node_id: str
    priority: int
    resources: Resources
    created_ns: int
    blockers: tuple[Blocker, ...] = ()
    fitting_nodes: int = 0
    position: Position | None = None
    preemption: PreemptionOutlook | None = None
    preempted: PreemptedWork | None = None
    failures: Failures = ()


class EqualAsks(NamedTuple):
    """Equal pending asks of an application: the report of the first one stands for all ``size`` of them."""

    size: int
    first: AskReport


class ApplicationReport(NamedTuple):
    """An application: its groups of equal asks in the order in which they are tried, and what it lost to preemption,
    the latest first.

    ``kinds`` counts all groups of equal asks, of which ``asks`` holds the first few. ``remarks``: sentences about the
    application as a whole.
    """

    application_id: str
    queue: str
    state: str
    user: str
    pending: int
    allocations: int
    used: Resources
    kinds: int
    asks: tuple[EqualAsks, ...]
    preempted: tuple[PreemptedWork, ...]
    remarks: tuple[str, ...]


class LostWork(NamedTuple):
    """An allocation that was preempted recently and has ended, so that its key is no longer in use."""

    key: str
    preempted: PreemptedWork


Report = AskReport | ApplicationReport | LostWork


def absence_blocker(rm_id: str, absence: str) -> Blocker:
    """Returns the absence of the manager *rm_id* as a blocker. *absence* is a sentence that says since when."""
    detail = f"{absence}: no decision reaches it, and nothing starts"
    return Blocker(BlockerKind.SHIM_GONE, Level.MANAGER, rm_id, detail)


def add_absence(report: Report, rm_id: str, absence: str) -> Report:
    """Returns *report* with :func:`absence_blocker` as the first blocker of every ask that waits."""
    blocker = absence_blocker(rm_id, absence)
    if isinstance(report, AskReport):
        return _add_blocker(report, blocker)
    if isinstance(report, ApplicationReport):
        asks = tuple(equals._replace(first=_add_blocker(equals.first, blocker)) for equals in report.asks)
        return report._replace(asks=asks)
    return report


def _add_blocker(ask: AskReport, blocker: Blocker) -> AskReport:
    return ask if ask.position is None else ask._replace(blockers=(blocker, *ask.blockers))
