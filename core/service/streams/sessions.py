"""Sessions of shims: of two programs that act for one resource manager, the core accepts only the one that registered
last.

A program names its session in the metadata of its calls (:data:`SESSION_KEY`), the same for the registration and for
all streams. If it names none, its connection counts as the session. A registration from another session ends the
streams of earlier sessions, and what they still send is refused; otherwise, in a rolling update, two programs would
submit the same applications, and the core would reject those of the new one, because they exist already.

A connection without a session name that never registered counts as the new program's if it comes from the same address,
because a program need not use one connection for everything. If a program without a name was superseded at that
address, the connection counts as that program's, which has connected again, unless the new program has no name either
and the same address.

Rules: protocol.md 1.1, 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from kornel.core.service.connections.callers import host_of
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.streams.presence import Presence
from kornel.core.service.wire.status_codes import InvalidRequest, RegistrationHeld, Superseded

SESSION_KEY: Final = "kornel-session"
LEASE_KEY: Final = "kornel-lease"

LONGEST_NAME: Final = 256
MOST_REMEMBERED: Final = 1_000
"""The most superseded sessions that are kept; if there are more, the one that has been silent for longest is
dropped."""

CONNECTION_NS: Final = 60 * SECOND_NS
"""The time for which a superseded connection without a session name is kept after its last call, because its port may
be used again."""

LEASE_S: Final = 10
LONGEST_LEASE_S: Final = 3_600


class Session(NamedTuple):
    """The program behind a call. ``named``: it gave the name itself. ``lease_ms``: for how long the earlier session has
    to be gone before this one registers; ``None``: it does not wait."""

    key: str = ""
    host: str = ""
    named: bool = False
    lease_ms: int | None = None


NO_SESSION: Final = Session()
"""The session of requests that do not come over gRPC; it is never superseded."""

SESSION: Final[ContextVar[Session]] = ContextVar("session", default=NO_SESSION)
"""The session of the call that is being served; tasks started by the call inherit it."""


class CallContext(Protocol):
    """The part of gRPC's context that is read here."""

    def peer(self) -> str:
        """Returns gRPC's name of the connection."""

    def invocation_metadata(self) -> Iterable[Any] | None:
        """Returns the metadata of the call: pairs of a key and a text or bytes."""


def read_session(context: CallContext) -> Session:
    """Returns the session of a call."""
    name, lease = "", ""
    for key, value in context.invocation_metadata() or ():
        if key == SESSION_KEY and isinstance(value, str):
            name = value[:LONGEST_NAME]
        elif key == LEASE_KEY and isinstance(value, str):
            lease = value
    peer = context.peer()
    return Session(name or peer, host_of(peer), bool(name), _lease_ms(lease) if lease else None)


def _lease_ms(text: str) -> int:
    """Returns the milliseconds of ``wait``, ``wait=SECONDS`` or ``wait=NUMBERms``; -1 for anything else."""
    word, _, amount = text.partition("=")
    number, unit_ms = (amount[:-2], 1) if amount.endswith("ms") else (amount or str(LEASE_S), 1_000)
    is_known = word == "wait" and number.isascii() and number.isdigit() and len(number) < 9
    return min(int(number) * unit_ms, LONGEST_LEASE_S * 1_000) if is_known else -1


class Sessions:
    """The session that holds the core, and the sessions that held it before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holder = NO_SESSION
        self._superseded: dict[Session, int | None] = {}
        """The superseded sessions, each with the time until which it is kept; ``None``: as long as there is room."""
        self._superseded_hosts: dict[str, None] = {}
        """The addresses of superseded programs without a name. Further connections from there may come from these
        programs."""

    def admit(self, session: Session, rm_id: str, presence: Presence | None) -> None:
        """Raises :class:`RegistrationHeld` if *session* wants to wait until the holder of *rm_id* is gone, and it is
        not gone."""
        if session.lease_ms is None or presence is None or presence.rm_id != rm_id:
            return
        if session.lease_ms < 0:
            raise InvalidRequest(f"{LEASE_KEY}: wait, wait=SECONDS or wait=NUMBERms")
        if _are_same(self._holder, session):
            return
        lease_ns = session.lease_ms * 1_000_000
        gone_ns = 0
        if presence.no_stream_since_ns is not None:
            gone_ns = self._clock.now_ns() - presence.no_stream_since_ns
            if gone_ns >= lease_ns:
                return
        raise RegistrationHeld(
            f"held: another session of resource manager {rm_id!r} has the core; it loses it"
            f" {session.lease_ms / 1_000:g} s after the last stream of that session has ended",
            retry_ms=max(1, (lease_ns - gone_ns) // 1_000_000),
        )

    def registered(self, session: Session, open_sessions: Iterable[Session]) -> set[Session]:
        """Notes that *session* holds the core. Returns those of the *open_sessions* that it supersedes."""
        older = {other for other in open_sessions if self._gives_way(other, session)}
        for other in {self._holder, *older}:
            if other.key and not _are_same(other, session):
                self._remember_session(other)
                if not other.named:
                    self._superseded_hosts[other.host] = None
        for other in [other for other in self._superseded if _are_same(other, session)]:
            del self._superseded[other]
        if not session.named:
            self._superseded_hosts.pop(session.host, None)
        while len(self._superseded_hosts) > MOST_REMEMBERED:
            del self._superseded_hosts[next(iter(self._superseded_hosts))]
        self._holder = session
        return older

    def unregistered(self) -> None:
        """Notes that no session holds the core."""
        self._holder = NO_SESSION

    def check(self, session: Session) -> None:
        """Raises :class:`Superseded` for a session that another one has replaced.

        A named session that is not the named holder acts for another session's registration, which may be older than
        this core: a session that registers, or comes back after an interruption, is known by its name.
        """
        if session.named and self._holder.named and not _are_same(self._holder, session):
            raise Superseded("superseded: another session of this resource manager holds the core")
        if not self._superseded:
            return
        known = _known(session)
        if known not in self._superseded:
            return
        until_ns = self._superseded[known]
        if until_ns is not None and until_ns <= self._clock.now_ns():
            del self._superseded[known]
            return
        self._remember_session(known)
        raise Superseded("superseded: another session of this resource manager has registered since")

    def check_stream(self, session: Session) -> None:
        """Raises :class:`Superseded` as :meth:`check` does, and for a connection without a name from an address whose
        nameless program was superseded: it has connected again, and does not know yet.

        Calls that are no streams are left alone, because administrators of the core have no name either.
        """
        self.check(session)
        if session.key and not session.named and session.host in self._superseded_hosts and session != self._holder:
            raise Superseded(
                "superseded: another session of this resource manager has registered since; register again"
            )

    def _gives_way(self, other: Session, session: Session) -> bool:
        if not other.key or not session.key or _are_same(other, session):
            return False
        if other.named or session.named or _are_same(other, self._holder):
            return True
        return other.host != session.host

    def _remember_session(self, session: Session) -> None:
        session = _known(session)
        self._superseded.pop(session, None)
        self._superseded[session] = None if session.named else self._clock.now_ns() + CONNECTION_NS
        while len(self._superseded) > MOST_REMEMBERED:
            del self._superseded[next(iter(self._superseded))]


def _known(session: Session) -> Session:
    """Returns *session* as it is kept: by its name, whatever its address, or by its connection."""
    return Session(session.key, "" if session.named else session.host, session.named)


def _are_same(one: Session, other: Session) -> bool:
    """Tells whether both sessions are one program. All connections to a socket file have the same name, so they count
    as one."""
    return one.key == other.key and one.named is other.named
