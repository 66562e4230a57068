"""Effects: what the engine decided and answers, as values in the order of the decisions.

The service turns runs of equal kinds into response messages and keeps their order; the engine has no other output. The
same commands at the same times give the same effects, byte for byte, in any process.
"""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources


class NodeAccepted(NamedTuple):
    """A created node was taken in."""

    node_id: str


class NodeRejected(NamedTuple):
    """A node was not created; ``reason`` starts with its token (:class:`kornel.core.domain.reasons.Rejection`)."""

    node_id: str
    reason: str
    partition: str = ""
    """Full name."""


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

    ``partition``: full name; ``queue``: its leaf, empty for one that never got into a queue; ``submitted_ns``: when it
    was added, 0 if that is not known any more.
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
    """An application that had not finished was removed by the shim. For histories: no shim is notified (protocol.md
    6.5).

    ``state``: of :class:`kornel.core.domain.application_states.AppState`, as it was before.
    """

    application_id: str
    state: str
    at_ns: int
    partition: str
    queue: str
    user: str
    submitted_ns: int


class Allocated(NamedTuple):
    """An ask was placed, or a recovered allocation confirmed. ``resources`` differ from the spec's after a resize."""

    spec: AllocationSpec
    node_id: str
    resources: Resources


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
    """The number among several under one key, as in :class:`kornel.core.domain.commands.AllocationSpec`."""


class AskReleased(NamedTuple):
    """A pending ask of a G2 shim was dropped by the core; other shims get :class:`Released`."""

    partition: str
    application_id: str
    key: str
    termination: int
    message: str


class AllocationRejected(NamedTuple):
    """An entry of an allocation request was turned away; ``legacy`` entries go to the G2 list."""

    key: str
    application_id: str
    reason: str
    legacy: bool
    partition: str = ""
    """Full name."""


class VictimRecord(NamedTuple):
    """One victim of a preemption decision."""

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    adjusted_priority: int


class PreemptionDecided(NamedTuple):
    """One attempt to preempt and how it ended (preemption.md I). No victims unless ``outcome`` is TRIGGERED.

    The periodic policy serves no single ask: ``key`` and ``application_id`` are empty, ``queue`` is who gives up, and
    NOTIFIED, WITHDRAWN and OBSERVED name the allocations they concern.
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


class PredicatesAsked(NamedTuple):
    """May *key* run on these nodes? The preferred one comes first. ``allocate``: as in protocol.md 13.

    ``dependent``: other placements decide, and all that were made are in place.
    """

    question: int
    partition: str
    application_id: str
    key: str
    node_ids: tuple[str, ...]
    allocate: bool
    dependent: bool = False


class PlacementVoid(NamedTuple):
    """The shim has *key* in place although its yes was not acted upon."""

    partition: str
    key: str


class PreemptionPredicatesAsked(NamedTuple):
    """Would *key* run on the node if victims left? Arguments: protocol.md 2.6, 13."""

    question: int
    partition: str
    application_id: str
    key: str
    node_id: str
    victims: tuple[str, ...]
    start_index: int


class SchedulingFailed(NamedTuple):
    """An ask that quotas allow was tried and found no room: a reason to add nodes (scheduling.md 16)."""

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


class PreemptionNotice(NamedTuple):
    """An application may have to give up allocations by ``deadline_ns`` (Unix nanoseconds; preemption.md E.7).

    ``strict`` keys go whatever else it releases. Of ``at_risk`` those go that ``need`` is not met without.
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
    """These keys of an earlier notice are at risk no more."""

    notice: int
    partition: str
    application_id: str
    keys: tuple[str, ...]


NoticeEffect = PreemptionNotice | PreemptionNoticeWithdrawn
CallbackEffect = (
    PredicatesAsked | PreemptionPredicatesAsked | PlacementVoid | SchedulingFailed | EventRecorded | NoticeEffect
)
AllocationEffect = Allocated | Released | AskReleased | AllocationRejected
ApplicationEffect = ApplicationAccepted | ApplicationRejected | ApplicationUpdated
NodeEffect = NodeAccepted | NodeRejected
Effect = AllocationEffect | ApplicationEffect | NodeEffect | CallbackEffect | PreemptionDecided | ApplicationRemoved
