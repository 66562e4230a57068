"""Defines the errors that end calls, each with its gRPC status code, and what a status says.

An error outside these classes is INTERNAL: a bug of ours. Where waiting helps, the status says for how long, by gRPC's
richer error model: a ``google.rpc.Status`` with a ``google.rpc.RetryInfo`` in the trailing metadata, where the
libraries of many languages find it. They are the only messages of their package that a core sends, so they are encoded
here field by field instead of depending on the package.

Rules: protocol.md 1.1 and 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple
from urllib.parse import quote

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode as Code

from kornel.core.config.text.problems import ConfigError, Problem
from kornel.core.domain.commands import CommandRefused, Fault
from kornel.core.service.wire.message_bytes import encode_field, encode_number
from kornel.core.telling.core_reader import AmbiguousPartition
from kornel.core.telling.encoding.kornel_v1 import encode_problem
from kornel.v1.configuration_pb2 import ConfigurationProblems

PROBLEMS_KEY: Final = "kornel-problems-bin"
RETRY_KEY: Final = "kornel-retry-after-ms"
LEADER_KEY: Final = "kornel-leader"
DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"

# A status is sent in HTTP/2 headers, of which clients accept 8 KiB by default; with more, the call fails with another
# error than this one. In headers, details are percent-encoded, and binary metadata grow by a third.
DETAILS_LIMIT: Final = 2_000
PROBLEMS_LIMIT: Final = 3_500


class ServiceError(Exception):
    """A call or stream that the service itself ends, with the status ``code``. ``retry_s``: the seconds after which the
    same may be tried again; ``None``: waiting alone does not help."""

    code: ClassVar[Code] = Code.INTERNAL
    retry_s: float | None = None

    def __init_subclass__(cls, *, code: Code | None = None, retry_s: float | None = None) -> None:
        """Gives the class its *code* and *retry_s*; without them, it has those of its base."""
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.retry_s = retry_s or cls.retry_s


class MalformedMessage(ServiceError, code=Code.INVALID_ARGUMENT):
    """The bytes are not a message of the expected type."""


class OtherManagerOnStream(ServiceError, code=Code.INVALID_ARGUMENT):
    """A stream that is bound to one rmID names another one."""


class BadSubscription(ServiceError, code=Code.INVALID_ARGUMENT):
    """The first message of a callback stream subscribes to nothing, or a later message subscribes again."""


class ResyncRequired(ServiceError, code=Code.FAILED_PRECONDITION):
    """Responses were lost, so only a new registration makes both sides agree again."""


class ManagerGone(ServiceError, code=Code.FAILED_PRECONDITION):
    """The resource manager of the stream was unregistered."""


class Superseded(ServiceError, code=Code.ABORTED):
    """Another session of the same resource manager has registered since then."""


class StreamReplaced(ServiceError, code=Code.ABORTED):
    """The client has opened another stream of the same kind, which goes on where this one was."""


class RegistrationHeld(ServiceError, code=Code.FAILED_PRECONDITION):
    """The caller wants to register only after the session before it is gone, which it is not yet. ``retry_ms``: the
    time after which it may be."""

    def __init__(self, message: str, *, retry_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_ms = retry_ms
        self.retry_s = retry_ms / 1000


class InvalidRequest(ServiceError, code=Code.INVALID_ARGUMENT):
    """The values of a request make no sense."""


class TrackingDisabled(ServiceError, code=Code.FAILED_PRECONDITION):
    """The caller asks for events while none are kept."""


class CursorOutOfRange(ServiceError, code=Code.OUT_OF_RANGE):
    """The caller wants to continue after an event that has not happened."""


class EventStreamsFull(ServiceError, code=Code.RESOURCE_EXHAUSTED, retry_s=5.0):
    """Another event stream would be more than the settings allow."""


class SlowReader(ServiceError, code=Code.RESOURCE_EXHAUSTED, retry_s=1.0):
    """The client of an event stream does not keep up."""


class NotFound(ServiceError, code=Code.NOT_FOUND):
    """The request names something that does not exist, or that is not kept any more."""


class VersionNotApplied(ServiceError, code=Code.FAILED_PRECONDITION):
    """The caller wants to return to a configuration that was never in force."""


class NothingRegistered(ServiceError, code=Code.FAILED_PRECONDITION):
    """The caller asks about the configuration in force while no manager is registered."""


class NoRollback(ServiceError, code=Code.FAILED_PRECONDITION):
    """The caller wants to undo a rollback while none is in force."""


class NotAuthenticated(ServiceError, code=Code.UNAUTHENTICATED):
    """The caller gave no proof of identity, or an invalid one."""


class NotPermitted(ServiceError, code=Code.PERMISSION_DENIED):
    """The caller is known, and may not do this."""


class TooMany(ServiceError, code=Code.RESOURCE_EXHAUSTED, retry_s=1.0):
    """The caller asks for more at once than it may have."""


class TooLarge(ServiceError, code=Code.RESOURCE_EXHAUSTED):
    """A request is larger than allowed, and would be so the next time."""


class HistoryOff(ServiceError, code=Code.FAILED_PRECONDITION):
    """The caller asks about a history that is not kept."""


class HistoryUnavailable(ServiceError, code=Code.UNAVAILABLE, retry_s=1.0):
    """The history database does not answer."""


class JournalFull(ServiceError, code=Code.RESOURCE_EXHAUSTED, retry_s=5.0):
    """There is no room for the journal, so no commands are accepted."""


class JournalUnavailable(ServiceError, code=Code.UNAVAILABLE, retry_s=1.0):
    """The journal cannot be written, so no commands are accepted."""


class NotLeading(ServiceError, code=Code.UNAVAILABLE):
    """The core stands by. ``leader``: the address of the core that leads; empty: it is not known."""

    def __init__(self, message: str, *, leader: str = "") -> None:
        super().__init__(message)
        self.leader = leader


class ShuttingDown(ServiceError, code=Code.UNAVAILABLE):
    """The core is stopping and accepts nothing more."""


class EngineFault(ServiceError, code=Code.INTERNAL):
    """The engine raised an unexpected error."""


class Status(NamedTuple):
    """The end of a call. ``trailing``: metadata sent with it."""

    code: Code
    details: str
    trailing: tuple[tuple[str, str | bytes], ...] = ()


_FAULT_CODES: Final = {
    Fault.UNKNOWN_MANAGER: Code.FAILED_PRECONDITION,
    Fault.OTHER_MANAGER: Code.FAILED_PRECONDITION,
    Fault.INVALID_ARGUMENT: Code.INVALID_ARGUMENT,
}


def status_of(error: Exception) -> Status:
    """Returns the status of a call that failed with *error*. The client does not get the text of an error outside the
    table."""
    if isinstance(error, CommandRefused):
        return Status(_FAULT_CODES[error.fault], _shorten_text(str(error)))
    if isinstance(error, ConfigError):
        found = ((PROBLEMS_KEY, _encode_problems(error.problems)),)
        return Status(Code.INVALID_ARGUMENT, _shorten_text(str(error)), found)
    if isinstance(error, AmbiguousPartition):
        names = ", ".join(map(repr, error.names))
        return Status(
            Code.INVALID_ARGUMENT,
            _shorten_text(f"several resource managers have a partition of that name: name one of {names}"),
        )
    if not isinstance(error, ServiceError):
        return Status(Code.INTERNAL, "internal error; see the log of the core")
    details = _shorten_text(str(error))
    return Status(error.code, details, tuple(_list_trailing(error, details)))


def _list_trailing(error: ServiceError, details: str) -> Iterator[tuple[str, str | bytes]]:
    """Yields the trailing metadata: where the leader is, and when the call may be tried again if waiting helps."""
    if isinstance(error, NotLeading) and error.leader:
        yield LEADER_KEY, error.leader
    if isinstance(error, RegistrationHeld):
        yield RETRY_KEY, str(error.retry_ms)
    if error.retry_s is not None:
        yield DETAILS_KEY, _encode_retry_info(error.code, details, error.retry_s)


def _encode_retry_info(code: Code, details: str, retry_s: float) -> bytes:
    """Returns a ``google.rpc.Status`` that says to try again after *retry_s*.

    Clients compare *code* and *details* with those of the call, and ignore the rest of a status that differs.
    """
    delay = Duration()
    delay.FromNanoseconds(round(retry_s * 1e9))
    info = Any(type_url=RETRY_INFO, value=encode_field(1, delay.SerializeToString()))
    number: int = code.value[0]
    return encode_number(1, number) + encode_field(2, details.encode()) + encode_field(3, info.SerializeToString())


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
