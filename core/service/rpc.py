"""How every call reads its request, and how it ends: bytes in, bytes or a status out.

Requests are parsed here and not by gRPC, because gRPC answers bytes that are no message with UNKNOWN and a Python
exception text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from structlog.typing import FilteringBoundLogger

from core.service.status_codes import MalformedMessage, status_of

# The stubs parametrise a context by request and response; ours are bytes on both sides.
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Requests: TypeAlias = AsyncIterator[bytes]

RequestT = TypeVar("RequestT", bound=Message)


def parse(message_type: type[RequestT], raw: bytes) -> RequestT:
    """*raw* as *message_type*. Unknown fields are ignored. Raises :class:`MalformedMessage`."""
    try:
        return message_type.FromString(raw)
    except DecodeError as error:
        raise MalformedMessage(f"not a {message_type.DESCRIPTOR.full_name} message") from error


async def end(context: Context, error: Exception, logger: FilteringBoundLogger) -> None:
    """End the call with the status of *error*. Never returns."""
    status = status_of(error)
    if status.code is grpc.StatusCode.INTERNAL:
        logger.error("call failed", exc_info=error)
    await context.abort(status.code, status.details, status.trailing)


def unary(
    request_type: type[RequestT],
    answer: Callable[[RequestT], Awaitable[Message]],
    logger: FilteringBoundLogger,
) -> Handler:
    """A call with one request and one response, given by *answer*; what it raises becomes the status."""

    async def handle(raw: bytes, context: Context) -> bytes:
        try:
            return (await answer(parse(request_type, raw))).SerializeToString()
        except Exception as error:
            await end(context, error, logger)
            raise

    return grpc.unary_unary_rpc_method_handler(handle)


def bidirectional(serve: Callable[[Requests, Context], Awaitable[None]]) -> Handler:
    """A call with a stream of requests and one of responses, which *serve* reads and writes as bytes."""
    return grpc.stream_stream_rpc_method_handler(serve)


def server_stream(serve: Callable[[bytes, Context], Awaitable[None]]) -> Handler:
    """A call with one request and a stream of responses, which *serve* writes as bytes."""
    return grpc.unary_stream_rpc_method_handler(serve)
