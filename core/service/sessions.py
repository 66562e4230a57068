"""Sessions of shims: of two programs that speak for one resource manager, the one that registered last is listened to.

A program names its session in the metadata of its calls (:data:`SESSION_KEY`), the same for the registration and for
all streams. Where it names none, the connection stands for it. A registration from another session ends the streams of
those before it, and what they still send is refused: otherwise two programs would submit the same applications in a
rolling update, and the younger would hear that they are there already.

A connection without a name that never registered is taken for the younger program's own if it comes from the same
address, since nothing says that a program uses one connection for everything.

Rules: protocol.md 1.1, 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from kornel.core.service.callers import host_of
from kornel.core.service.clock import SECOND_NS, Clock
from kornel.core.service.presence import Presence
from kornel.core.service.status_codes import InvalidRequest, RegistrationHeld, Superseded

SESSION_KEY: Final = "kornel-session"
LEASE_KEY: Final = "kornel-lease"

LONGEST_NAME: Final = 256
MOST_REMEMBERED: Final = 1_000
"""The most sessions that are known as superseded; of more, the one that was heard of longest ago is forgotten."""

CONNECTION_NS: Final = 60 * SECOND_NS
"""The time for which a superseded connection without a name is known after it was last heard of: its port may be used
again."""

LEASE_S: Final = 10
LONGEST_LEASE_S: Final = 3_600


class Session(NamedTuple):
    """The program behind a call. ``named``: it said so itself. ``lease_s``: how long the one before has to be gone
    before it registers; ``None``: it does not wait."""

    key: str = ""
    host: str = ""
    named: bool = False
    lease_s: int | None = None


NO_SESSION: Final = Session()
"""The session of what does not come over gRPC: it is never superseded."""

SESSION: Final[ContextVar[Session]] = ContextVar("session", default=NO_SESSION)
"""The session of the call that is being served; tasks started by the call inherit it."""


class CallContext(Protocol):
    """The part of gRPC's context that is read here: what a call says of itself."""

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
    return Session(name or peer, host_of(peer), bool(name), _lease_s(lease) if lease else None)


def _lease_s(text: str) -> int:
    """Returns the seconds of ``wait`` or ``wait=N``; -1 for anything else, which :meth:`Sessions.admit` refuses."""
    word, _, seconds = text.partition("=")
    if word != "wait" or (seconds and not (seconds.isascii() and seconds.isdigit() and len(seconds) < 6)):
        return -1
    return min(int(seconds), LONGEST_LEASE_S) if seconds else LEASE_S


class Sessions:
    """The session that holds the core, and those that did before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holder = NO_SESSION
        self._superseded: dict[Session, int | None] = {}
        """Each with the time until which it is remembered; ``None``: as long as there is room."""

    def admit(self, session: Session, rm_id: str, presence: Presence | None) -> None:
        """Raises :class:`RegistrationHeld` if *session* waits for the holder of *rm_id* to be gone, and it is not."""
        if session.lease_s is None or presence is None or presence.rm_id != rm_id:
            return
        if session.lease_s < 0:
            raise InvalidRequest(f"{LEASE_KEY}: wait, or wait=SECONDS")
        if _same(self._holder, session):
            return
        lease_ns = session.lease_s * SECOND_NS
        gone_ns = 0
        if presence.no_stream_since_ns is not None:
            gone_ns = self._clock.now_ns() - presence.no_stream_since_ns
            if gone_ns >= lease_ns:
                return
        raise RegistrationHeld(
            f"held: another session of resource manager {rm_id!r} has the core; it is let go of {session.lease_s} s"
            " after the last stream of that session has ended",
            retry_ms=max(1, (lease_ns - gone_ns) // 1_000_000),
        )

    def registered(self, session: Session, open_sessions: Iterable[Session]) -> set[Session]:
        """Notes that *session* holds the core. Returns those of the *open_sessions* that it supersedes."""
        older = {other for other in open_sessions if self._gives_way(other, session)}
        for other in {self._holder, *older}:
            if other.key and not _same(other, session):
                self._remember(other)
        for other in [other for other in self._superseded if _same(other, session)]:
            del self._superseded[other]
        self._holder = session
        return older

    def unregistered(self) -> None:
        """Notes that nobody holds the core."""
        self._holder = NO_SESSION

    def check(self, session: Session) -> None:
        """Raises :class:`Superseded` for a session that another one has taken over from.

        A named one that is not the named holder speaks for a registration that is not its own, be it one of before
        this core started: whoever registers, or comes back after an interruption, is known by its name.
        """
        if session.named and self._holder.named and not _same(self._holder, session):
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
        self._remember(known)
        raise Superseded("superseded: another session of this resource manager has registered since")

    def _gives_way(self, other: Session, session: Session) -> bool:
        if not other.key or not session.key or _same(other, session):
            return False
        if other.named or session.named or _same(other, self._holder):
            return True
        return other.host != session.host

    def _remember(self, session: Session) -> None:
        session = _known(session)
        self._superseded.pop(session, None)
        self._superseded[session] = None if session.named else self._clock.now_ns() + CONNECTION_NS
        while len(self._superseded) > MOST_REMEMBERED:
            del self._superseded[next(iter(self._superseded))]


def _known(session: Session) -> Session:
    """Returns *session* as it is remembered: by its name, from whatever address it comes, or by its connection."""
    return Session(session.key, "" if session.named else session.host, session.named)


def _same(one: Session, other: Session) -> bool:
    """Tells whether both are one program. All connections to a socket file have one name, so they count as one."""
    return one.key == other.key and one.named is other.named
