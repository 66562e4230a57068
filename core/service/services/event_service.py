"""Serves ``kornel.v1.EventService``: the events of the core as a stream that can be resumed.

A stream holds nothing but its position in the ring. An event is encoded once for all streams: a response is the
concatenation of its fields, so the bytes of events are joined as they are. A response is written only after the client
has taken the one before. A client that takes none for a while is dropped, and so is a client that the ring has
overtaken because it reads slowly. A client that was overtaken because the core was too busy to send gets a message with
what it missed.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.effects import EventRecorded, PreemptionDecided
from kornel.core.service.calls.long_answers import fill_answer
from kornel.core.service.calls.rpc import Context, Handler, Service, end_call, parse, server_stream
from kornel.core.service.connections.callers import host_of
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.event_ring import RingReader
from kornel.core.service.events.event_streams import WRITE_PATIENCE_S, Encodings, Pace
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.managers import Managers
from kornel.core.service.wire.event_wire import EventEncoder, decode_filter, encode_position
from kornel.core.service.wire.status_codes import (
    CursorOutOfRange,
    ShuttingDown,
    SlowReader,
    TrackingDisabled,
)
from kornel.core.telling.encoding.kornel_v1 import encode_decision
from kornel.v1 import events_pb2 as pb

MOST_DECISIONS: Final = 1_000
"""The most decisions in one answer, whatever a client asks for."""

SLOW_WRITE_S: Final = 1.0
"""If a client took this long to read the last response and is then overtaken, this is the client's fault."""

MOST_BYTES: Final = 1 << 20
"""The most bytes of the events of one response: far below what clients accept, however long messages are."""

SILENT_EVENTS: Final = 10_000
"""The number of events after which a client for which none was meant gets its position, so that it can resume there."""


class EventService(Service):
    """Streams the events that *journal* keeps, and lists its decisions about the partitions of *managers*."""

    described = pb.DESCRIPTOR.services_by_name["EventService"]

    def __init__(
        self, journal: EventJournal, managers: Managers, *, clock: Clock, logger: FilteringBoundLogger
    ) -> None:
        super().__init__(logger)
        self._journal = journal
        self._managers = managers
        self._clock = clock
        self._encodings: Encodings[EventRecorded] = Encodings(EventEncoder().encode)

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {**super().handlers(), "WatchEvents": server_stream(self._watch)}

    async def _list_decisions(self, request: pb.ListDecisionsRequest) -> pb.ListDecisionsResponse:
        views = self._managers.find_partition(request.partition)
        ring, count = self._journal.decisions, min(max(request.limit, 0) or MOST_DECISIONS, MOST_DECISIONS)
        start = max(request.start, ring.lowest_id) if request.HasField("start") else ring.newest_start(count)
        found = ring.get(start, count) or ()
        next_id = start + len(found) if found else ring.next_id
        mine = [
            (number, entry.next_event, entry.what)
            for number, entry in enumerate(found, start)
            if isinstance(entry.what, PreemptionDecided) and entry.what.partition == views.name
        ]
        resumed = request.HasField("start")
        listed = await fill_answer(
            encode_decision(what, id=number, next_event_id=next_event)
            for number, next_event, what in (mine if resumed else reversed(mine))
        )
        if not resumed:
            listed.reverse()
        elif len(listed) < len(mine):
            next_id = mine[len(listed)][0]
        return pb.ListDecisionsResponse(
            instance=self._journal.instance, lowest_id=ring.lowest_id, next_id=next_id, preemptions=listed
        )

    async def _watch(self, raw: bytes, context: Context) -> None:
        with ExitStack() as held:
            try:
                request = parse(pb.WatchEventsRequest, raw)
                if not self._journal.settings.tracking:
                    raise TrackingDisabled("Event tracking is disabled")
                held.enter_context(self._journal.places.take_place(host_of(context.peer()), self._clock.now_ns()))
                await _Watch(self._journal, self._encodings, request, context).run()
            except SlowReader as error:
                self._journal.places.dropped += 1
                self._logger.info("event stream dropped", peer=context.peer(), cause=str(error))
                # The status is queued behind the unread response; a client that never reads must not keep its place.
                with suppress(TimeoutError):
                    async with asyncio.timeout(WRITE_PATIENCE_S):
                        await end_call(context, error, self._logger)
                raise asyncio.CancelledError from error  # gRPC logs any other exception as an error.
            except Exception as error:
                raw = b""  # The frame of this call outlives it for a moment.
                await end_call(context, error, self._logger)
                raise


