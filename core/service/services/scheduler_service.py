"""Serves ``si.v1.Scheduler``: one registration call, and three streams between shims and the partition task.

Each stream has a reader and a writer. The reader parses requests, checks that the stream keeps to one rmID, and queues
commands; it waits while the queue or the responses are full. The writer sends what the switchboard has for the stream.
The end of a stream, by the client or an error, is queued as well, so that everything accepted before it still counts.
If a resolver is configured, the reader of applications also waits for their users' groups.

Rules: protocol.md 1.1, 5.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import StreamCommand, UpdateApplications
from kornel.core.service.calls.plain_asks import PlainAsks, PlainReader
from kornel.core.service.calls.rpc import MARKS, Context, Handler, Requests, Service, bidirectional, end_call
from kornel.core.service.calls.wire_pieces import read_request
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.managers import Managers, Place
from kornel.core.service.managers.standing import Standing
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.streams.resuming import RESUME_KEY, Kind
from kornel.core.service.streams.streams import Batch, Stream
from kornel.core.service.wire.scheduler_wire import Decoder, Encoder
from kornel.core.service.wire.status_codes import NotLeading, OtherManagerOnStream, ServiceError, ShuttingDown
from kornel.si.v1 import si_pb2 as si

RESPONSE_LIMIT: Final = 4 * 2**20 - 64 * 1024
"""The most bytes of a response; a larger one is divided. A client of gRPC accepts 4 MiB by default."""


class SchedulerService(Service):
    """Serves the four calls."""

    described = si.DESCRIPTOR.services_by_name["Scheduler"]

    def __init__(
        self,
        managers: Managers,
        *,
        lookups: GroupLookups,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        clock: Clock,
        standing: Standing | None = None,
    ) -> None:
        """Makes the service. Without *standing*, the core always leads."""
        super().__init__(logger)
        self._managers = managers
        self._standing = standing or Standing()
        self._lookups = lookups
        self._metrics = metrics
        self._decoder = Decoder(lambda: clock.ahead_s)
        self._plain = PlainReader(self._decoder, lambda rm_id: managers.find(rm_id) is not None)
        encoder = Encoder()
        self._decode: dict[Kind, Callable[[Any], Iterator[StreamCommand]]] = {
            Kind.ALLOCATION: self._allocation_commands,
            Kind.APPLICATION: self._decoder.application_commands,
            Kind.NODE: self._decoder.node_commands,
        }
        self._encode: dict[Kind, Callable[[Sequence[Any]], bytes]] = {
            Kind.ALLOCATION: encoder.encode_allocations,
            Kind.APPLICATION: encoder.encode_applications,
            Kind.NODE: encoder.encode_nodes,
        }

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {
            **super().handlers(),
            "UpdateAllocation": bidirectional(self._stream_of(Kind.ALLOCATION), self._metrics),
            "UpdateApplication": bidirectional(self._stream_of(Kind.APPLICATION), self._metrics),
            "UpdateNode": bidirectional(self._stream_of(Kind.NODE), self._metrics),
        }

    async def _register_resource_manager(
        self, request: si.RegisterResourceManagerRequest
    ) -> si.RegisterResourceManagerResponse:
        """Register a resource manager (protocol.md 5.1)."""
        self._standing.check_leads()
        await self._managers.register(self._decoder.decode_registration(request))
        epoch = self._managers.place_for(request.rmID).runner.epoch
        if epoch:
            MARKS.set(((RESUME_KEY, epoch),))
        return si.RegisterResourceManagerResponse()

    def _stream_of(self, kind: Kind) -> Callable[[Requests, Context], Any]:
        async def serve(requests: Requests, context: Context) -> None:
            try:
                self._standing.check_leads()
            except NotLeading as refusal:
                # The call is ended at once, so that a shim that has nothing to send looks for the leader, too.
                await end_call(context, refusal, self._logger)
            await self._serve(kind, requests, context)

        return serve

    async def _serve(self, kind: Kind, requests: Requests, context: Context) -> None:
        stream = self._managers.lobby.switchboard.open(kind)
        reader = asyncio.create_task(self._read(stream, requests), name=f"read {kind}")
        try:
            await self._write(stream, context)
        except BaseException:
            self._metrics.streams_broken += 1
            raise
        finally:
            stream.board.close(stream)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if stream.error is not None:
            self._metrics.streams_refused += 1
            self._logger.info("stream ended", kind=str(kind), rm_id=stream.rm_id, cause=str(stream.error))
            await end_call(context, stream.error, self._logger)

    async def _read(self, stream: Stream, requests: Requests) -> None:
        """Queue everything in *requests*, then the end of the stream."""
        commands_of = self._decode[stream.kind]
        error: Exception | None = None
        rm_id = ""
        place: Place | None = None
        try:
            async for raw in requests:
                self._metrics.messages_received += 1
                number = 0
                plain = self._plain.read(raw) if stream.kind is Kind.ALLOCATION else None
                for request in await read_request(stream.kind, raw) if plain is None else (plain,):
                    if place is None:
                        rm_id = request.rmID
                        place = self._managers.place_for(rm_id)
                        place.switchboard.take_over(stream)
                    elif request.rmID != rm_id:
                        raise OtherManagerOnStream(
                            f"{stream.kind} for {request.rmID!r} on a stream that is bound to {rm_id!r}"
                        )
                    for command in commands_of(request):
                        if number:
                            # A long request is read piece by piece, with turns for others. Its answers wait for the
                            # client to read them, like those to many short requests.
                            await asyncio.sleep(0)
                            await stream.board.wait_for_room(stream)
                        number += 1
                        if isinstance(command, UpdateApplications):
                            command = await self._lookups.add_groups(command)  # noqa: PLW2901 - the same with groups
                        await place.runner.submit(stream, command)
                await stream.board.wait_for_room(stream)
        except ShuttingDown:
            return  # The server ends all streams in its own order.
        except ServiceError as refusal:
            error = refusal
        except Exception as failure:  # noqa: BLE001 - if a reader died silently, its client would wait for ever
            error = failure
        if place is None:
            stream.board.end_stream(stream, error)
        else:
            with suppress(ShuttingDown):  # The server ends all streams in its own order.
                await place.runner.end(stream, error)

    def _allocation_commands(self, request: si.AllocationRequest | PlainAsks) -> Iterator[StreamCommand]:
        if isinstance(request, PlainAsks):
            return self._decoder.allocation_commands(request.message, request.specs)
        return self._decoder.allocation_commands(request)

    async def _write(self, stream: Stream, context: Context) -> None:
        """Send the entries for *stream* until it ends. Entries that could not be sent wait for another stream."""
        while True:
            greeting = stream.take_greeting()
            if greeting:
                await context.send_initial_metadata(((RESUME_KEY, greeting),))
            while (again := stream.take_again()) is not None:
                await context.write(again)
                self._metrics.messages_sent += 1
            batch = stream.board.take_batch(stream)
            if batch is not None:
                await self._send(stream, batch, context)
            elif stream.ending:
                return
            else:
                await stream.wait_for_news()

    async def _send(self, stream: Stream, batch: Batch, context: Context) -> None:
        sent = 0
        try:
            messages: Iterable[tuple[bytes, int]] = self._split_entries(stream.kind, batch.entries)
            if stream.resumption is not None:
                # All messages are kept before the first is sent, because another stream of this client, once open,
                # sends all of them.
                messages = list(messages)
                stream.board.keep_messages(stream, batch, messages)
            for raw, entries in messages:
                await context.write(raw)
                sent += entries
                self._metrics.messages_sent += 1
                self._metrics.entries_sent += entries
        except BaseException:
            stream.board.give_back(stream, batch, sent)
            raise
        stream.board.note_sent(stream, batch, sent)

    def _split_entries(self, kind: Kind, entries: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
        """Yields *entries* as messages that fit the transport, each with the number of entries in it."""
        raw = self._encode[kind](entries)
        if len(raw) <= RESPONSE_LIMIT or len(entries) == 1:
            yield raw, len(entries)
            return
        middle = len(entries) // 2
        yield from self._split_entries(kind, entries[:middle])
        yield from self._split_entries(kind, entries[middle:])
