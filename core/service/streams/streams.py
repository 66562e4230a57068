"""Delivery of responses to streams, and the queue of those that wait while there is none.

There is one *lane* for each kind of stream: the entries not sent yet, and the open streams bound to it. The stream
bound last receives the entries; when it ends, the one bound before it does. A lane without a stream keeps its entries
in order, up to a limit. Beyond the limit everything is dropped and the manager has to register again, because it would
miss entries.

An entry is sent at most once. It counts as sent when the transport has taken it. The entries of a write that fails are
put back, unless another stream has taken later ones meanwhile. A client that asks for it (:mod:`.resuming`)
gets each entry exactly once: what was sent is kept for a while, and a stream that its client opens again continues
after the last entry that the client has received.

Rules: protocol.md 1.1, 5.2 (DB-4), 15.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import chain, compress, groupby, islice, repeat, starmap, takewhile
from operator import attrgetter, eq, itemgetter
from sys import getsizeof
from typing import Any, Final, NamedTuple

from kornel.core.domain.effects import (
    Allocated,
    AllocationEffect,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationEffect,
    ApplicationRejected,
    ApplicationUpdated,
    AskReleased,
    Effect,
    NodeAccepted,
    NodeEffect,
    NodeRejected,
    Released,
)
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.streams.presence import PresenceKeeper
from kornel.core.service.streams.resuming import KEPT_BYTES, KIND_OF, RESUMPTION, Kind, Progress
from kornel.core.service.streams.sessions import SESSION, Session
from kornel.core.service.wire.scheduler_wire import LIST_OF, list_key
from kornel.core.service.wire.status_codes import ResyncRequired, StreamReplaced

QUEUE_LIMIT: Final = 1_048_576
"""The default limit of entries that wait in one lane."""

QUEUE_BYTES: Final = 256 * 2**20
"""The most bytes that the entries waiting in all lanes of a manager may take in memory."""

RUN_LIMIT: Final = 5_000
"""The most entries of one response message: about 1 MB, within the 4 MiB that a client accepts by default."""

RUN_BYTES: Final = 8 * 2**20
"""The memory that the entries of one response message may take if they are long."""

HIGH_WATER: Final = 65_536
"""When this many entries wait in a lane, its streams are no longer read."""

HIGH_WATER_BYTES: Final = 16 * 2**20
"""When the waiting entries take this many bytes, no further requests are read."""

FEW_ENTRIES: Final = 1_024
"""Up to this number of waiting entries, their bytes are not counted."""

ENTRY_BYTES: Final = 128
"""The approximate memory of an entry without its texts."""

Response = AllocationEffect | ApplicationEffect | NodeEffect


class Stream:
    """One open stream. It belongs to no manager (``rm_id`` is empty) until its first message is accepted."""

    __slots__ = (
        "_again", "_greeting", "_news", "board", "epoch", "error", "flush", "held", "kind", "resumption",
        "rm_id", "session",
    )  # fmt: skip

    def __init__(self, kind: Kind, board: Switchboard) -> None:
        self.kind = kind
        self.board = board
        """The switchboard that serves it."""
        self.rm_id = ""
        self.session = SESSION.get()
        """The program that opened it."""
        self.error: Exception | None = None
        """The reason why it ends; meaningful once ``flush`` is set. ``None``: it ends without an error."""
        self.flush: int | None = None
        """The number of entries after which the stream ends; ``None``: it goes on."""
        self.resumption = RESUMPTION.get()
        """The position from which its client goes on; ``None``: the client does not say."""
        self.epoch = ""
        """The epoch in which it was bound, if its client goes on where it was."""
        self.held = self.resumption is not None
        """Tells whether nothing may be sent yet, because the client first has to know what the core has received."""
        self._greeting = ""
        self._again: deque[bytes] = deque()
        self._news = asyncio.Event()

    @property
    def ending(self) -> bool:
        """Tells whether nothing more is accepted from it."""
        return self.flush is not None

    def wake_writer(self) -> None:
        """Make the writer check for entries again."""
        self._news.set()

    def greet_client(self, greeting: str) -> None:
        """Send *greeting* first, and everything else from then on."""
        self._greeting = greeting
        self.held = False
        self.wake_writer()

    def take_greeting(self) -> str:
        """Returns the metadata to send first; empty: none, or they were sent."""
        greeting, self._greeting = self._greeting, ""
        return greeting

    def send_again(self, messages: Iterable[bytes]) -> None:
        """Have *messages* sent before anything else."""
        self._again = deque(messages)

    def take_again(self) -> bytes | None:
        """Returns the next message to send again; ``None``: there is none, or none yet."""
        return self._again.popleft() if self._again and not self.held else None

    async def wait_for_news(self) -> None:
        """Return when there may be something to send, or the stream ends."""
        await self._news.wait()
        self._news.clear()


class _Kept(NamedTuple):
    """A message that was sent, with the number of its first entry and the number after that of its last entry."""

    first: int
    end: int
    raw: bytes


class _Lane:
    """The entries and streams of one kind."""

    __slots__ = (
        "backlog", "entered", "gone", "kept", "kept_bytes", "next", "read_on", "room", "size", "streams", "void",
    )  # fmt: skip

    def __init__(self) -> None:
        self.backlog: deque[Response] = deque()
        self.size = 0
        """The approximate bytes of the entries, without some of the first :data:`FEW_ENTRIES`."""
        self.entered = 0
        """The number of entries that were ever added."""
        self.gone = 0
        """The number of entries that the transport took or that a registration made void."""
        self.void = 0
        """The number of the last run taken before the latest registration, which counts the entries of all runs up to
        it as gone."""
        self.streams: list[Stream] = []
        """The open streams bound to this lane, the last one bound last."""
        self.read_on = 0
        """A number that grows with every run that is taken, and when a registration empties the lane."""
        self.next = 0
        """The number of entries since the registration that are before the backlog: taken from it, or received before
        this core began."""
        self.kept: deque[_Kept] = deque()
        """The messages that were sent last to a client that may ask for them again."""
        self.kept_bytes = 0
        self.room = asyncio.Event()
        self.room.set()

    def begin_numbers(self) -> None:
        """Counts entries from 0 again."""
        self.next = 0
        self.kept.clear()
        self.kept_bytes = 0

    def keep_message(self, first: int, end: int, raw: bytes) -> None:
        """Keeps *raw*, and drops the oldest kept messages beyond the bound."""
        self.kept.append(_Kept(first, end, raw))
        self.kept_bytes += len(raw)
        while self.kept_bytes > KEPT_BYTES:
            self.kept_bytes -= len(self.kept.popleft().raw)

    def drop_kept_from(self, number: int) -> None:
        """Drops the messages with entries from *number* on, because they were not sent."""
        while self.kept and self.kept[-1].end > number:
            self.kept_bytes -= len(self.kept.pop().raw)

    def drop_kept_before(self, number: int) -> None:
        """Drops the messages all of whose entries are before *number*, because they were received."""
        while self.kept and self.kept[0].end <= number:
            self.kept_bytes -= len(self.kept.popleft().raw)


class Batch:
    """Entries taken for one response message, the first of which has *number*."""

    __slots__ = ("entries", "mark", "number")

    def __init__(self, entries: list[Response], mark: int, number: int = 0) -> None:
        self.entries = entries
        self.mark = mark
        self.number = number


_CARRIED: Final = {kind: frozenset(each for each, of in KIND_OF.items() if of is kind) for kind in Kind}
"""The effects that the streams of each kind carry."""


_TEXTS: Final[dict[type, Callable[[Any], Any]]] = {
    Allocated: attrgetter("spec.key", "spec.application_id"),
    Released: attrgetter("key", "application_id", "message"),
    AskReleased: attrgetter("key", "application_id", "message"),
    AllocationRejected: attrgetter("key", "application_id", "reason"),
    ApplicationAccepted: attrgetter("application_id", "queue"),
    ApplicationRejected: attrgetter("application_id", "queue", "reason"),
    ApplicationUpdated: attrgetter("application_id", "message"),
    NodeAccepted: itemgetter(slice(0, 1)),
    NodeRejected: attrgetter("node_id", "reason"),
}
"""The texts of each kind of entry whose memory may be freed together with the entry."""


def _count_bytes(entries: Sequence[Response]) -> int:
    """Returns the approximate memory of *entries*. A text that several of them share counts for each."""
    texts = (map(_TEXTS[kind], group) for kind, group in groupby(entries, type))
    return ENTRY_BYTES * len(entries) + sum(map(getsizeof, chain.from_iterable(chain.from_iterable(texts))))


def _count_run(backlog: Iterable[Response]) -> int:
    """Returns how many of the first in *backlog* may share a message."""
    waiting = list(backlog)
    # The class of nearly all tells their list, so they are counted in C, without Python code for each.
    name = LIST_OF.get(type(waiting[0]))
    if name is not None:
        return len(list(takewhile(partial(eq, name), map(LIST_OF.get, map(type, waiting)))))
    key = list_key(waiting[0])
    return len(list(takewhile(lambda effect: list_key(effect) == key, waiting)))


class Switchboard:
    """All streams and lanes of one manager. It is used only from the event loop's thread."""

    def __init__(
        self,
        metrics: ServiceMetrics,
        *,
        queue_limit: int = QUEUE_LIMIT,
        queue_bytes: int = QUEUE_BYTES,
        presence: PresenceKeeper | None = None,
    ) -> None:
        """Makes a switchboard without streams. *presence* is notified of every stream of a manager, and of
        registrations."""
        self._presence = presence
        self._metrics = metrics
        self._limit = queue_limit
        self._limit_bytes = queue_bytes
        self._rm_id = ""
        self._lost = False
        self._queued = 0
        """The number of entries waiting in all lanes at the last count."""
        self._lanes = {kind: _Lane() for kind in Kind}
        self._open: set[Stream] = set()

    def open(self, kind: Kind) -> Stream:
        """Returns a new stream, which is not bound yet."""
        stream = Stream(kind, self)
        self._open.add(stream)
        self._metrics.streams_opened += 1
        return stream

    def take_over(self, stream: Stream) -> None:
        """Serve *stream*, which is open and not bound yet, from now on instead of the board that opened it."""
        if stream in stream.board._open:
            stream.board._open.remove(stream)
            self._open.add(stream)
        stream.board = self

    def close(self, stream: Stream) -> None:
        """Remove *stream*. What it did not send waits for the next stream."""
        if stream in self._open:
            self._open.remove(stream)
        lane = self._lanes[stream.kind]
        if stream in lane.streams:
            lane.streams.remove(stream)
            self._notify_receiver(lane)
            if self._presence is not None:
                self._presence.note_closed(stream.rm_id)

    def note_registered(self, rm_id: str) -> None:
        """Note that *rm_id* is registered from now on; empty: no manager is. It gets no earlier entries (DB-4).

        Streams that the same manager still has open stay bound.
        """
        self._rm_id = rm_id
        self._lost = False
        self._drop_all()
        for lane in self._lanes.values():
            lane.gone, lane.void = lane.entered, lane.read_on
            lane.begin_numbers()
        if self._presence is not None:
            self._presence.note_registered(rm_id)

    def go_on(self, rm_id: str, untold: Sequence[Effect], progress: Progress) -> None:
        """Serve *rm_id*, which registered at another core: *untold* are the last effects of *progress*, which may not
        have arrived."""
        self.note_registered(rm_id)
        self.deliver_effects(untold)
        for kind, lane in self._lanes.items():
            lane.next = max(0, progress.decided[kind] - len(lane.backlog))

    def bind(self, stream: Stream, rm_id: str, progress: Progress | None = None) -> None:
        """Make *stream* the receiver of its lane, because its first message has been accepted.

        If its client says what it has received, the stream continues after that, and any other stream that the client
        has open ends. *progress*: the entries sent and received since the registration. Raises :class:`ResyncRequired`
        while the manager must register again.
        """
        if self._lost:
            raise ResyncRequired(
                f"resync-required: responses for {rm_id!r} were dropped because no stream read them; register again"
            )
        if stream.rm_id:
            return
        lane = self._lanes[stream.kind]
        if stream.resumption is not None and progress is not None:
            progress.check(stream.resumption, stream.kind)
            self._resume_lane(lane, stream, stream.resumption.received)
        stream.rm_id = rm_id
        lane.streams.append(stream)
        if self._presence is not None:
            self._presence.note_opened(rm_id)
        stream.wake_writer()

    def _resume_lane(self, lane: _Lane, stream: Stream, received: int) -> None:
        """Make *stream* continue after the first *received* entries."""
        lost = ResyncRequired(f"resync-required: what follows entry {received} is not kept any more; register again")
        if received > lane.next:
            if received > lane.next + len(lane.backlog):
                raise lost
            for _ in range(received - lane.next):
                lane.backlog.popleft()
            lane.gone += received - lane.next
            lane.next = received
            self._count_queued(sum(len(each.backlog) for each in self._lanes.values()))
        lane.drop_kept_before(received)
        if received < lane.next and (not lane.kept or lane.kept[0].first != received):
            raise lost
        # A stream that is still writing returns nothing that this stream sends again.
        lane.read_on += 1
        stream.send_again(kept.raw for kept in lane.kept)
        for other in lane.streams:
            if other.session.key == stream.session.key:
                self.end_stream(other, StreamReplaced("replaced: the client has opened another one"), flush=False)

    def note_received(self, kind: Kind, entries: int) -> None:
        """Note that the client has received *entries* entries, which need not be sent again."""
        self._lanes[kind].drop_kept_before(entries)

    def keep_messages(self, stream: Stream, batch: Batch, messages: Iterable[tuple[bytes, int]]) -> None:
        """Keep the *messages* of *batch*, each with its number of entries, for a client that may ask for them again."""
        lane = self._lanes[stream.kind]
        if stream.resumption is None or batch.mark <= lane.void:
            return
        first = batch.number
        for raw, entries in messages:
            lane.keep_message(first, first + entries, raw)
            first += entries

    def deliver_effects(self, effects: Sequence[Effect]) -> None:
        """Add *effects* to their lanes, in order. Effects that no stream carries are left out."""
        if self._lost:
            return
        types = set(map(type, effects))
        touched = []
        for kind, carried in _CARRIED.items():
            if types.isdisjoint(carried):
                continue
            lane = self._lanes[kind]
            # Without a step of Python for each: a slice decides hundreds.
            found: list[Response] = list(compress(effects, map(carried.__contains__, map(type, effects))))  # type: ignore[arg-type]
            lane.backlog.extend(found)
            lane.entered += len(found)
            if len(lane.backlog) > FEW_ENTRIES:
                lane.size += _count_bytes(found)
            touched.append(kind)
        for kind in touched:
            self._settle_lane(kind)

    def take_batch(self, stream: Stream, limit: int = RUN_LIMIT) -> Batch | None:
        """Returns the next entries that may share a message, at most *limit*. ``None``: nothing for *stream* right
        now."""
        lane = self._lanes[stream.kind]
        if not lane.backlog or stream.held or self._find_receiver(lane) is not stream:
            return None
        if stream.flush is not None:
            limit = min(limit, stream.flush)
        if limit <= 0:
            return None
        backlog = lane.backlog
        limit = min(limit, 1 + RUN_BYTES * len(backlog) // max(1, lane.size))
        entries = list(starmap(backlog.popleft, repeat((), _count_run(islice(backlog, limit)))))
        if lane.size:
            lane.size = max(0, lane.size - _count_bytes(entries)) if len(backlog) > FEW_ENTRIES else 0
        if stream.flush is not None:
            stream.flush -= len(entries)
        if len(backlog) < HIGH_WATER // 2 and lane.size < HIGH_WATER_BYTES // 2:
            lane.room.set()
        lane.read_on += 1
        number = lane.next
        lane.next += len(entries)
        self._count_queued(self._queued - len(entries))
        return Batch(entries, lane.read_on, number)

    def give_back(self, stream: Stream, batch: Batch, start: int = 0) -> None:
        """Put back the entries of *batch* from *start* on, which were not sent, unless later ones have been taken
        since."""
        lane = self._lanes[stream.kind]
        if batch.mark != lane.read_on:
            self.note_sent(stream, batch, len(batch.entries))
            return
        self.note_sent(stream, batch, start)
        unsent = batch.entries[start:]
        lane.backlog.extendleft(reversed(unsent))
        lane.next -= len(unsent)
        lane.drop_kept_from(lane.next)
        if len(lane.backlog) > FEW_ENTRIES:
            lane.size += _count_bytes(unsent)
        self._count_queued(self._queued + len(unsent))

    def note_sent(self, stream: Stream, batch: Batch, entries: int) -> None:
        """Note that the transport has taken the first *entries* of *batch*."""
        lane = self._lanes[stream.kind]
        if batch.mark > lane.void:
            lane.gone += entries

    def count_entered(self) -> tuple[int, ...]:
        """Returns how many entries of each kind were ever added."""
        return tuple(lane.entered for lane in self._lanes.values())

    def count_gone(self) -> tuple[int, ...]:
        """Returns how many entries of each kind the transport has taken or a registration made void.

        Entries that were dropped because no stream read them do not count, because the manager has to learn that it
        missed them.
        """
        return tuple(lane.gone for lane in self._lanes.values())

    def end_stream(self, stream: Stream, error: Exception | None, *, flush: bool = True) -> None:
        """End *stream* with *error*, or without one. With *flush* it first sends what waits for it now."""
        if stream.ending:
            return
        lane = self._lanes[stream.kind]
        stream.error = error
        stream.flush = len(lane.backlog) if flush and self._find_receiver(lane) is stream else 0
        stream.wake_writer()

    def end_streams(self, rm_id: str, error: Exception) -> None:
        """End every stream of *rm_id* with *error*, at once."""
        for stream in list(self._open):
            if stream.rm_id == rm_id:
                self.end_stream(stream, error, flush=False)

    def sessions(self) -> set[Session]:
        """Returns the sessions of all streams that belong to a manager."""
        return {stream.session for stream in self._open if stream.rm_id}

    def supersede(self, sessions: Container[Session], error: Exception) -> None:
        """End every stream of *sessions* with *error*, at once."""
        for stream in list(self._open):
            if stream.session in sessions:
                self.end_stream(stream, error, flush=False)

    def finish_all(self, error: Exception) -> None:
        """End every open stream with *error* after it has sent what waits for it."""
        for stream in list(self._open):
            self.end_stream(stream, error)

    async def wait_for_room(self, stream: Stream) -> None:
        """Return when so few entries wait in *stream*'s lane that further requests may be read: back-pressure
        (DB-13)."""
        await self._lanes[stream.kind].room.wait()

    def _find_receiver(self, lane: _Lane) -> Stream | None:
        for stream in reversed(lane.streams):
            if stream.rm_id == self._rm_id:
                return stream
        return None

    def _notify_receiver(self, lane: _Lane) -> None:
        receiver = self._find_receiver(lane)
        if receiver is not None:
            receiver.wake_writer()

    def _settle_lane(self, kind: Kind) -> None:
        """After an addition, wake the receiver, stop the readers, or drop everything."""
        lane = self._lanes[kind]
        if len(lane.backlog) > self._limit or sum(each.size for each in self._lanes.values()) > self._limit_bytes:
            self._drop_lane()
            return
        is_far = len(lane.backlog) >= HIGH_WATER or lane.size >= HIGH_WATER_BYTES
        if is_far and self._find_receiver(lane) is not None:
            lane.room.clear()
        self._count_queued(sum(len(each.backlog) for each in self._lanes.values()))
        self._notify_receiver(lane)

    def _drop_lane(self) -> None:
        self._metrics.response_overflows += 1
        self._lost = True
        self._drop_all()
        lost = ResyncRequired(
            f"resync-required: more than {self._limit} responses or {self._limit_bytes >> 20} MiB of them for"
            f" {self._rm_id!r} waited unread; register again"
        )
        for lane in self._lanes.values():
            for stream in lane.streams:
                self.end_stream(stream, lost, flush=False)

    def _drop_all(self) -> None:
        for lane in self._lanes.values():
            self._metrics.entries_dropped += len(lane.backlog)
            lane.backlog.clear()
            lane.size = 0
            lane.read_on += 1
            lane.room.set()
            for stream in lane.streams:
                if stream.flush:
                    stream.flush = 0
                    stream.wake_writer()
        self._count_queued(0)

    def _count_queued(self, entries: int) -> None:
        """Note that *entries* entries wait; the boards of all managers count in the same record."""
        self._metrics.queued_entries += entries - self._queued
        self._queued = entries
