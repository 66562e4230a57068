"""Reads the requests of all calls, and ends the calls: bytes in, bytes or a status out.

Requests are parsed here and not by gRPC, because gRPC answers bytes that are not a message with UNKNOWN and the text of
a Python exception.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from traceback import clear_frames
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.request_lengths import check_lengths
from kornel.core.service.connections.callers import PEER, host_of
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.streams.resuming import RESUMPTION, read_resumption
from kornel.core.service.streams.sessions import SESSION, read_session
from kornel.core.service.wire.status_codes import MalformedMessage, status_of

# The type stubs parametrise a context by request and response; in this module, both are bytes.
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Requests: TypeAlias = AsyncIterator[bytes]
Metadata: TypeAlias = tuple[tuple[str, str], ...]

MARKS: Final[ContextVar[Metadata]] = ContextVar("marks", default=())
"""The metadata to send before the response of the call that is being served."""

UNTIE_S: Final = 0.1
"""The time after which nothing of an ended call is kept; by then all handlers have seen its error."""

RequestT = TypeVar("RequestT", bound=Message)

_NEW_WORD: Final = re.compile(r"(?=[A-Z])")


def parse(message_type: type[RequestT], raw: bytes) -> RequestT:
    """Returns *raw* as *message_type*. Unknown fields are ignored.

    Raises :class:`MalformedMessage`, and :class:`kornel.core.service.wire.status_codes.InvalidRequest` for a name
    that is too long.
    """
    try:
        message = message_type.FromString(raw)
    except DecodeError as error:
        raise MalformedMessage(f"not a {message_type.DESCRIPTOR.full_name} message") from error
    check_lengths(message)
    return message


async def end_call(context: Context, error: Exception, logger: FilteringBoundLogger) -> None:
    """End the call with the status of *error*. Always raises an error itself."""
    if isinstance(error, grpc.aio.InternalError):
        # The client is gone, so no status is needed; gRPC would log any other exception as an error.
        raise asyncio.CancelledError from error
    status = status_of(error)
    if status.code is grpc.StatusCode.INTERNAL:
        logger.error("call failed", exc_info=error)
    clear_frames(error.__traceback__)
    try:
        await context.abort(status.code, status.details, status.trailing)
    except grpc.aio.AbortError as aborted:
        asyncio.get_running_loop().call_later(UNTIE_S, _untie_call, aborted)
        raise


def _untie_call(aborted: grpc.aio.AbortError) -> None:
    """Unties the references among the call, the error that ended it and the frames that the error passed, so that all
    are freed at once.

    gRPC keeps the error with the call, and the error's frames hold the call and with it a request that may be huge.
    Otherwise only the cycle collector would free them, some time later.
    """
    aborted.__traceback__ = None
    aborted.__context__ = None


class Encoded(NamedTuple):
    """A response that is encoded already."""

    raw: bytes

    def SerializeToString(self) -> bytes:
        """Returns the bytes as they are."""
        return self.raw


def unary(
    request_type: type[RequestT],
    answer: Callable[[RequestT], Awaitable[Message | Encoded]],
    logger: FilteringBoundLogger,
) -> Handler:
    """Returns a call with one request and one response, given by *answer*; what it raises becomes the status. The
    metadata that *answer* leaves in :data:`MARKS` come before the response."""

    async def handle(raw: bytes, context: Context) -> bytes:
        PEER.set(host_of(context.peer()))
        SESSION.set(read_session(context))
        try:
            response = (await answer(parse(request_type, raw))).SerializeToString()
            if marks := MARKS.get():
                await context.send_initial_metadata(marks)
            return response
        except Exception as error:
            del raw  # The frame exists a moment longer than the call.
            await end_call(context, error, logger)
            raise

    return grpc.unary_unary_rpc_method_handler(handle)


class Service:
    """A service of gRPC. ``described``: its description in the ``.proto`` file."""

    described: ClassVar[ServiceDescriptor]

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name. One with a single request and a single response is answered by the method
        that is called like it, ``_get_node`` for ``GetNode``; a class adds those with streams."""
        return {
            each.name: unary(
                GetMessageClass(each.input_type), getattr(self, _NEW_WORD.sub("_", each.name).lower()), self._logger
            )
            for each in self.described.methods
            if not each.client_streaming and not each.server_streaming
        }


def bidirectional(serve: Callable[[Requests, Context], Awaitable[None]], metrics: ServiceMetrics) -> Handler:
    """Returns a call with a stream of requests and one of responses, which *serve* reads and writes as bytes. It counts
    as live until its status has been sent."""

    async def handle(requests: Requests, context: Context) -> None:
        SESSION.set(read_session(context))
        RESUMPTION.set(read_resumption(context))
        metrics.live_streams += 1
        try:
            await serve(requests, context)
        finally:
            metrics.live_streams -= 1
            await close_requests(requests)

    return grpc.stream_stream_rpc_method_handler(handle)


async def close_requests(requests: Requests) -> None:
    """Free the last request that was read.

    gRPC's iterator holds itself and that request, so an iterator that is left before its end waits for the cycle
    collector.
    """
    close = getattr(aiter(requests), "aclose", None)
    if close is not None:
        await close()


def server_stream(serve: Callable[[bytes, Context], Awaitable[None]]) -> Handler:
    """Returns a call with one request and a stream of responses, which *serve* writes as bytes."""
    return grpc.unary_stream_rpc_method_handler(serve)
