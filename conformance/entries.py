"""The entries of a core's answers, and patterns for expected entries.

One response message may carry many entries, and a core is free to choose how many: cases therefore compare sequences of
entries. ``batch`` is the number of the message with the entry, for the few rules that demand *one* message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from google.protobuf.message import Message

from kornel.si.v1 import si_pb2 as si


class Kind(StrEnum):
    """The list of the response that contained the entry."""

    NODE_ACCEPTED = "node accepted"
    NODE_REJECTED = "node rejected"
    APP_ACCEPTED = "application accepted"
    APP_REJECTED = "application rejected"
    APP_UPDATED = "application updated"
    NEW = "new"
    RELEASED = "released"
    ASK_RELEASED = "releasedAsks"
    REJECTED = "rejectedAllocations"
    REJECTED_ASK = "rejected"


REFUSALS: Final = frozenset({Kind.NODE_REJECTED, Kind.APP_REJECTED, Kind.REJECTED, Kind.REJECTED_ASK})


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a core's response.

    key          the node, application or allocation that the entry is about
    detail       refusal: its reason token; update: the state; new: the node; release: the termination type
    application  of an allocation; empty for everything else
    batch        running number of the response message on its stream
    """

    kind: Kind
    key: str
    detail: str
    application: str
    batch: int
    message: Message = field(repr=False)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.key, self.detail)))


@dataclass(frozen=True, slots=True)
class Want:
    """A pattern for one entry. ``detail`` and ``application``: ``None`` matches any."""

    kind: Kind
    key: str
    detail: str | None = None
    application: str | None = None

    def matches_entry(self, entry: Entry, *, any_reason: bool = False) -> bool:
        """Tells whether *entry* matches the pattern; with *any_reason*, whatever the reason of a refusal is."""
        return (
            entry.kind is self.kind
            and entry.key == self.key
            and (self.detail in (None, entry.detail) or (any_reason and self.kind in REFUSALS))
            and self.application in (None, entry.application)
        )

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.key, self.detail)))


def node_accepted(node: str) -> Want:
    """Returns the pattern for an accepted node."""
    return Want(Kind.NODE_ACCEPTED, node)


def node_rejected(node: str, token: str) -> Want:
    """Returns the pattern for a refused node."""
    return Want(Kind.NODE_REJECTED, node, token)


def app_accepted(app: str) -> Want:
    """Returns the pattern for an accepted application."""
    return Want(Kind.APP_ACCEPTED, app)


def app_rejected(app: str, token: str | None = None) -> Want:
    """Returns the pattern for a refused application."""
    return Want(Kind.APP_REJECTED, app, token)


def updated(app: str, state: str) -> Want:
    """Returns the pattern for an application that entered *state*."""
    return Want(Kind.APP_UPDATED, app, state)


def new(key: str, node: str | None = None, app: str | None = None) -> Want:
    """Returns the pattern for a new allocation."""
    return Want(Kind.NEW, key, node, app)


def released(key: str, termination: int = si.STOPPED_BY_RM, app: str | None = None) -> Want:
    """Returns the pattern for a release by the core."""
    return Want(Kind.RELEASED, key, termination_name(termination), app)


def rejected(key: str, token: str | None, app: str | None = None) -> Want:
    """Returns the pattern for a refused ask or allocation."""
    return Want(Kind.REJECTED, key, token, app)


def rejected_ask(key: str, token: str | None = None) -> Want:
    """Returns the pattern for a refused ask in the list of the older generation."""
    return Want(Kind.REJECTED_ASK, key, token)


def termination_name(termination: int) -> str:
    """Returns the name of a termination type, or its number if it has no name."""
    known: dict[int, str] = {number: name for name, number in si.TerminationType.items()}
    return known.get(termination, str(termination))


def node_entries(response: si.NodeResponse, batch: int) -> Iterator[Entry]:
    """Yields the entries in one message of the node stream."""
    for accepted in response.accepted:
        yield Entry(Kind.NODE_ACCEPTED, accepted.nodeID, "", "", batch, accepted)
    for refused in response.rejected:
        yield Entry(Kind.NODE_REJECTED, refused.nodeID, _token_of(refused.reason), "", batch, refused)


def application_entries(response: si.ApplicationResponse, batch: int) -> Iterator[Entry]:
    """Yields the entries in one message of the application stream."""
    for accepted in response.accepted:
        yield Entry(Kind.APP_ACCEPTED, accepted.applicationID, "", "", batch, accepted)
    for refused in response.rejected:
        yield Entry(Kind.APP_REJECTED, refused.applicationID, _token_of(refused.reason), "", batch, refused)
    for update in response.updated:
        yield Entry(Kind.APP_UPDATED, update.applicationID, update.state, "", batch, update)


def allocation_entries(response: si.AllocationResponse, batch: int) -> Iterator[Entry]:
    """Yields the entries in one message of the allocation stream."""
    for placed in response.new:
        yield Entry(Kind.NEW, placed.allocationKey, placed.nodeID, placed.applicationID, batch, placed)
    for gone in response.released:
        how = termination_name(gone.terminationType)
        yield Entry(Kind.RELEASED, gone.allocationKey, how, gone.applicationID, batch, gone)
    for dropped in response.releasedAsks:
        how = termination_name(dropped.terminationType)
        yield Entry(Kind.ASK_RELEASED, dropped.allocationKey, how, dropped.applicationID, batch, dropped)
    for refused in response.rejectedAllocations:
        token = _token_of(refused.reason)
        yield Entry(Kind.REJECTED, refused.allocationKey, token, refused.applicationID, batch, refused)
    for old in response.rejected:
        yield Entry(Kind.REJECTED_ASK, old.allocationKey, _token_of(old.reason), old.applicationID, batch, old)


def _token_of(reason: str) -> str:
    """Returns the part of a reason that the contract defines: the part before the colon."""
    return reason.partition(":")[0]
