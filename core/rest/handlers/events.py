"""Serves events in batches and as a stream (rest.md 4.2)."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.answers import JSON, Answer, json_headers
from kornel.core.rest.errors import RestError
from kornel.core.rest.event_streams import EventStream, EventStreams
from kornel.core.rest.queries import read_positive, read_query, read_unsigned
from kornel.core.rest.turns import encode_list
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.telling.encoding.yunikorn.events import EVENT, EVENT_BATCH, EventBatch


class EventHandlers:
    """Serves the routes below ``/events``."""

    def __init__(self, journal: EventJournal, streams: EventStreams) -> None:
        self._journal = journal
        self._streams = streams

    async def batch(self, request: Request) -> ASGIApp:
        """Serves route R22."""
        self._require_tracking()
        journal = self._journal
        query = read_query(request.scope["query_string"])
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

    async def stream(self, request: Request) -> ASGIApp:
        """Serves route R23. The parameter ``start``, which is Kornel's own, resumes at an ID."""
        self._require_tracking()
        client = request.scope.get("client")
        place = self._streams.take_place(client[0] if client else "")
        try:
            query = read_query(request.scope["query_string"])
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
