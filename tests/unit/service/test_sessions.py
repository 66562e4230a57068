"""Sessions of shims: who is listened to, whatever happened before (protocol.md 1.1, 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.streams.sessions import Session, Sessions, read_session
from kornel.core.service.wire.status_codes import Superseded

OLDER = Session("older", "127.0.0.1", named=True)
YOUNGER = Session("younger", "127.0.0.1", named=True)


def test_a_superseded_name_is_refused_from_whatever_address_it_comes() -> None:
    sessions = Sessions(ManualClock())
    sessions.registered(OLDER, [OLDER])
    sessions.registered(Session("ipv4:10.0.0.1:4711", "10.0.0.1"), [OLDER])
    with pytest.raises(Superseded):
        sessions.check(OLDER._replace(host="::1"))


@pytest.mark.parametrize("unregistered", [False, True], ids=["core restarted", "unregistered between"])
def test_a_name_that_is_not_the_holders_is_refused_even_if_nothing_is_known_of_it(*, unregistered: bool) -> None:
    sessions = Sessions(ManualClock())
    if unregistered:
        sessions.registered(OLDER, [])
        sessions.unregistered()
    sessions.registered(YOUNGER, [])
    with pytest.raises(Superseded):
        sessions.check(OLDER)
    sessions.check(YOUNGER)


HOST, ELSEWHERE = "10.0.0.1", "10.0.0.2"
NAMELESS = Session(f"ipv4:{HOST}:4711", HOST)
DIALLED_AGAIN = Session(f"ipv4:{HOST}:4712", HOST)


@pytest.mark.parametrize("younger", [YOUNGER, Session(f"ipv4:{ELSEWHERE}:99", ELSEWHERE)], ids=["named", "elsewhere"])
def test_a_nameless_program_that_was_superseded_and_dials_again_is_refused(younger: Session) -> None:
    """Its new connection never registered: it is that of the one that was superseded, and of nobody else."""
    sessions = Sessions(ManualClock())
    sessions.registered(NAMELESS, [NAMELESS])
    sessions.registered(younger, [NAMELESS])
    with pytest.raises(Superseded):
        sessions.check_stream(DIALLED_AGAIN)
    sessions.check(DIALLED_AGAIN)  # A call from there may be an administrator's.
    sessions.check_stream(younger)
    sessions.registered(DIALLED_AGAIN, [younger])
    sessions.check_stream(DIALLED_AGAIN)


def test_a_nameless_successor_of_the_same_address_may_use_several_connections() -> None:
    sessions = Sessions(ManualClock())
    sessions.registered(NAMELESS, [NAMELESS])
    younger = Session(f"ipv4:{HOST}:4800", HOST)
    sessions.registered(younger, [NAMELESS])
    with pytest.raises(Superseded):
        sessions.check_stream(NAMELESS)
    sessions.check_stream(DIALLED_AGAIN)


def test_a_nameless_connection_is_left_alone_where_none_was_superseded() -> None:
    """A program may name its session in the registration and not in its streams."""
    sessions = Sessions(ManualClock())
    sessions.registered(YOUNGER, [])
    sessions.check_stream(NAMELESS)


@dataclass
class Call:
    """A call with metadata."""

    metadata: tuple[tuple[str, str], ...]

    def peer(self) -> str:
        return "ipv4:10.0.0.1:4711"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self.metadata


@pytest.mark.parametrize(
    ("lease", "lease_ms"),
    [
        ("wait", 10_000),
        ("wait=2", 2_000),
        ("wait=1500ms", 1_500),
        ("wait=0ms", 0),
        ("wait=99999", 3_600_000),
        ("wait=99999999ms", 3_600_000),
        *((bad, -1) for bad in ("wait=ms", "wait=1.5", "wait=-1", "wait=999999999", "wait=1s", "hold", "wait=\u0661")),
    ],
)
def test_how_long_a_registration_waits_is_read_in_seconds_or_milliseconds(lease: str, lease_ms: int) -> None:
    assert read_session(Call((("kornel-lease", lease),))).lease_ms == lease_ms
