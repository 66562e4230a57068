"""Live events over HTTP: a line each, for as long as the client reads (rest.md 4.2).

Streams hold a position in the ring and no events, so a slow reader costs nothing; it is dropped when the ring no longer
reaches back to where it is, or when its socket has been full for :data:`WRITE_PATIENCE_S`. What several streams send is
encoded once. The more streams there are, the longer each waits between two writes, so that many of them do not keep
scheduling waiting.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import orjson
from starlette.types import Receive, Scope, Send

from core.domain.effects import EventRecorded
from core.rest.answers import JSON, encode, json_headers, raw
from core.rest.errors import RestError, error_document
from core.rest.event_record import event_lines
from core.rest.http_protocol import ABORT
from core.service.clock import Clock
from core.service.event_journal import EventJournal
from core.service.event_ring import ReaderDropped, RingReader

WRITE_PATIENCE_S: Final = 5.0
BATCH: Final = 512
"""Most events in one write. Streams take up to multiples of it, so that those that lag share what is encoded."""

PAUSE_S: Final = 0.01
PAUSE_PER_STREAM_S: Final = 0.002
_ENCODED_KEPT: Final = 64

CLOSED: Final = "Event stream was closed by the producer"


@dataclass(eq=False)
class OpenStream:
    """One reader. ``host``: address of the client."""

    host: str
    created_ns: int
    reader: RingReader[EventRecorded]
    gone: bool = False


class EventStreams:
    """All open streams of one journal."""

    def __init__(self, journal: EventJournal, *, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._open: dict[OpenStream, None] = {}
        self._per_host: dict[str, int] = {}
        self._encoded: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._closing = False

    def __len__(self) -> int:
        return len(self._open)

    def listed(self) -> tuple[OpenStream, ...]:
        """Those that are open, the oldest first."""
        return tuple(self._open)

    def open(self, host: str, newest: int, start: int | None = None) -> EventStream:
        """A stream that begins with the *newest* stored events, or with number *start*. Raises 503 at the limits."""
        settings = self._journal.settings
        if (
            self._closing
            or len(self._open) >= settings.streams
            or self._per_host.get(host, 0) >= settings.streams_per_host
        ):
            raise RestError(503, "Too many streaming connections")
        ring = self._journal.events
        first = ring.next_id - newest if start is None else start
        first = min(max(first, ring.lowest_id), ring.next_id)
        stream = OpenStream(host, self._clock.now_ns(), ring.subscribe(first))
        self._open[stream] = None
        self._per_host[host] = self._per_host.get(host, 0) + 1
        return EventStream(self, stream, self._journal.incarnation)

    def close(self) -> None:
        """End all streams, and open no more."""
        self._closing = True
        for stream in self._open:
            stream.reader.close()

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def pause_s(self) -> float:
        """How long a stream waits after a write."""
        return max(PAUSE_S, PAUSE_PER_STREAM_S * len(self._open))

    def forget(self, stream: OpenStream) -> None:
        """*stream* has ended."""
        stream.reader.close()
        self._open.pop(stream, None)
        left = self._per_host.get(stream.host, 0) - 1
        if left > 0:
            self._per_host[stream.host] = left
        else:
            self._per_host.pop(stream.host, None)

    def encoded(self, first_id: int, events: Sequence[EventRecorded]) -> bytes:
        """*events* as lines; those that another stream sent just now are not encoded again."""
        key = first_id, len(events)
        lines = self._encoded.get(key)
        if lines is None:
            lines = self._encoded[key] = event_lines(events)
            if len(self._encoded) > _ENCODED_KEPT:
                self._encoded.popitem(last=False)
        return lines


class EventStream:
    """The answer to one request, as an ASGI application."""

    def __init__(self, streams: EventStreams, stream: OpenStream, incarnation: str) -> None:
        self._streams = streams
        self._stream = stream
        self._incarnation = incarnation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client goes away, reads too slowly, or the core stops."""
        watching = asyncio.create_task(self._watch(receive))
        try:
            await self._send_all(send)
        except TimeoutError:
            abort = scope.get("extensions", {}).get(ABORT)
            if abort is not None:
                abort["abort"]()
        finally:
            self._streams.forget(self._stream)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stream.gone = True
        self._stream.reader.close()

    async def _send_all(self, send: Send) -> None:
        stream, reader, streams = self._stream, self._stream.reader, self._streams
        headers = raw([("Content-Type", JSON), *json_headers()])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, orjson.dumps({"InstanceUUID": self._incarnation}, option=orjson.OPT_APPEND_NEWLINE))
        while not stream.gone and not streams.closing:
            await reader.news()
            first_id = reader.position
            try:
                events = reader.take(BATCH - first_id % BATCH)
            except ReaderDropped:
                break
            if events:
                await _write(send, streams.encoded(first_id, events))
                if not reader.behind:
                    await asyncio.sleep(streams.pause_s)
        if not stream.gone:
            await _write(send, encode(error_document(200, CLOSED)))
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), WRITE_PATIENCE_S)


async def _write(send: Send, lines: bytes) -> None:
    await asyncio.wait_for(send({"type": "http.response.body", "body": lines, "more_body": True}), WRITE_PATIENCE_S)
