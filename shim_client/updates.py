"""The core's messages to a shim as typed values, in the order in which each stream delivered them.

The contract defines no order across the three streams, so this module defines none either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kornel.si.v1 import si_pb2 as si


class StreamKind(StrEnum):
    """One of the three streams of the service, by the name of its RPC."""

    ALLOCATION = "UpdateAllocation"
    """The stream of asks, allocations and releases, and of the core's decisions about them."""
    APPLICATION = "UpdateApplication"
    """The stream of applications, and of the states that they enter."""
    NODE = "UpdateNode"
    """The stream of nodes, and of the answers that accept or reject them."""


@dataclass(frozen=True, slots=True)
class NodeAccepted:
    """The node was created: allocations on it may be reported now."""

    node_id: str


@dataclass(frozen=True, slots=True)
class NodeRejected:
    """The node was not created. *reason* starts with a code word of the contract, such as ``node-exists``."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplicationAccepted:
    """The application was added, so its asks may be sent now. This is not its state Accepted."""

    application_id: str


@dataclass(frozen=True, slots=True)
class ApplicationRejected:
    """The application was not added."""

    application_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplicationUpdated:
    """The application entered *state* at *at_ns* (Unix nanoseconds)."""

    application_id: str
    state: str
    at_ns: int
    message: str


@dataclass(frozen=True, slots=True)
class Allocated:
    """The task of the ask *key* may start on *node_id*, or the core confirms an allocation that the shim reported."""

    key: str
    application_id: str
    node_id: str
    message: si.Allocation


@dataclass(frozen=True, slots=True)
class Released:
    """An allocation ends or is to be ended.

    With PREEMPTED_BY_SCHEDULER, TIMEOUT or PLACEHOLDER_REPLACED the shim stops the container and then confirms with the
    same type. With STOPPED_BY_RM it has ended already, and the shim confirms nothing.
    """

    key: str
    application_id: str
    termination: si.TerminationType.ValueType
    message: str

    @property
    def wants_confirmation(self) -> bool:
        """Tells whether the core keeps the room booked until the shim confirms."""
        return self.termination in (si.PREEMPTED_BY_SCHEDULER, si.TIMEOUT, si.PLACEHOLDER_REPLACED)


@dataclass(frozen=True, slots=True)
class AskReleased:
    """The core dropped a pending ask (generation G2 only: G3 reports this with :class:`Released`)."""

    key: str
    application_id: str
    message: str


@dataclass(frozen=True, slots=True)
class AskRejected:
    """The core refused an ask or a reported allocation."""

    key: str
    application_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamReopened:
    """A stream broke and is open again.

    The core kept its state, and its messages of the meantime follow. If *exact* is true, both sides continue exactly
    where the stream broke, so nothing was lost and nothing comes twice. Otherwise entries that the shim wrote just
    before the break may be lost: allocations, asks and releases are idempotent, so it is safe and sufficient to report
    them again.
    """

    stream: StreamKind
    exact: bool = False


Update: TypeAlias = (
    NodeAccepted
    | NodeRejected
    | ApplicationAccepted
    | ApplicationRejected
    | ApplicationUpdated
    | Allocated
    | Released
    | AskReleased
    | AskRejected
    | StreamReopened
)


class UpdateHandler:
    """A base class with one method per kind of update, for shims that prefer callbacks. Override the methods that you
    need.

    Methods run in the event loop and must not block; while one runs, nothing further is read.
    """

    def node_accepted(self, update: NodeAccepted) -> None:
        """Called when a node was created."""

    def node_rejected(self, update: NodeRejected) -> None:
        """Called when a node was refused."""

    def application_accepted(self, update: ApplicationAccepted) -> None:
        """Called when an application was added."""

    def application_rejected(self, update: ApplicationRejected) -> None:
        """Called when an application was refused."""

    def application_updated(self, update: ApplicationUpdated) -> None:
        """Called when an application entered a state."""

    def allocated(self, update: Allocated) -> None:
        """Called when an ask was placed, or a reported allocation was confirmed."""

    def released(self, update: Released) -> None:
        """Called when an allocation ends or is to be ended."""

    def ask_released(self, update: AskReleased) -> None:
        """Called when the core dropped a pending ask (generation G2)."""

    def ask_rejected(self, update: AskRejected) -> None:
        """Called when an ask or a reported allocation was refused."""

    def stream_reopened(self, update: StreamReopened) -> None:
        """Called when a stream that broke is open again."""

    def handle(self, update: Update) -> None:
        """Call the method for the kind of *update*."""
        match update:
            case Allocated():
                self.allocated(update)
            case Released():
                self.released(update)
            case ApplicationUpdated():
                self.application_updated(update)
            case NodeAccepted():
                self.node_accepted(update)
            case NodeRejected():
                self.node_rejected(update)
            case ApplicationAccepted():
                self.application_accepted(update)
            case ApplicationRejected():
                self.application_rejected(update)
            case AskReleased():
                self.ask_released(update)
            case AskRejected():
                self.ask_rejected(update)
            case StreamReopened():
                self.stream_reopened(update)


def node_updates(response: si.NodeResponse) -> Iterator[Update]:
    """Yields the updates in one message of the node stream."""
    for accepted in response.accepted:
        yield NodeAccepted(accepted.nodeID)
    for rejected in response.rejected:
        yield NodeRejected(rejected.nodeID, rejected.reason)


def application_updates(response: si.ApplicationResponse) -> Iterator[Update]:
    """Yields the updates in one message of the application stream."""
    for accepted in response.accepted:
        yield ApplicationAccepted(accepted.applicationID)
    for rejected in response.rejected:
        yield ApplicationRejected(rejected.applicationID, rejected.reason)
    for updated in response.updated:
        yield ApplicationUpdated(
            updated.applicationID, updated.state, updated.stateTransitionTimestamp, updated.message
        )


def allocation_updates(response: si.AllocationResponse) -> Iterator[Update]:
    """Yields the updates in one message of the allocation stream. Old and new lists of refusals come out the same."""
    for allocation in response.new:
        yield Allocated(allocation.allocationKey, allocation.applicationID, allocation.nodeID, allocation)
    for release in response.released:
        yield Released(release.allocationKey, release.applicationID, release.terminationType, release.message)
    for ask_release in response.releasedAsks:
        yield AskReleased(ask_release.allocationKey, ask_release.applicationID, ask_release.message)
    for old_refusal in response.rejected:
        yield AskRejected(old_refusal.allocationKey, old_refusal.applicationID, old_refusal.reason)
    for refusal in response.rejectedAllocations:
        yield AskRejected(refusal.allocationKey, refusal.applicationID, refusal.reason)
