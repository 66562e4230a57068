"""Maps errors to gRPC status codes, in one table.

::

    error                         code                  who can help
    CommandRefused                by its fault          the caller: register first, or fix the command
    ConfigError                   INVALID_ARGUMENT      the author of the configuration
    MalformedMessage              INVALID_ARGUMENT      the author of the client
    OtherManagerOnStream          INVALID_ARGUMENT      the author of the client
    BadSubscription               INVALID_ARGUMENT      the author of the client
    ResyncRequired                FAILED_PRECONDITION   the caller: register again
    ManagerGone                   FAILED_PRECONDITION   the caller: register again
    Superseded                    ABORTED               the caller: end, since another program has its place
    RegistrationHeld              FAILED_PRECONDITION   the caller: register later, as the trailing metadata says
    UnknownPartition, UnknownAsk  NOT_FOUND             the caller
    UnknownManager                NOT_FOUND             the caller
    AmbiguousPartition            INVALID_ARGUMENT      the caller: name the manager as well
    UnknownQueue, UnknownUser     NOT_FOUND             the caller
    UnknownNode                   NOT_FOUND             the caller
    UnknownApplication            NOT_FOUND             the caller
    UnknownLevel                  NOT_FOUND             the caller: the message names the levels that there are
    UnknownService                NOT_FOUND             the caller
    UnknownVersion                NOT_FOUND             the caller
    VersionNotApplied             FAILED_PRECONDITION   the caller: another version
    NothingRegistered             FAILED_PRECONDITION   the caller: when a manager has registered
    NoRollback                    FAILED_PRECONDITION   nobody: there is nothing to undo
    InvalidRequest                INVALID_ARGUMENT      the caller
    NotAuthenticated              UNAUTHENTICATED       the caller: prove who it is
    NotPermitted                  PERMISSION_DENIED     whoever grants permissions
    TooMany                       RESOURCE_EXHAUSTED    the caller: wait
    TooLarge                      RESOURCE_EXHAUSTED    the caller: send less at once
    HistoryOff                    FAILED_PRECONDITION   the administrator: kornel serve --history
    HistoryUnavailable            UNAVAILABLE           the caller: try again when the database answers
    TrackingDisabled              FAILED_PRECONDITION   whoever sets event.trackingEnabled
    CursorOutOfRange              OUT_OF_RANGE          the caller: start without a cursor
    EventStreamsFull              RESOURCE_EXHAUSTED    the caller: try later; or whoever sets the limits
    SlowReader                    RESOURCE_EXHAUSTED    the caller: resume, and read faster
    JournalFull                   RESOURCE_EXHAUSTED    the administrator: make room for the journal
    JournalUnavailable            UNAVAILABLE           the caller: try again when the journal can be written
    NotLeading                    UNAVAILABLE           the caller: ask the leader, as the trailing metadata says
    ShuttingDown                  UNAVAILABLE           the caller: try again, perhaps elsewhere
    anything else                 INTERNAL              us: it is a bug

Where waiting helps, the status says for how long (:mod:`kornel.core.service.wire.retry_info`).

Rules: protocol.md 1.1 and 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple
from urllib.parse import quote

import grpc

from kornel.core.config.text.problems import ConfigError, Problem
from kornel.core.domain.commands import CommandRefused, Fault
from kornel.core.service.wire.retry_info import DETAILS_KEY, encode_retry_info
from kornel.core.telling.core_reader import AmbiguousPartition
from kornel.core.telling.encoding.kornel_v1 import encode_problem
from kornel.v1.configuration_pb2 import ConfigurationProblems

PROBLEMS_KEY: Final = "kornel-problems-bin"
RETRY_KEY: Final = "kornel-retry-after-ms"
LEADER_KEY: Final = "kornel-leader"

# A status is sent in HTTP/2 headers, of which clients accept 8 KiB by default; with more, the call fails with another
# error than this one. In headers, details are percent-encoded, and binary metadata grow by a third.
DETAILS_LIMIT: Final = 2_000
PROBLEMS_LIMIT: Final = 3_500


class ServiceError(Exception):
    """A call or stream that the service itself ends."""

    RETRY_S: ClassVar[float | None] = None
    """The seconds after which the same may be tried again; ``None``: waiting alone does not help."""

    @property
    def retry_s(self) -> float | None:
        """The seconds after which this call may be tried again; ``None``: waiting alone does not help."""
        return self.RETRY_S


class MalformedMessage(ServiceError):
    """The bytes are not a message of the expected type."""


class OtherManagerOnStream(ServiceError):
    """A stream that is bound to one rmID names another one."""


class BadSubscription(ServiceError):
    """The first message of a callback stream subscribes to nothing, or a later message subscribes again."""


class ResyncRequired(ServiceError):
    """Responses were lost, so only a new registration makes both sides agree again."""


class ManagerGone(ServiceError):
    """The resource manager of the stream was unregistered."""


class Superseded(ServiceError):
    """Another session of the same resource manager has registered since then."""


class StreamReplaced(ServiceError):
    """The client has opened another stream of the same kind, which goes on where this one was."""


class RegistrationHeld(ServiceError):
    """The caller wants to register only after the session before it is gone, which it is not yet. ``retry_ms``: the
    time after which it may be."""

    def __init__(self, message: str, *, retry_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_ms = retry_ms

    @property
    def retry_s(self) -> float | None:
        """The seconds after which the session before may be gone."""
        return self.retry_ms / 1000


class InvalidRequest(ServiceError):
    """The values of a request make no sense."""


class TrackingDisabled(ServiceError):
    """The caller asks for events while none are kept."""


class CursorOutOfRange(ServiceError):
    """The caller wants to continue after an event that has not happened."""


class EventStreamsFull(ServiceError):
    """Another event stream would be more than the settings allow."""

    RETRY_S = 5.0


class SlowReader(ServiceError):
    """The client of an event stream does not keep up."""

    RETRY_S = 1.0


class UnknownPartition(ServiceError):
    """The partition does not exist."""


class UnknownManager(ServiceError):
    """The resource manager is not registered."""


def say_no_partition(rm_id: str, partition: str) -> str:
    """Returns the error text for a *partition* that does not exist, while *rm_id* is registered."""
    name = partition or "default"
    if not rm_id:
        return f"no resource manager is registered, so there is no partition {name!r} yet"
    return f"no partition {name!r}"


class UnknownQueue(ServiceError):
    """The queue does not exist."""


class UnknownUser(ServiceError):
    """The user has no application and no limit."""


class UnknownNode(ServiceError):
    """The node does not exist."""


class UnknownLevel(ServiceError):
    """The topology of the partition has no level of this name."""


class UnknownApplication(ServiceError):
    """The application does not exist and is not remembered."""


class UnknownService(ServiceError):
    """The caller asks about the health of a service that does not exist."""


class UnknownVersion(ServiceError):
    """The version of the configuration is not kept."""


class VersionNotApplied(ServiceError):
    """The caller wants to return to a configuration that was never in force."""


class NothingRegistered(ServiceError):
    """The caller asks about the configuration in force while no manager is registered."""


class NoRollback(ServiceError):
    """The caller wants to undo a rollback while none is in force."""


class UnknownAsk(ServiceError):
    """The ask or allocation does not exist."""


class NotAuthenticated(ServiceError):
    """The caller gave no proof of identity, or an invalid one."""


class NotPermitted(ServiceError):
    """The caller is known, and may not do this."""


class TooMany(ServiceError):
    """The caller asks for more at once than it may have."""

    RETRY_S = 1.0


class TooLarge(ServiceError):
    """A request is larger than allowed, and would be so the next time."""


class HistoryOff(ServiceError):
    """The caller asks about a history that is not kept."""


class HistoryUnavailable(ServiceError):
    """The history database does not answer."""

    RETRY_S = 1.0


class JournalFull(ServiceError):
    """There is no room for the journal, so no commands are accepted."""

    RETRY_S = 5.0


class JournalUnavailable(ServiceError):
    """The journal cannot be written, so no commands are accepted."""

    RETRY_S = 1.0


class NotLeading(ServiceError):
    """The core stands by. ``leader``: the address of the core that leads; empty: it is not known."""

    def __init__(self, message: str, *, leader: str = "") -> None:
        super().__init__(message)
        self.leader = leader


class ShuttingDown(ServiceError):
    """The core is stopping and accepts nothing more."""


class EngineFault(ServiceError):
    """The engine raised an unexpected error."""


class Status(NamedTuple):
    """The end of a call. ``trailing``: metadata sent with it."""

    code: grpc.StatusCode
    details: str
    trailing: tuple[tuple[str, str | bytes], ...] = ()


_FAULT_CODES: Final = {
    Fault.UNKNOWN_MANAGER: grpc.StatusCode.FAILED_PRECONDITION,
    Fault.OTHER_MANAGER: grpc.StatusCode.FAILED_PRECONDITION,
    Fault.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
}

_CODES: Final[dict[type[Exception], grpc.StatusCode]] = {
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    MalformedMessage: grpc.StatusCode.INVALID_ARGUMENT,
    OtherManagerOnStream: grpc.StatusCode.INVALID_ARGUMENT,
    BadSubscription: grpc.StatusCode.INVALID_ARGUMENT,
    ResyncRequired: grpc.StatusCode.FAILED_PRECONDITION,
    ManagerGone: grpc.StatusCode.FAILED_PRECONDITION,
    Superseded: grpc.StatusCode.ABORTED,
    StreamReplaced: grpc.StatusCode.ABORTED,
    RegistrationHeld: grpc.StatusCode.FAILED_PRECONDITION,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    TrackingDisabled: grpc.StatusCode.FAILED_PRECONDITION,
    CursorOutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    EventStreamsFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    SlowReader: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnknownPartition: grpc.StatusCode.NOT_FOUND,
    UnknownManager: grpc.StatusCode.NOT_FOUND,
    UnknownQueue: grpc.StatusCode.NOT_FOUND,
    UnknownUser: grpc.StatusCode.NOT_FOUND,
    UnknownNode: grpc.StatusCode.NOT_FOUND,
    UnknownApplication: grpc.StatusCode.NOT_FOUND,
    UnknownLevel: grpc.StatusCode.NOT_FOUND,
    UnknownService: grpc.StatusCode.NOT_FOUND,
    UnknownVersion: grpc.StatusCode.NOT_FOUND,
    VersionNotApplied: grpc.StatusCode.FAILED_PRECONDITION,
    NothingRegistered: grpc.StatusCode.FAILED_PRECONDITION,
    NoRollback: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownAsk: grpc.StatusCode.NOT_FOUND,
    NotAuthenticated: grpc.StatusCode.UNAUTHENTICATED,
    NotPermitted: grpc.StatusCode.PERMISSION_DENIED,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HistoryOff: grpc.StatusCode.FAILED_PRECONDITION,
    HistoryUnavailable: grpc.StatusCode.UNAVAILABLE,
    JournalFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    JournalUnavailable: grpc.StatusCode.UNAVAILABLE,
    NotLeading: grpc.StatusCode.UNAVAILABLE,
    ShuttingDown: grpc.StatusCode.UNAVAILABLE,
    EngineFault: grpc.StatusCode.INTERNAL,
}


def status_of(error: Exception) -> Status:
    """Returns the status of a call that failed with *error*. The client does not get the text of an error outside the
    table."""
    if isinstance(error, CommandRefused):
        return Status(_FAULT_CODES[error.fault], _shorten_text(str(error)))
    if isinstance(error, ConfigError):
        found = ((PROBLEMS_KEY, _encode_problems(error.problems)),)
        return Status(_CODES[ConfigError], _shorten_text(str(error)), found)
    if isinstance(error, NotLeading):
        trailing = ((LEADER_KEY, error.leader),) if error.leader else ()
        return Status(_CODES[NotLeading], _shorten_text(str(error)), trailing)
    if isinstance(error, AmbiguousPartition):
        names = ", ".join(map(repr, error.names))
        return Status(
            grpc.StatusCode.INVALID_ARGUMENT,
            _shorten_text(f"several resource managers have a partition of that name: name one of {names}"),
        )
    code = _CODES.get(type(error))
    if code is None:
        return Status(grpc.StatusCode.INTERNAL, "internal error; see the log of the core")
    details = _shorten_text(str(error))
    return Status(code, details, tuple(_say_when_to_retry(error, code, details)))


def _say_when_to_retry(error: Exception, code: grpc.StatusCode, details: str) -> Iterator[tuple[str, str | bytes]]:
    """Yields the trailing metadata that say when the call may be tried again, if waiting helps."""
    if isinstance(error, RegistrationHeld):
        yield RETRY_KEY, str(error.retry_ms)
    if isinstance(error, ServiceError) and error.retry_s is not None:
        yield DETAILS_KEY, encode_retry_info(code, details, error.retry_s)


def _encode_problems(problems: tuple[Problem, ...]) -> bytes:
    """Returns as many of *problems*, in order, as there is room for in metadata."""
    found = ConfigurationProblems()
    for problem in problems:
        found.problems.append(encode_problem(problem))
        if found.ByteSize() > PROBLEMS_LIMIT:
            del found.problems[-1]
            break
    return found.SerializeToString()


def _shorten_text(text: str) -> str:
    """Returns *text*, cut to the length for which a status has room once it is percent-encoded."""
    text = text[:DETAILS_LIMIT]
    if len(quote(text)) <= DETAILS_LIMIT:
        return text
    while len(quote(text)) > DETAILS_LIMIT - 3:
        text = text[: len(text) * 9 // 10]
    return text + "..."
