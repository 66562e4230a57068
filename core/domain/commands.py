"""Commands of a shim to the engine: serialisable values that carry everything the engine needs but the time.

Partition names are in their full form ``[rm]name`` (protocol.md 4.1). Times are integer nanoseconds since the Unix
epoch, ``created_s`` whole seconds. Amounts: :mod:`kornel.core.domain.resources`. ``NamedTuple`` where a message carries
thousands of them: as immutable as a frozen dataclass and several times cheaper to build.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest

DEPENDENT_TAG: Final = "kornel.dependsOnPlacements"
"""The tag of an ask, exact case, that with the value ``true`` says that other placements decide about its nodes."""

CREATION_TIME_TAG: Final = "creationTime"
"""The tag of an allocation, exact case, that states when it was made, in Unix seconds of the shim's clock."""


class NodeAction(IntEnum):
    """The actions of ``NodeInfo.ActionFromRM``; any other number is ignored like ``UNKNOWN``."""

    UNKNOWN = 0
    CREATE = 1
    UPDATE = 2
    DRAIN_NODE = 3
    DECOMISSION = 4
    DRAIN_TO_SCHEDULABLE = 5
    CREATE_DRAIN = 6


class TerminationType(IntEnum):
    """The reason for which an allocation ends (protocol.md 10.3). Unknown numbers mean STOPPED_BY_RM."""

    UNKNOWN = 0
    STOPPED_BY_RM = 1
    TIMEOUT = 2
    PREEMPTED_BY_SCHEDULER = 3
    PLACEHOLDER_REPLACED = 4
    SCHEDULING_FAILED_ON_RM = 5


class AllocationSpec(NamedTuple):
    """One ask (no ``node_id``) or one allocation that already runs on ``node_id``, as the shim describes it."""

    key: str
    application_id: str
    partition: str
    resources: Resources | None
    priority: int = 0
    node_id: str = ""
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    allow_preempt_self: bool = True
    allow_preempt_other: bool = False
    created_s: int | None = None
    required_node: str = ""
    foreign: str = ""
    """``static`` or ``default`` for load of another scheduler, else empty."""
    tags: tuple[tuple[str, str], ...] = ()
    legacy: bool = False
    """Sent as a G2 ``AllocationAsk``: refusals go to the older list."""
    max_allocations: int = 1
    """Meaningful for G2 asks only: how many allocations the key is to have."""
    instance: int = 0
    """The number of this one among several allocations under one key (:mod:`kornel.core.domain.allocation_ids`)."""
    dependent: bool = False
    """Says that other placements decide whether it may run on a node, so that the shim is asked in turn."""
    topology: TopologyRequest | None = None
    """The request of its tags for where its task group is to stand; ``None``: they make none."""


class ReleaseSpec(NamedTuple):
    """One entry of ``allocationsToRelease``. No application: foreign. Neither key nor ID: all of the application."""

    partition: str
    application_id: str
    key: str
    termination: int = TerminationType.STOPPED_BY_RM
    message: str = ""
    allocation_id: str = ""
    """G2: names one allocation, with or without its key. Empty: not given."""


class NodeSpec(NamedTuple):
    """One entry of a node request. ``capacity`` absent: not given (an empty node, or unchanged on UPDATE)."""

    node_id: str
    action: int
    partition: str
    attributes: tuple[tuple[str, str], ...] = ()
    capacity: Resources | None = None
    occupied: Resources | None = None
    """G2 ``occupiedResource``: load of other schedulers on the whole node. Absent: not given."""
    existing: tuple[AllocationSpec, ...] = ()
    """G2 ``existingAllocations``: recovered with the node, all or nothing."""


class ApplicationSpec(NamedTuple):
    """One application to add."""

    application_id: str
    queue: str
    partition: str
    user: str = ""
    groups: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    placeholder_timeout_ms: int = 0
    placeholder_ask: Resources | None = None
    gang_style: str = ""
    looked_up: tuple[str, ...] = ()
    """Groups that a resolver found for ``user``; of no use beside ``groups``, which the shim gave. Empty: not asked."""
    unresolved: str = ""
    """The reason why a resolver that was asked found no groups; empty: it did, or was not asked."""
    created_s: int | None = None
    """When the application was first submitted, if the shim says so, in the core's time."""


class ApplicationRef(NamedTuple):
    """One application to remove."""

    application_id: str
    partition: str


