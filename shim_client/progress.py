"""Counts of entries in both directions, by which a stream can continue exactly where it broke.

The core answers a registration with an *epoch*. A stream is opened with that epoch and the number of entries that have
been received since the registration; the core continues after them, and first of all says how many of the shim's
entries it has applied. Entries that were written but not applied are then written again. A core that names no epoch
does not support this: entries written just before a break may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from kornel.shim_client.errors import ResyncRequired
from kornel.shim_client.outbox import Outbox

RESUME_KEY: Final = "kornel-resume"

ACKNOWLEDGED_EVERY: Final = 2_000
"""After this many entries that were received, or written and not known to be applied, both sides tell each other their
counts."""

Entry = TypeVar("Entry", bound=Message)


class Progress(Generic[Entry]):
    """Counts the entries sent and received on the streams of one kind since the registration. *due* is called when it
    is time to acknowledge."""

    def __init__(self, kind: str, outbox: Outbox[Entry], due: Callable[[], None]) -> None:
        self._kind = kind
        self._outbox = outbox
        self._due = due
        self._acknowledged = 0
        self.epoch = ""
        """The epoch of the core as of the registration or the last greeting; empty: the core does not support this."""
        self.received = 0
        """The number of entries that were received."""

    def begin_counting(self, epoch: str) -> None:
        """Count from 0 again after the RM has registered. *epoch* is the one that the core named, or empty if it named
        none."""
        self.epoch = epoch
        self.received = self._acknowledged = 0
        self._outbox.begin_keeping(self._due if epoch else None, ACKNOWLEDGED_EVERY)

    def list_marks(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata with which a stream is opened."""
        return ((RESUME_KEY, f"{self.epoch}/{self.received}"),) if self.epoch else ()

    def note_received(self, response: Any) -> None:
        """Count the entries of *response*: every field of it is a list of them."""
        if self.epoch:
            self.received += sum(len(entries) for _, entries in response.ListFields())
            if self.received - self._acknowledged >= ACKNOWLEDGED_EVERY:
                self._due()

    async def note_acknowledged(self, received: int, applied: int) -> None:
        """Note that the core knows how many entries were *received*, and that it has *applied* so many of this
        shim's."""
        self._acknowledged = max(self._acknowledged, received)
        await self._outbox.note_applied(applied)

    async def follow_greeting(self, marks: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Continue from the counts in *marks*, the metadata with which the core opens a stream.

        Raises ResyncRequired if the core gives no count, or a count that does not fit what it said before.
        """
        said = str(dict(marks or ()).get(RESUME_KEY, ""))
        epoch, _, applied = said.rpartition("/")
        if not applied.isdecimal() or not await self._outbox.write_again(int(applied)):
            raise ResyncRequired(
                self._kind,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"resync-required: the core says {said!r} of what it has applied, which is not what it had said before",
            )
        self.epoch = epoch
