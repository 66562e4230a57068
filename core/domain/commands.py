"""Commands of a shim to the engine: serialisable values with everything that the engine needs except the time.

Partition names are in their full form ``[rm]name`` (protocol.md 4.1). Times are nanoseconds since the Unix epoch;
``created_s`` is in whole seconds. Amounts: :mod:`kornel.core.domain.resources`. Values of which a message has thousands
are ``NamedTuple``: as immutable as a frozen dataclass, and several times cheaper to build.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from kornel.core.domain.devices import DeviceRequest
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest

DEPENDENT_TAG: Final = "kornel.dependsOnPlacements"
"""The tag of an ask that says, with the value ``true``, that other placements decide on which nodes it may run. Case
matters."""

CREATION_TIME_TAG: Final = "creationTime"
"""The tag of an allocation with its creation time, in Unix seconds of the shim's clock. Case matters."""


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
    """The reasons for which an allocation ends (protocol.md 10.3). Unknown numbers mean STOPPED_BY_RM."""

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
    # From here on stand the fields that are taken as they are sent, see PLAIN_FIELDS.
    priority: int = 0
    node_id: str = ""
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    # And from here on those that have to be interpreted.
    allow_preempt_self: bool = True
    allow_preempt_other: bool = False
    created_s: int | None = None
    required_node: str = ""
    foreign: str = ""
    """``static`` or ``default`` for load of another scheduler, otherwise empty."""
    tags: tuple[tuple[str, str], ...] = ()
    legacy: bool = False
    """Tells whether it was sent as a G2 ``AllocationAsk``, so that rejections go into the older list."""
    max_allocations: int = 1
    """The number of allocations that the key is to have; meaningful only for G2 asks."""
    instance: int = 0
    """The number of this allocation among several under one key (:mod:`kornel.core.domain.allocation_ids`)."""
    dependent: bool = False
    """Tells whether other placements decide if it may run on a node, so that the shim is asked about such asks one at a
    time."""
    topology: TopologyRequest | None = None
    """The topology that its tags ask for; ``None``: none."""
    devices: DeviceRequest | None = None
    """The devices that its tags ask for; ``None``: none."""


PLAIN_FIELDS: Final = AllocationSpec._fields[
    AllocationSpec._fields.index("priority") : AllocationSpec._fields.index("allow_preempt_self")
]
"""The fields of an allocation that are taken as they are sent. Each has a default, and the name of its field in
``si.v1.Allocation``: requests, answers, the journal, snapshots and views take them by name."""


class ReleaseSpec(NamedTuple):
    """One entry of ``allocationsToRelease``. Without an application, it is about foreign load; without key and ID,
    about all of the application."""

    partition: str
    application_id: str
    key: str
    termination: int = TerminationType.STOPPED_BY_RM
    message: str = ""
    allocation_id: str = ""
    """Names one allocation in G2, with or without its key. Empty: not given."""


class NodeSpec(NamedTuple):
    """One entry of a node request. ``capacity`` absent: not given (an empty node, or unchanged on UPDATE)."""

    node_id: str
    action: int
    partition: str
    attributes: tuple[tuple[str, str], ...] = ()
    capacity: Resources | None = None
    occupied: Resources | None = None
    """The load of other schedulers on the whole node, ``occupiedResource`` of G2. Absent: not given."""
    existing: tuple[AllocationSpec, ...] = ()
    """The allocations recovered with the node, ``existingAllocations`` of G2: all of them or none."""


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
    """The groups that a resolver found for ``user``; ignored if the shim gave ``groups``. Empty: no resolver was
    asked."""
    unresolved: str = ""
    """The reason why a resolver found no groups; empty: it found some, or none was asked."""
    created_s: int | None = None
    """The time when the application was first submitted, in the core's time, if the shim gives it."""


class ApplicationRef(NamedTuple):
    """One application to remove."""

    application_id: str
    partition: str