@dataclass(frozen=True, slots=True)
class RegisterManager:
    """Start afresh with this resource manager and configuration (protocol.md 5.1, 5.2).

    ``of_file``: the text is the core's own, of its file or built in, since the manager brings none. Decides nothing.
    """

    rm_id: str
    config: str = ""
    policy_group: str = ""
    version: str = ""
    build_info: tuple[tuple[str, str], ...] = ()
    extra_config: tuple[tuple[str, str], ...] = ()
    of_file: bool = False


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Replace the queue configuration of the registered manager, all or nothing (protocol.md 5.4).

    ``of_file``: as of :class:`RegisterManager`.
    """

    rm_id: str
    config: str = ""
    policy_group: str = ""
    extra_config: tuple[tuple[str, str], ...] = ()
    of_file: bool = False


@dataclass(frozen=True, slots=True)
class UpdateNodes:
    """A ``NodeRequest``: entries in order."""

    rm_id: str
    nodes: tuple[NodeSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class SetOperatorDrain:
    """An operator takes a node out of scheduling, or no longer keeps it out; the manager's own drains stand beside it.

    ``by``: the operator, for whoever reads about it.
    """

    rm_id: str
    partition: str
    node_id: str
    drained: bool
    by: str = ""


@dataclass(frozen=True, slots=True)
class UpdateApplications:
    """An ``ApplicationRequest``: all additions, then all removals."""

    rm_id: str
    add: tuple[ApplicationSpec, ...] = ()
    remove: tuple[ApplicationRef, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateAllocations:
    """An ``AllocationRequest``: allocations and asks in order, then ask releases, then releases (3.4, 8)."""

    rm_id: str
    allocations: tuple[AllocationSpec, ...] = ()
    ask_releases: tuple[ReleaseSpec, ...] = ()
    releases: tuple[ReleaseSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterManager:
    """Remove the manager and everything it reported, silently."""

    rm_id: str


@dataclass(frozen=True, slots=True)
class AttachCallbacks:
    """Subscribe the shim to questions and notices of these kinds (protocol.md 13).

    Replaces an earlier attachment. No answer within ``timeout_ns`` counts as a refusal for now.
    """

    rm_id: str
    predicates: bool = False
    preemption_predicates: bool = False
    scheduling_states: bool = False
    events: bool = False
    timeout_ns: int = 1_000_000_000
    preemption_notices: bool = False


@dataclass(frozen=True, slots=True)
class DetachCallbacks:
    """End the subscription: every open question counts as not asked, and everything is allowed."""

    rm_id: str


class PredicatesAnswer(NamedTuple):
    """The shim's answer about nodes. ``refused``: (node ID, reason); nodes not named may be used.

    ``dependent``: other placements could change it.
    """

    question: int
    refused: tuple[tuple[str, str], ...] = ()
    dependent: bool = False


class PlacementKey(NamedTuple):
    """An ask or allocation of a partition, by the key that the shim gave it. ``node_id`` empty: on whichever node."""

    partition: str
    key: str
    node_id: str = ""


class PreemptionPredicatesAnswer(NamedTuple):
    """The shim's answer about victims. ``last``: index of the last victim that has to go; meaningless unless
    ``success``."""

    question: int
    success: bool
    last: int = -1


class PreemptionNoticeAnswer(NamedTuple):
    """The answer of an application to a notice (preemption.md E.7). ``accepted`` ``None``: it does not say.

    instead      keys of its own that it would rather lose than those listed
    checkpoints  (key, Unix nanoseconds of its last checkpoint)
    """

    notice: int
    accepted: bool | None = None
    instead: tuple[str, ...] = ()
    checkpoints: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerCallbacks:
    """Answers to questions. Those to unknown or expired questions are ignored.

    ``acknowledged``: what the shim has in place from here on, behind the answers.
    """

    rm_id: str
    predicates: tuple[PredicatesAnswer, ...] = ()
    preemption_predicates: tuple[PreemptionPredicatesAnswer, ...] = ()
    notices: tuple[PreemptionNoticeAnswer, ...] = ()
    acknowledged: tuple[PlacementKey, ...] = ()


Command = (
    RegisterManager
    | UnregisterManager
    | UpdateConfiguration
    | UpdateNodes
    | SetOperatorDrain
    | UpdateApplications
    | UpdateAllocations
    | AttachCallbacks
    | DetachCallbacks
    | AnswerCallbacks
)


class Fault(IntEnum):
    """The side whose mistake a refused command is; the service turns it into a status code."""

    UNKNOWN_MANAGER = 1
    """Nobody registered under this rmID."""
    OTHER_MANAGER = 2
    """Another resource manager holds the core."""
    INVALID_ARGUMENT = 3
    """The command itself is wrong."""


class CommandRefused(Exception):
    """A whole command that cannot be taken; nothing of it was applied unless the spec says otherwise."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
