"""Streams live events over HTTP, one per line, for as long as the client reads (rest.md 4.2).

A stream only holds its position in the ring, so a slow reader costs no memory. It is dropped when the ring no longer
has the events at its position, or when its socket has been full for :data:`WRITE_PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Final

from starlette.types import Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kornel.core.domain.effects import EventRecorded
from kornel.core.rest.http.errors import RestError, error_document
from kornel.core.rest.http.http_protocol import ABORT
from kornel.core.rest.serving.answers import JSON, encode, json_headers, raw_headers
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.event_ring import Missed, RingReader
from kornel.core.service.events.event_streams import WRITE_PATIENCE_S, Encodings, Pace
from kornel.core.service.machine.clock import Clock
from kornel.core.service.wire.status_codes import EventStreamsFull
from kornel.core.telling.encoding.yunikorn.events import encode_event_line

CLOSED: Final = "Event stream was closed by the producer"

EVENTS_OF_A_WRITE: Final = 1_024
"""The most events of one write. An event has at most some 1.3 kB, and at most one write is kept for a client that reads
slowly."""


class EventStreams:
    """All streams of one journal over HTTP."""

    def __init__(self, journal: EventJournal, *, clock: Clock, logger: FilteringBoundLogger) -> None:
        self.journal = journal
        self.logger = logger
        self.encodings = _make_encodings()
        self._clock = clock
        self._open: dict[EventStream, None] = {}

    def take_place(self, host: str) -> ExitStack:
        """Returns a place for one more stream; close it to give it up. Raises 503 if there is none."""
        place = ExitStack()
        try:
            place.enter_context(self.journal.places.take_place(host, self._clock.now_ns()))
        except EventStreamsFull as error:
            raise RestError(503, "Too many streaming connections") from error
        return place

    def note_opened(self, stream: EventStream) -> None:
        """Note *stream*, which is to be ended when the core stops."""
        self._open[stream] = None

    def note_ended(self, stream: EventStream) -> None:
        """Remove *stream*."""
        self._open.pop(stream, None)
        if not self._open:
            self.encodings = _make_encodings()

    def close(self) -> None:
        """End all streams."""
        for stream in self._open:
            stream.end_stream()


def _make_encodings() -> Encodings[EventRecorded]:
    return Encodings(lambda _, event: encode_event_line(event))


class EventStream:
    """The answer to one request, as an ASGI application. It begins with event *start*, or with the oldest kept event
    after it."""

    def __init__(self, streams: EventStreams, start: int, place: ExitStack) -> None:
        self._streams = streams
        self._start = start
        self._place = place
        self._sending: asyncio.Task[None] | None = None
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client goes away, reads too slowly, or the core stops."""
        sending = self._sending = asyncio.create_task(self._send_all(send), name="event stream")
        watching = asyncio.create_task(_wait_for_disconnect(receive), name="event stream client")
        self._streams.note_opened(self)
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            watching.cancel()
            said, _ = await asyncio.gather(sending, watching, return_exceptions=True)
            if isinstance(said, TimeoutError):
                self._log_drop(scope, f"read too slowly: a write took longer than {WRITE_PATIENCE_S:g} s")
                _abort_connection(scope)
            elif isinstance(said, Missed):
                self._log_drop(scope, str(said))
                await _last_line(scope, send, str(said))
            elif self._ended:
                await _last_line(scope, send, "the core stops")
        finally:
            sending.cancel()
            watching.cancel()
            self._streams.note_ended(self)
            self._place.close()

    def end_stream(self) -> None:
        """Sends the last line, and nothing more."""
        self._ended = True
        if self._sending is not None:
            self._sending.cancel()

    def _log_drop(self, scope: Scope, reason: str) -> None:
        self._streams.journal.places.dropped += 1
        self._streams.logger.info("event stream dropped", client=(scope.get("client") or ("",))[0], cause=reason)

    async def _send_all(self, send: Send) -> None:
        journal, encodings = self._streams.journal, self._streams.encodings
        headers = raw_headers([("Content-Type", JSON), *json_headers()])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, encode({"InstanceUUID": journal.instance}))
        reader: RingReader[EventRecorded] = journal.events.subscribe(self._start)
        reader.skip_missed()
        pace = Pace(journal.places)
        while True:
            await reader.wait_for_news()
            left = await pace.wait_for_turn()
            while left > 0 and (events := reader.take_entries(min(left, EVENTS_OF_A_WRITE))):
                await _write(send, b"".join(encodings.encode_each(reader.position - len(events), events)))
                left -= len(events)
            if journal.events.closed and not reader.behind:
                self._ended = True
                return


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, lines: bytes) -> None:
    async with asyncio.timeout(WRITE_PATIENCE_S):
        await send({"type": "http.response.body", "body": lines, "more_body": True})


async def _last_line(scope: Scope, send: Send, reason: str) -> None:
    """Send the last line of a stream. ``reason`` is Kornel's own; clients of YuniKorn know the other fields."""
    try:
        await _write(send, encode({**error_document(200, CLOSED), "reason": reason}))
        async with asyncio.timeout(WRITE_PATIENCE_S):
            await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        _abort_connection(scope)


def _abort_connection(scope: Scope) -> None:
    """Drops the connection, with everything that waits to be written to it."""
    extension = scope.get("extensions", {}).get(ABORT)
    if extension is not None:
        extension["abort"]()
