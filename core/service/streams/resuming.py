"""Lets streams continue exactly where they broke, for clients that ask for it.

Since a registration, the entries that the core decides for the manager are numbered on each kind of stream, and so are
those that the session sends. A client that opens a stream says in metadata (:data:`RESUME_KEY`) how many entries it has
received; the core continues after them, and says how many entries of the session are applied and durable. Both numbers
follow from the journal, so they hold across cores (docs/serving.md).

An *epoch* is the time in which one core leads under one registration. A client names the epoch in which it received
last. A core whose journal does not have that epoch, or had decided fewer entries by its end, is not where the client
was: the newest commits of its database were lost, and only a new registration helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    AskReleased,
    Effect,
    NodeAccepted,
    NodeRejected,
    Released,
)
from kornel.core.service.streams.sessions import CallContext
from kornel.core.service.wire.status_codes import InvalidRequest, ResyncRequired

RESUME_KEY: Final = "kornel-resume"
"""The key of the metadata ``EPOCH/COUNT`` of a stream. A client counts the entries that it has received, the core those
that it has applied. A registration is answered with the epoch alone."""

KEPT_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of each kind of stream that are kept after they were sent. This is more than connections can have
accepted without delivering it."""

MOST_EPOCHS: Final = 1_000
"""The most epochs of one registration that are remembered."""


class Kind(StrEnum):
    """The kinds of streams, by the requests that they carry."""

    ALLOCATION = "AllocationRequest"
    APPLICATION = "ApplicationRequest"
    NODE = "NodeRequest"


KIND_OF: Final[Mapping[type, Kind]] = {
    Allocated: Kind.ALLOCATION,
    Released: Kind.ALLOCATION,
    AskReleased: Kind.ALLOCATION,
    AllocationRejected: Kind.ALLOCATION,
    ApplicationAccepted: Kind.APPLICATION,
    ApplicationRejected: Kind.APPLICATION,
    ApplicationUpdated: Kind.APPLICATION,
    NodeAccepted: Kind.NODE,
    NodeRejected: Kind.NODE,
}
"""The kind of the streams that carry an effect; the others are no responses."""


class Resumption(NamedTuple):
    """The position of the client of a stream: it has received *received* entries, the last of them in *epoch*. -1: its
    number cannot be read."""

    epoch: str
    received: int


RESUMPTION: Final[ContextVar[Resumption | None]] = ContextVar("resumption", default=None)
"""The position of the client of the call that is being served; ``None``: it does not ask to go on where it was."""


class Received(NamedTuple):
    """A command of the session that is registered: with it, *entries* entries of *kind* were applied."""

    kind: Kind
    entries: int


class Begun(NamedTuple):
    """A registration: *token* names it, *session* the program that made it; empty: it gave no name."""

    token: str
    session: str


Receipt = Received | Begun
"""The source of a command, with the values that the next core has to know."""


class ProgressValues(NamedTuple):
    """A :class:`Progress` as plain values. ``ended``: the epochs of the registration that have ended, each with the
    entries that were decided until then, in the order of :class:`Kind`, like ``received`` and ``decided``."""

    token: str = ""
    session: str = ""
    received: tuple[int, ...] = ()
    decided: tuple[int, ...] = ()
    epoch: str = "0"
    ended: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Progress:
    """The number of entries sent and received since a manager registered.

    token     names the registration; empty: no manager has registered
    session   name of the program that registered; empty: it gave none
    received  entries that it has sent and that were applied
    decided   entries that were decided for it
    """

    def __init__(self, epoch: str = "0") -> None:
        self.token = ""
        self.session = ""
        self.received = dict.fromkeys(Kind, 0)
        self.decided = dict.fromkeys(Kind, 0)
        self._epoch = epoch
        self._ended: list[tuple[str, dict[Kind, int]]] = []
        """The epochs of the registration that have ended, each with the entries that were decided until then."""

    @classmethod
    def of_values(cls, values: ProgressValues) -> Progress:
        """Returns the progress with *values*. It is the inverse of :meth:`as_values`."""
        made = cls(values.epoch)
        made.token, made.session = values.token, values.session
        made.received.update(zip(Kind, values.received, strict=False))
        made.decided.update(zip(Kind, values.decided, strict=False))
        made._ended = [(epoch, dict(zip(Kind, counts, strict=True))) for epoch, counts in values.ended]
        return made

    def as_values(self) -> ProgressValues:
        """Returns the progress as plain values."""
        ended = tuple((epoch, tuple(counts.values())) for epoch, counts in self._ended)
        return ProgressValues(
            self.token, self.session, tuple(self.received.values()), tuple(self.decided.values()), self._epoch, ended
        )

    @property
    def epoch(self) -> str:
        """Returns the name of the epoch for clients; empty: no manager has registered."""
        return f"{self.token}.{self._epoch}" if self.token else ""

    def begin_epoch(self, epoch: str) -> None:
        """Notes that another core leads from here on, in *epoch*."""
        self._ended.append((self._epoch, dict(self.decided)))
        del self._ended[:-MOST_EPOCHS]
        self._epoch = epoch

    def begin_registration(self, begun: Begun | None) -> None:
        """Notes that a manager registered. ``None``: it was unregistered, or it cannot be recognized again."""
        self.token, self.session = begun or ("", "")
        self.received = dict.fromkeys(Kind, 0)
        self.decided = dict.fromkeys(Kind, 0)
        self._ended = []

    def note_decided(self, effects: Sequence[Effect]) -> None:
        """Counts *effects*, which are sent to the manager."""
        for kind, count in Counter(map(KIND_OF.get, map(type, effects))).items():
            if kind is not None:
                self.decided[kind] += count

    def note_receipt(self, receipt: Receipt | None) -> None:
        """Notes the source of a command that was applied."""
        if isinstance(receipt, Received):
            self.received[receipt.kind] = receipt.entries

    def check(self, resumption: Resumption, kind: Kind) -> None:
        """Raises :class:`ResyncRequired` unless what the client has received is what was decided here."""
        if resumption.received < 0:
            raise InvalidRequest(f"{RESUME_KEY}: EPOCH/COUNT")
        token, _, epoch = resumption.epoch.partition(".")
        if not token or token != self.token:
            raise ResyncRequired(f"resync-required: {RESUME_KEY} names a registration that is not in force")
        if epoch == self._epoch:
            return
        until = next((decided for name, decided in self._ended if name == epoch), None)
        if until is None or resumption.received > until[kind]:
            raise ResyncRequired(
                "resync-required: more was received than this core knows of; the newest commits of its journal were"
                " lost"
            )


def read_resumption(context: CallContext) -> Resumption | None:
    """Returns the resumption that the client of a stream asks for, or ``None`` if it asks for none."""
    for key, value in context.invocation_metadata() or ():
        if key == RESUME_KEY and isinstance(value, str):
            epoch, _, received = value.rpartition("/")
            counts = received.isascii() and received.isdigit() and len(received) < 19
            return Resumption(epoch, int(received) if counts else -1)
    return None
