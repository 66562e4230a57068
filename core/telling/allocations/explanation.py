"""Explanations why work waits, or why it was preempted: plain values for people and programs.

Amounts are in base units. Times are Unix nanoseconds; ``None``: no time is known.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kornel.core.domain.effects import VictimRecord
from kornel.core.domain.resources import Resources
from kornel.core.preemption.foresight import PreemptionOutlook


class AskFailure(NamedTuple):
    """Something that kept an ask from being placed, so many ``times``, the last one at ``last_ns``."""

    message: str
    times: int
    last_ns: int


class Level(StrEnum):
    """The places of a blocker, in the order in which placement looks."""

    MANAGER = "manager"
    APPLICATION = "application"
    USER = "user"
    QUEUE = "queue"
    RESERVATION = "reservation"
    NODE = "node"


class BlockerKind(StrEnum):
    """The kinds of what can keep an ask from being placed."""

    SHIM_GONE = "shim-gone"
    """The resource manager has no stream open: no decision reaches it."""
    APPLICATION_STATE = "application-state"
    """The application is over, or failing: it gets nothing any more."""
    BACK_OFF = "back-off"
    """Too many asks of its application fitted nowhere; until a time nothing of it is tried."""
    WAITING_FOR_PLACEHOLDER = "waiting-for-placeholder"
    """The ask takes the place of a placeholder of its task group, and none is there yet."""
    WAITING_FOR_GANG = "waiting-for-gang"
    """Not all members of its gang have been asked for, and they are placed together."""
    GANG_INCOMPLETE = "gang-incomplete"
    """Not all members of its gang would find a place, so none of them is given one."""
    WAITING_FOR_ANSWER = "waiting-for-answer"
    """The shim was asked whether it may run on the node that was chosen."""
    QUEUE_APPLICATIONS = "queue-applications"
    """The application may not start: its queue runs as many as it may."""
    USER_APPLICATIONS = "user-applications"
    """The application may not start: its user runs as many as they may."""
    GROUP_APPLICATIONS = "group-applications"
    """The application may not start: a group of its user runs as many as it may."""
    USER_QUOTA = "user-quota"
    """A limit of its user has no room for it."""
    GROUP_QUOTA = "group-quota"
    """A limit of a group of its user has no room for it."""
    QUEUE_QUOTA = "queue-quota"
    """The queue, or one above it, has no headroom below its max."""
    CLUSTER_SIZE = "cluster-size"
    """All nodes together have less left than the ask needs."""
    WAITING_FOR_VICTIMS = "waiting-for-victims"
    """The ask has preempted; room is held for it until its victims are gone."""
    RESERVED_NODE_FULL = "reserved-node-full"
    """Room is held for it on a node, and there is not enough yet."""
    REQUIRED_NODE_UNKNOWN = "required-node-unknown"
    """The node that the ask requires is not there."""
    REQUIRED_NODE_TAKEN = "required-node-taken"
    """Another ask that must run on the same node comes first."""
    NO_NODES = "no-nodes"
    """There are no nodes."""
    NODE_TOO_SMALL = "node-too-small"
    """Not even the empty node would do."""
    NODE_DRAINING = "node-draining"
    """The node is being drained and takes nothing new."""
    NODE_RESERVED = "node-reserved"
    """The free room of the node is held for other asks."""
    NODE_REFUSED = "node-refused"
    """The shim does not want it there."""
    NODE_FULL = "node-full"
    """The node has not enough left."""
    NODE_NOT_REQUIRED = "node-not-required"
    """The ask must run on another node; said only of a node that somebody asks about."""


PERMANENT = frozenset(
    {BlockerKind.APPLICATION_STATE, BlockerKind.REQUIRED_NODE_UNKNOWN, BlockerKind.NO_NODES, BlockerKind.NODE_TOO_SMALL}
)
"""Kinds that waiting alone never ends, of nodes if all are blocked so. A quota below what is asked for is
permanent too (``Blocker.permanent``)."""


class Shortage(NamedTuple):
    """One type that is short: ``short`` = ``asked`` - (``limit`` - ``used``), above 0.

    On a node ``limit`` is its capacity and ``used`` includes the load of other schedulers.
    """

    type: str
    limit: int
    used: int
    asked: int
    short: int


class Blocker(NamedTuple):
    """One thing that keeps an ask from being placed.

    name       queue path, ``user NAME in PATH``, node or ask it is about; of a group of nodes the closest one
    nodes      how many nodes are blocked like this; 0: it is not about nodes
    distance   how much is missing: the sum over types of the missing part of what is asked, each at most 1
    permanent  waiting alone does not help: a limit or every node of the group is smaller than the ask
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
    """The number of pending asks that would be tried before this one, and of all there are (the ask included)."""

    application: int
    application_of: int
    leaf: int
    leaf_of: int
    partition: int
    partition_of: int


class PreemptedWork(NamedTuple):
    """An allocation whose release preemption asked for.

    kind      ``guarantee``, ``required-node``, ``quota`` or another kind of decision
    taken_by  key of the ask that got the room; empty: it left for its queue's sake
    reason    what had to be freed and within which fence, or what the queue held above its max
    law       what allowed it
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
    """The standing of one ask or allocation. ``state``: Pending, Reserved, Held or Allocated.

    blockers       ranked: a manager that is gone, then permanent ones, then in the order of :class:`Level`, the
                   shortest distance last
    node_id        where it runs, or which node is kept for it; empty: none
    fitting_nodes  open nodes that have room for it now
    position, preemption  ``None`` unless it is pending
    preempted             set if preemption asked for its release, or ended it
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
    failures: tuple[AskFailure, ...] = ()


class EqualAsks(NamedTuple):
    """Pending asks of an application that differ in nothing that matters: one report stands for all ``size``."""

    size: int
    first: AskReport


class ApplicationReport(NamedTuple):
    """An application: its equal asks, those tried first in front, and what it lost to preemption, latest first.

    ``kinds`` counts all groups of equal asks, of which ``asks`` holds the first few.
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


class LostWork(NamedTuple):
    """A key that is no longer in use, of an allocation that was preempted not long ago."""

    key: str
    preempted: PreemptedWork


Report = AskReport | ApplicationReport | LostWork


def add_absence(report: Report, rm_id: str, absence: str) -> Report:
    """Returns *report* with a manager that is gone as the first thing in the way of whatever waits.

    *absence* says since when the manager *rm_id* is gone.
    """
    detail = f"{absence}: nothing that is decided reaches it, and nothing starts"
    blocker = Blocker(BlockerKind.SHIM_GONE, Level.MANAGER, rm_id, detail)
    if isinstance(report, AskReport):
        return _add_blocker(report, blocker)
    if isinstance(report, ApplicationReport):
        asks = tuple(equals._replace(first=_add_blocker(equals.first, blocker)) for equals in report.asks)
        return report._replace(asks=asks)
    return report


def _add_blocker(ask: AskReport, blocker: Blocker) -> AskReport:
    return ask if ask.position is None else ask._replace(blockers=(blocker, *ask.blockers))
