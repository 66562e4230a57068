"""Serves events in batches and as a stream (rest.md 4.2)."""

from __future__ import annotations

from typing import Final

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.http.errors import RestError
from kornel.core.rest.serving.answers import JSON, Answer, json_headers
from kornel.core.rest.serving.event_streams import EventStream, EventStreams
from kornel.core.rest.serving.queries import query_of, read_positive, read_unsigned
from kornel.core.rest.serving.rows import POSITIVE, PREFIX, UNSIGNED, Parameter, Row
from kornel.core.rest.serving.turns import encode_list
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.telling.encoding.yunikorn.events import EVENT, EVENT_BATCH, EventBatch

_NUMBERS: Final = (
    Parameter("start", "Number of the first event; 0 by default.", UNSIGNED),
    Parameter("count", "The most events in the answer; never more than the configured number.", POSITIVE),
)
_FOLLOWED: Final = (
    Parameter("count", "Number of the newest stored events that come first.", UNSIGNED),
    Parameter("start", "Extension: number of the first event.", UNSIGNED),
)
_LINES: Final = ("application/x-ndjson",)
_DISABLED: Final = {500: "Event tracking is disabled."}
_NO_STREAM: Final = {**_DISABLED, 503: "Too many streaming connections."}


class EventHandlers:
    """Serves the routes below ``/events``."""

    def __init__(self, journal: EventJournal, streams: EventStreams) -> None:
        self._journal = journal
        self._streams = streams

    @Row(f"{PREFIX}/events/batch", "eventBatch", "Events", EVENT_BATCH, _NUMBERS, _DISABLED, long=True)
    async def batch(self, request: Request) -> ASGIApp:
        """Returns events by their numbers."""
        self._require_tracking()
        journal = self._journal
        query = query_of(request)
        most = journal.settings.response_size
        count = min(read_positive(query, "count", most), most)
        start = read_unsigned(query, "start", 0)
        ring = journal.events
        head = EVENT_BATCH.write(EventBatch(journal.instance, ring.lowest_id, ring.highest_id))
        events = ring.get(start, count)
        chunks = [orjson.dumps(head)[:-1], b',"EventRecords":']
        chunks += (await encode_list(map(EVENT.write, events))).chunks if events is not None else [b"null\n"]
        chunks[-1] = chunks[-1].rstrip(b"\n")
        return Answer([*chunks, b"}\n"], JSON, headers=json_headers())

    @Row(f"{PREFIX}/events/stream", "eventStream", "Events", None, _FOLLOWED, _NO_STREAM, _LINES)
    async def stream(self, request: Request) -> ASGIApp:
        """Returns events as they happen, one JSON object per line; the answer never ends."""
        self._require_tracking()
        client = request.scope.get("client")
        place = self._streams.take_place(client[0] if client else "")
        try:
            query = query_of(request)
            newest = read_unsigned(query, "count", 0)
            start = (
                read_unsigned(query, "start", 0) if query.get("start") else self._journal.events.newest_start(newest)
            )
        except RestError:
            place.close()
            raise
        return EventStream(self._streams, start, place)

    def _require_tracking(self) -> None:
        if not self._journal.settings.tracking:
            raise RestError(500, "Event tracking is disabled")
