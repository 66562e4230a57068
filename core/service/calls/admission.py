"""Bounds the open calls, and decides when the request of a call is read.

gRPC reads the request of a unary call before it looks for a handler. So every call is served as a stream, which is the
same on the wire: the caller is admitted first, and the request of a refused call is never read. The interceptors within
get the handler that they expect.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Any, Final

import grpc
from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.rpc import Context, Handler, Requests, close_requests, end_call
from kornel.core.service.connections.limits import request_limit
from kornel.core.service.wire.status_codes import InvalidRequest, ServiceError, TooLarge, TooMany

_ALWAYS_ADMITTED: Final = "/grpc.health.v1.Health/"
"""Probes learn the health of the core however many calls are open."""

Serve = Callable[[Requests, Context], Awaitable[None]]


class Refusal(StrEnum):
    """The reasons to refuse a call, which are labels of the metric."""

    CALLS = "calls"
    """Too many calls are open."""
    UNAUTHENTICATED = "unauthenticated"
    NOT_PERMITTED = "not-permitted"
    TOO_MUCH = "too-much"
    """The call asked too often, or its message was too long or had too many entries."""
    INVALID = "invalid"


_REFUSED_WITH: Final = {
    grpc.StatusCode.UNAUTHENTICATED: Refusal.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: Refusal.NOT_PERMITTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Refusal.TOO_MUCH,
    grpc.StatusCode.INVALID_ARGUMENT: Refusal.INVALID,
}


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """The outermost interceptor, which counts the open calls and those that are refused."""

    def __init__(self, most: int, logger: FilteringBoundLogger, on_call: Callable[[], None] = lambda: None) -> None:
        """Makes an interceptor that admits at most *most* calls at once, and calls *on_call* as each call begins."""
        self._most = most
        self._on_call = on_call
        self._logger = logger
        self.open = 0
        """The number of open calls."""
        self.refused: Counter[Refusal] = Counter()
        """The numbers of refused calls, by reason."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Returns the handler of the call, which reads requests late; ``None``: there is none."""
        self._on_call()
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        serve = read_late(handler, method, self._logger)

        async def handle(requests: Requests, context: Context) -> None:
            if self.open >= self._most and not method.startswith(_ALWAYS_ADMITTED):
                self.refused[Refusal.CALLS] += 1
                await end_call(context, TooMany(f"{self._most} calls are open"), self._logger)
            self.open += 1
            try:
                await serve(requests, context)
            except grpc.aio.InternalError as gone:
                raise asyncio.CancelledError from gone
            except (grpc.aio.AbortError, ServiceError):
                refusal = _REFUSED_WITH.get(context.code())
                if refusal is not None:
                    self.refused[refusal] += 1
                raise
            finally:
                self.open -= 1

        return grpc.stream_stream_rpc_method_handler(handle)


def read_late(handler: Any, method: str, logger: FilteringBoundLogger) -> Serve:
    """Returns *handler* of *method* as a stream of bytes, whatever its kind, which reads a request only when it is
    served."""
    limit = request_limit(method)
    deserialize = handler.request_deserializer or _as_it_is
    serialize = handler.response_serializer or _as_it_is
    if handler.stream_stream is not None:
        if handler.request_deserializer is None and handler.response_serializer is None:
            return handler.stream_stream  # type: ignore[no-any-return]

        async def stream(requests: Requests, context: Context) -> None:
            serving = handler.stream_stream(_deserialize_with(requests, deserialize, limit), context)
            try:
                if hasattr(serving, "__aiter__"):
                    async for response in serving:
                        await context.write(serialize(response))
                else:
                    await serving
            except ServiceError as error:
                # The services of gRPC itself know nothing of our errors.
                await end_call(context, error, logger)
                raise

        return stream

    async def one(requests: Requests, context: Context) -> None:
        try:
            request = deserialize(await _only_request(requests, limit))
        except ServiceError as error:
            await end_call(context, error, logger)
            raise
        if handler.unary_unary is not None:
            await context.write(serialize(await handler.unary_unary(request, context)))
            return
        serving = handler.unary_stream(request, context)
        if not hasattr(serving, "__aiter__"):
            await serving
            return
        async for response in serving:
            await context.write(serialize(response))

    return one


async def _only_request(requests: Requests, limit: int) -> bytes:
    """Returns the request of a call that has one."""
    try:
        async for raw in requests:
            check_size(raw, limit)
            return raw
    finally:
        await close_requests(requests)
    raise InvalidRequest("the call has no request")


async def _deserialize_with(requests: Requests, deserialize: Callable[[bytes], Any], limit: int) -> AsyncIterator[Any]:
    try:
        async for raw in requests:
            check_size(raw, limit)
            yield deserialize(raw)
    finally:
        await close_requests(requests)


def check_size(raw: bytes, limit: int) -> None:
    """Raises :class:`TooLarge` if *raw* is longer than *limit*."""
    if len(raw) > limit:
        raise TooLarge(f"the request has {len(raw):,} bytes; this method takes at most {limit:,}")


def _as_it_is(value: Any) -> Any:
    return value