@dataclass(frozen=True, slots=True)
class RegisterManager:
    """Register a resource manager with a configuration, without any earlier state (protocol.md 5.1, 5.2).

    ``of_file``: the text is that of the core's file, or built in, because the manager sends none. The engine does not
    use it.
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

    ``of_file``: as in :class:`RegisterManager`.
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
    """Take a node out of scheduling for an operator, or end that. The manager's own drains are kept apart.

    ``by``: the operator's name, which is shown.
    """

    rm_id: str
    partition: str
    node_id: str
    drained: bool
    by: str = ""


class PreemptTarget(StrEnum):
    """The things that a person may name who preempts by hand (preemption.md N)."""

    ALLOCATION = "allocation"
    APPLICATION = "application"
    NODE = "node"
    QUEUE = "queue"


class Waivable(StrEnum):
    """The laws that a person who preempts by hand may waive, by the names of preemption.md N."""

    GUARANTEE = "guarantee"
    RUN_TIME = "run-time"
    GANG = "gang"
    REQUIRED_NODE = "required-node"
    NEED = "need"


@dataclass(frozen=True, slots=True)
class PreemptByHand:
    """Ask those to leave whom a person names (preemption.md N).

    target  what ``name`` is the name of
    amount  what a queue is to give up, in base units; ``None`` for other targets
    waived  the laws that keep nobody back, by their names in :class:`Waivable`
    reason  why the person does so; it must be given if a law is waived
    by      the name of the person, which is shown
    """

    rm_id: str
    partition: str
    target: PreemptTarget
    name: str
    amount: Resources | None = None
    waived: tuple[str, ...] = ()
    reason: str = ""
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
    """Remove the manager and everything that it reported, without effects."""

    rm_id: str


@dataclass(frozen=True, slots=True)
class AttachCallbacks:
    """Subscribe the shim to questions and notices of these kinds (protocol.md 13).

    The command replaces an earlier subscription. A missing answer counts as a refusal after ``timeout_ns``.

    ``awaits_placements``: before it judges, the shim itself waits for the placement that a question names.
    """

    rm_id: str
    predicates: bool = False
    preemption_predicates: bool = False
    scheduling_states: bool = False
    events: bool = False
    timeout_ns: int = 1_000_000_000
    preemption_notices: bool = False
    awaits_placements: bool = False


@dataclass(frozen=True, slots=True)
class DetachCallbacks:
    """End the subscription: open questions are dropped, and every placement is allowed."""

    rm_id: str


class PredicatesAnswer(NamedTuple):
    """The shim's answer about nodes. ``refused``: (node ID, reason); nodes not named may be used.

    ``dependent``: other placements could change the answer.
    """

    question: int
    refused: tuple[tuple[str, str], ...] = ()
    dependent: bool = False


class PlacementKey(NamedTuple):
    """An ask or allocation of a partition by its key. ``node_id`` empty: on any node."""

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
    """The answer of an application to a notice (preemption.md E.7). ``accepted`` is ``None`` if the application does
    not say.

    instead      keys of its own that it would rather lose than those listed
    checkpoints  (key, Unix nanoseconds of its last checkpoint)
    """

    notice: int
    accepted: bool | None = None
    instead: tuple[str, ...] = ()
    checkpoints: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerCallbacks:
    """Answer questions. Answers to unknown or expired questions are ignored.

    ``acknowledged``: what the shim has in place, after it gave the answers.
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
    | PreemptByHand
    | UpdateApplications
    | UpdateAllocations
    | AttachCallbacks
    | DetachCallbacks
    | AnswerCallbacks
)

StreamCommand = UpdateNodes | UpdateApplications | UpdateAllocations
"""The commands that arrive on a stream: entries of one kind."""


class Fault(IntEnum):
    """The reasons to refuse a command, which the service turns into status codes."""

    UNKNOWN_MANAGER = 1
    """No resource manager is registered under this rmID."""
    OTHER_MANAGER = 2
    """Another resource manager is registered."""
    INVALID_ARGUMENT = 3
    """The command itself is wrong."""


class CommandRefused(Exception):
    """A whole command is refused; nothing of it was applied unless the rules say otherwise."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.fault, *self.args), vars(self)