class _Watch:
    """One stream."""

    def __init__(
        self,
        journal: EventJournal,
        encodings: Encodings[EventRecorded],
        request: pb.WatchEventsRequest,
        context: Context,
    ) -> None:
        self._journal = journal
        self._ring = journal.events
        self._encodings = encodings
        self._request = request
        self._context = context
        self._pace = Pace(journal.places)
        self._filter = decode_filter(request.filter) if request.HasField("filter") else None
        self._end_id = self._ring.next_id if request.stored_only else None
        self._told_id = 0
        """The last position that the client was sent, from which it could resume."""
        self._write_took_s = 0.0

    async def run(self) -> None:
        """Send the events that the request asks for. Raises a ``ServiceError`` that ends the stream."""
        start, opened = self._open_place()
        reader = self._ring.subscribe(start)
        self._told_id = start
        await self._write(pb.WatchEventsResponse(opened=opened, next_id=start).SerializeToString())
        while True:
            if self._end_id is not None and reader.position >= self._end_id:
                return
            await reader.wait_for_news()
            limit = await self._pace.wait_for_turn()
            while reader.overtaken:
                await self._note_overtaken(reader)
            first_id = reader.position
            if self._end_id is not None:
                limit = max(0, min(limit, self._end_id - first_id))
            events = reader.take_entries(limit)
            if events:
                await self._send_position(first_id, events)
            elif self._ring.closed:
                raise ShuttingDown("the core is shutting down")

    def _open_place(self) -> tuple[int, pb.EventsOpened]:
        ring, request, instance = self._ring, self._request, self._journal.instance
        start, restarted = ring.next_id, False
        which = request.WhichOneof("start")
        if which == "newest":
            start = ring.newest_start(request.newest)
        elif which == "resume":
            restarted = request.resume.instance not in ("", instance)
            start = ring.lowest_id if restarted else request.resume.next_id
            if start > ring.next_id:
                raise CursorOutOfRange(f"event {start} has not happened yet; the next one is {ring.next_id}")
        opened = pb.EventsOpened(instance=instance, restarted=restarted, lowest_id=ring.lowest_id, end_id=ring.next_id)
        return start, opened

    async def _note_overtaken(self, reader: RingReader[EventRecorded]) -> None:
        """Tell the client what it missed. Raises an error if it was the client that was too slow."""
        first_id = reader.position
        if self._write_took_s >= SLOW_WRITE_S:
            behind, kept = reader.behind, len(self._ring)
            raise SlowReader(f"read too slowly: {behind} events behind, and only {kept} are kept; next is {first_id}")
        self._journal.places.missed += reader.skip_missed()
        self._told_id = reader.position
        gap = pb.EventGap(first_id=first_id, end_id=reader.position)
        await self._write(pb.WatchEventsResponse(gap=gap, next_id=reader.position).SerializeToString())

    async def _send_position(self, first_id: int, events: list[EventRecorded]) -> None:
        end_id = first_id + len(events)
        if self._filter is None:
            response = self._encodings.encode_joined(first_id, events)
        else:
            matches, queue_of = self._filter.matches_event, self._journal.queue_of
            wanted = [place for place, event in enumerate(events) if matches(event, queue_of)]
            if not wanted and end_id - self._told_id < SILENT_EVENTS and end_id != self._end_id:
                return
            response = b"".join([self._encodings.encode_one(first_id + place, events[place]) for place in wanted])
        if len(response) > MOST_BYTES and len(events) > 1:
            half = len(events) // 2
            await self._send_position(first_id, events[:half])
            await self._send_position(first_id + half, events[half:])
            return
        await self._write(response + encode_position(end_id))
        self._told_id = end_id

    async def _write(self, response: bytes) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(WRITE_PATIENCE_S):
                await self._context.write(response)
        except TimeoutError as error:
            raise SlowReader(f"read nothing for {WRITE_PATIENCE_S:g} s; resume from {self._told_id}") from error
        self._write_took_s = loop.time() - began_s
