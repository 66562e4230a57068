"""Serves ``kornel.v1.CallbackService``: questions to the shim, and messages to it besides decisions.

Like the streams of the scheduler, a callback stream has a reader that passes answers to the partition task and waits
while its queue is full, and a writer that sends what the board has for the stream. The end of the stream is handled in
its turn, after the answers that came before.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from kornel.core.service.callbacks.callback_board import CallbackStream
from kornel.core.service.calls.rpc import Context, Handler, Requests, Service, bidirectional, end_call, parse
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.managers.managers import Managers, Place
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.wire.callback_wire import (
    MILLISECOND_NS,
    Subscription,
    answer_commands,
    decode_subscription,
    encode,
)
from kornel.core.service.wire.status_codes import BadSubscription, ServiceError, ShuttingDown
from kornel.v1 import callback_pb2 as pb


class CallbackService(Service):
    """Serves ``kornel.v1.CallbackService``. ``timeout_ns``: the time that the core waits for an answer if the shim does
    not choose it."""

    described = pb.DESCRIPTOR.services_by_name["CallbackService"]

    def __init__(
        self,
        managers: Managers,
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        timeout_ns: int = SECOND_NS,
    ) -> None:
        super().__init__(logger)
        self._managers = managers
        self._clock = clock
        self._metrics = metrics
        self._timeout_ms = timeout_ns // MILLISECOND_NS

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {"Attach": bidirectional(self._serve, self._metrics)}

    async def _serve(self, requests: Requests, context: Context) -> None:
        stream = self._managers.lobby.callbacks.open()
        reader = asyncio.create_task(self._read(stream, requests), name="read callbacks")
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
            self._logger.info("callback stream ended", cause=str(stream.error))
            await end_call(context, stream.error, self._logger)

    async def _read(self, stream: CallbackStream, requests: Requests) -> None:
        """Queues the subscription and the answers in *requests*, then the end of the stream."""
        error: Exception | None = None
        rm_id = ""
        place: Place | None = None
        try:
            async for raw in requests:
                request = parse(pb.AttachRequest, raw)
                self._metrics.messages_received += 1
                if place is None:
                    subscribed = self._read_subscription(request)
                    rm_id = subscribed.attachment.rm_id
                    place = self._managers.place_for(rm_id)
                    place.callbacks.take_over(stream)
                    await place.runner.attach(stream, subscribed)
                elif request.HasField("subscription"):
                    raise BadSubscription("a second subscription; open another stream to change what is asked")
                await self._handle_answer(place, stream, request, rm_id)
        except ShuttingDown:
            return  # The server ends all streams in its own order.
        except ServiceError as refusal:
            error = refusal
        except Exception as failure:  # noqa: BLE001 - a reader that dies silently leaves a client waiting for ever
            error = failure
        if place is None:
            stream.board.end_stream(stream, error)
        else:
            with suppress(ShuttingDown):  # The code that stopped that task ends all streams in its own order.
                await place.runner.detach(stream, error)

    def _read_subscription(self, request: pb.AttachRequest) -> Subscription:
        if not request.HasField("subscription"):
            raise BadSubscription("the first message of a callback stream must subscribe")
        return decode_subscription(request.subscription, self._timeout_ms)

    async def _handle_answer(self, place: Place, stream: CallbackStream, request: pb.AttachRequest, rm_id: str) -> None:
        if request.HasField("state_dump"):
            dumped = request.state_dump
            place.callbacks.state_dumped(dumped.question_id, dumped.json, dumped.error)
        for number, command in enumerate(answer_commands(request, rm_id, self._clock.ahead_s * SECOND_NS)):
            if number:
                await asyncio.sleep(0)  # A long request is read piece by piece, so that other tasks get their turn.
            self._metrics.answers_received += (
                len(command.predicates) + len(command.preemption_predicates) + len(command.notices)
            )
            await place.runner.answer(stream, command)

    async def _write(self, stream: CallbackStream, context: Context) -> None:
        """Sends what there is for *stream* until it ends."""
        while True:
            outgoing = stream.board.take_message(stream)
            if outgoing is not None:
                assert stream.subscription is not None
                await context.write(encode(outgoing, stream.subscription.attachment))
                self._metrics.messages_sent += 1
            elif stream.ending:
                return
            else:
                await stream.wait_for_news()
