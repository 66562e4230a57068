"""Effects: the engine's decisions and answers as values, in the order of the decisions.

The service turns runs of effects of one kind into response messages and keeps their order; the engine has no other
output. The same commands at the same times give the same effects, byte for byte, in any process.
"""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.domain.commands import AllocationSpec, PlacementKey
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources


class NodeAccepted(NamedTuple):
    """A node was created."""

    node_id: str


class NodeRejected(NamedTuple):
    """A node was not created; ``reason`` starts with its token (:class:`kornel.core.domain.reasons.Rejection`)."""

    node_id: str
    reason: str
    partition: str = ""
    """The full name of the partition."""


class ApplicationAccepted(NamedTuple):
    """An application was placed in a queue; its state is New. ``partition``: full name; ``queue``: its leaf."""

    application_id: str
    partition: str = ""
    queue: str = ""
    user: str = ""


class ApplicationRejected(NamedTuple):
    """An application was not added; ``reason`` starts with its token."""

    application_id: str
    reason: str
    partition: str = ""
    """The name that the shim gave."""
    queue: str = ""
    """The name that the shim gave."""
    user: str = ""


class ApplicationUpdated(NamedTuple):
    """An application changed its state at ``at_ns`` (Unix nanoseconds).

    ``partition``: full name; ``queue``: its leaf, empty if it was never in a queue; ``submitted_ns``: when it was
    added, 0 if that is no longer known.
    """

    application_id: str
    state: str
    at_ns: int
    message: str
    partition: str = ""
    queue: str = ""
    user: str = ""
    submitted_ns: int = 0


class ApplicationRemoved(NamedTuple):
    """The shim removed an application that had not finished. Only histories use this; shims are not notified
    (protocol.md 6.5).

    ``state``: the :class:`kornel.core.domain.application_states.AppState` before.
    """

    application_id: str
    state: str
    at_ns: int
    partition: str
    queue: str
    user: str
    submitted_ns: int


class Allocated(NamedTuple):
    """An ask was placed, or a recovered allocation was confirmed. ``resources`` differ from those of the spec after a
    resize.

    ``tags`` are to be repeated by the shim when it reports the allocation: they name the devices that it holds, and
    those that it requested.
    """

    spec: AllocationSpec
    node_id: str
    resources: Resources
    tags: tuple[tuple[str, str], ...] = ()


class Released(NamedTuple):
    """An allocation is, or is to be, released. ``termination``:
    :class:`kornel.core.domain.commands.TerminationType`.
    """

    partition: str
    application_id: str
    key: str
    termination: int
    message: str
    instance: int = 0
    """The number of this one among several allocations under one key, as in
    :class:`kornel.core.domain.commands.AllocationSpec`."""


class AskReleased(NamedTuple):
    """A pending ask of a G2 shim was dropped by the core; other shims get :class:`Released`."""

    partition: str
    application_id: str
    key: str
    termination: int
    message: str


class AllocationRejected(NamedTuple):
    """An entry of an allocation request was rejected; ``legacy`` entries are answered in the list of G2."""

    key: str
    application_id: str
    reason: str
    legacy: bool
    partition: str = ""
    """The full name of the partition."""


class VictimRecord(NamedTuple):
    """One victim of a preemption decision."""

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    adjusted_priority: int


class PreemptionDecided(NamedTuple):
    """An attempt to preempt and its outcome (preemption.md I). It has victims only if ``outcome`` is TRIGGERED.

    The periodic policy serves no single ask: ``key`` and ``application_id`` are empty, ``queue`` is the queue that
    gives up something, and NOTIFIED, WITHDRAWN and OBSERVED name the allocations concerned as victims.

    ``gang_plan`` is the number of the plan for a gang that it belongs to; 0: it belongs to none.
    """

    at_ns: int
    partition: str
    kind: str
    key: str
    application_id: str
    queue: str
    outcome: Outcome
    detail: str
    node_id: str
    victims: tuple[VictimRecord, ...]
    gang_plan: int = 0


class PredicatesAsked(NamedTuple):
    """The question whether ``key`` may run on some nodes, the preferred one first. ``allocate``: as in protocol.md 13.

    ``dependent``: the answer depends on other placements, all of which are in place except ``after``, which the shim
    awaits.
    """

    question: int
    partition: str
    application_id: str
    key: str
    node_ids: tuple[str, ...]
    allocate: bool
    dependent: bool = False
    after: PlacementKey | None = None


class PlacementVoid(NamedTuple):
    """The shim has ``key`` in place, although the core did not act upon its positive answer."""

    partition: str
    key: str


class PreemptionPredicatesAsked(NamedTuple):
    """The question whether ``key`` could run on the node if victims left. Fields: protocol.md 2.6, 13."""

    question: int
    partition: str
    application_id: str
    key: str
    node_id: str
    victims: tuple[str, ...]
    start_index: int


class SchedulingFailed(NamedTuple):
    """An ask that quotas allow was tried and found no room, which is a reason to add nodes (scheduling.md 16)."""

    application_id: str
    key: str
    reason: str


class EventRecorded(NamedTuple):
    """One entry of the event history (protocol.md 14). The numbers are those of ``si.v1.EventRecord``'s enums."""

    type: int
    object_id: str
    reference_id: str
    change: int
    detail: int
    at_ns: int
    resources: Resources | None
    message: str


class AsksRecorded(NamedTuple):
    """One record for the events of asks that were added one after the other. The events are made of it when they are
    read, by :mod:`kornel.core.domain.history.event_records`.

    ``values`` has for one ask after the other: its application, its key as the shim knows it, and its resources.
    """

    at_ns: int
    values: list[str | Resources]


class PlacementsRecorded(NamedTuple):
    """One record for the events of placements that were made one after the other.

    ``values`` has for one placement after the other: key, application, node, user, queue and resources.
    """

    at_ns: int
    values: list[str | Resources]


class RemovalsRecorded(NamedTuple):
    """The entries of the event history about allocations that ended one after the other, each with its request.

    ``values``: key, application, node, user, queue, detail of the event and resources of one allocation after the
    other.
    """

    at_ns: int
    values: list[str | int | Resources]


class PreemptionNotice(NamedTuple):
    """An application may have to give up allocations by ``deadline_ns`` (Unix nanoseconds; preemption.md E.7).

    Keys in ``strict`` are preempted whatever else it releases, those in ``at_risk`` as far as ``need`` is not met
    otherwise.
    """

    notice: int
    partition: str
    application_id: str
    round: int
    strict: tuple[str, ...]
    at_risk: tuple[str, ...]
    need: Resources | None
    deadline_ns: int
    kind: str
    reason: str


class PreemptionNoticeWithdrawn(NamedTuple):
    """Some keys of an earlier notice are no longer at risk."""

    notice: int
    partition: str
    application_id: str
    keys: tuple[str, ...]


NoticeEffect = PreemptionNotice | PreemptionNoticeWithdrawn
CallbackEffect = (
    PredicatesAsked
    | PreemptionPredicatesAsked
    | PlacementVoid
    | SchedulingFailed
    | EventRecorded
    | AsksRecorded
    | PlacementsRecorded
    | RemovalsRecorded
    | NoticeEffect
)
AllocationEffect = Allocated | Released | AskReleased | AllocationRejected
ApplicationEffect = ApplicationAccepted | ApplicationRejected | ApplicationUpdated
NodeEffect = NodeAccepted | NodeRejected
Effect = AllocationEffect | ApplicationEffect | NodeEffect | CallbackEffect | PreemptionDecided | ApplicationRemoved
