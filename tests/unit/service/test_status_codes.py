"""From errors to gRPC status codes."""

from __future__ import annotations

from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from kornel.core.config.text.problems import ConfigError, Problem, Severity
from kornel.core.domain.commands import CommandRefused, Fault
from kornel.core.service.wire.status_codes import (
    DETAILS_KEY,
    DETAILS_LIMIT,
    PROBLEMS_KEY,
    PROBLEMS_LIMIT,
    BadSubscription,
    EngineFault,
    EventStreamsFull,
    InvalidRequest,
    JournalFull,
    JournalUnavailable,
    MalformedMessage,
    NotFound,
    OtherManagerOnStream,
    RegistrationHeld,
    ResyncRequired,
    ServiceError,
    ShuttingDown,
    Superseded,
    TooLarge,
    TooMany,
    status_of,
)
from kornel.shim_client.retry_info import read_retry_delay
from kornel.v1.configuration_pb2 import ConfigurationProblem, ConfigurationProblems

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandRefused(Fault.UNKNOWN_MANAGER, "x"), Code.FAILED_PRECONDITION),
        (CommandRefused(Fault.OTHER_MANAGER, "x"), Code.FAILED_PRECONDITION),
        (CommandRefused(Fault.INVALID_ARGUMENT, "x"), Code.INVALID_ARGUMENT),
        (MalformedMessage("x"), Code.INVALID_ARGUMENT),
        (OtherManagerOnStream("x"), Code.INVALID_ARGUMENT),
        (BadSubscription("x"), Code.INVALID_ARGUMENT),
        (ResyncRequired("x"), Code.FAILED_PRECONDITION),
        (Superseded("x"), Code.ABORTED),
        (RegistrationHeld("x"), Code.FAILED_PRECONDITION),
        (NotFound("x"), Code.NOT_FOUND),
        (ShuttingDown("x"), Code.UNAVAILABLE),
        (EngineFault("x"), Code.INTERNAL),
    ],
)
def test_every_expected_error_has_its_code(error: Exception, code: grpc.StatusCode) -> None:
    """Whose mistake it is decides the code; the text says what was wrong (protocol.md 1.1, 5.1)."""
    assert status_of(error)[:2] == (code, "x")


def test_the_table_is_complete() -> None:
    """Each fault and each kind of service error has a row."""
    assert all(status_of(CommandRefused(fault, "x")).details == "x" for fault in Fault)
    assert all(status_of(kind("x")).details == "x" for kind in ServiceError.__subclasses__())


@pytest.mark.parametrize(
    ("error", "retry_s"),
    [
        (TooMany("too many questions wait for an answer"), 1.0),
        (JournalFull("journal: no space; \u00fc"), 5.0),
        (JournalUnavailable("journal: locked"), 1.0),
        (EventStreamsFull("x"), 5.0),
        (RegistrationHeld("held", retry_ms=1_500), 1.5),
        (TooMany("x" * 10_000), 1.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_back_pressure_says_when_to_try_again(error: Exception, retry_s: float) -> None:
    """As ``google.rpc.RetryInfo``: read here with Google's own classes, and with the client's."""
    status = status_of(error)
    raw = dict(status.trailing)[DETAILS_KEY]
    assert isinstance(raw, bytes)
    told = status_pb2.Status.FromString(raw)
    assert (told.code, told.message) == (status.code.value[0], status.details)
    (detail,) = told.details
    info = error_details_pb2.RetryInfo()
    assert detail.Unpack(info)
    assert info.retry_delay.ToTimedelta().total_seconds() == retry_s
    if status.code in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE):
        assert read_retry_delay(status.code, status.trailing) == retry_s


@pytest.mark.parametrize("error", [TooLarge("x"), ShuttingDown("x"), Superseded("x"), InvalidRequest("x")], ids=repr)
def test_what_waiting_does_not_mend_says_nothing_of_it(error: Exception) -> None:
    status = status_of(error)
    assert status.trailing == ()
    assert read_retry_delay(status.code, status.trailing) is None


def test_a_bug_tells_the_client_nothing_of_its_text() -> None:
    """An unexpected exception is INTERNAL, and its text stays in the log."""
    status = status_of(ZeroDivisionError("secret"))
    assert status.code is Code.INTERNAL
    assert "secret" not in status.details


def test_configuration_problems_travel_as_text_and_as_metadata() -> None:
    """A refused configuration lists its problems in both forms (kornel.v1.ConfigurationService)."""
    status = status_of(
        ConfigError(
            [
                Problem(Severity.ERROR, 3, 5, "partitions[0].queues", "bad", "good"),
                Problem(Severity.WARNING, 0, 0, "", "odd"),
            ]
        )
    )
    assert status.code is Code.INVALID_ARGUMENT
    assert "line 3, column 5: partitions[0].queues: bad (expected good)" in status.details
    ((key, raw),) = status.trailing
    assert key == PROBLEMS_KEY
    assert isinstance(raw, bytes)
    first, second = ConfigurationProblems.FromString(raw).problems
    assert (first.severity, first.line, first.column) == (ConfigurationProblem.SEVERITY_ERROR, 3, 5)
    assert second.severity == ConfigurationProblem.SEVERITY_WARNING


def test_a_status_stays_within_what_headers_hold() -> None:
    """However much there is to say, and in whatever script, the status still arrives."""
    problems = [Problem(Severity.ERROR, n, 1, "p" * 50, "\u00fc\U0001f600" * 50) for n in range(1, 500)]
    status = status_of(ConfigError(problems))
    assert len(quote(status.details)) <= DETAILS_LIMIT
    assert status.details.endswith("...")
    raw = status.trailing[0][1]
    assert 0 < len(raw) <= PROBLEMS_LIMIT
    assert len(status_of(MalformedMessage("x" * 10**6)).details) <= DETAILS_LIMIT
