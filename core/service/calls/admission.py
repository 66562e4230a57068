"""Admits calls before anything else sees them: bounds how many are open, and when their requests are read.

gRPC reads the request of a unary call before it looks for a handler. So every call is served as a stream, which is the
same on the wire: the caller is admitted first, and the request of a refused call is never read. The interceptors within
get the handler that they expect.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

import grpc
from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.rpc import Context, Handler, Requests, close_requests, end_call
from kornel.core.service.connections.addresses import address_block
from kornel.core.service.connections.callers import host_of
from kornel.core.service.connections.connections import LINK, ConnectionKeeper, Link
from kornel.core.service.connections.limits import request_limit
from kornel.core.service.machine.own_sockets import host_and_port
from kornel.core.service.wire.status_codes import InvalidRequest, ServiceError, TooLarge, TooMany

LONGEST_HEADERS: Final = 32 * 1024
"""The most bytes of the headers of one call, twice as many as gRPC allows by default: enough for a token and what
proxies add."""
MOST_HEADERS: Final = 256
_LONGEST_ENTRY: Final = 4_096
"""The most bytes of a header to which a client can refer again by a single byte."""
_COLLECTED_BYTES: Final = 1 << 20

_SHARE: Final = 4
"""The calls that every connection may have, however many connections there are."""

SILENT_S: Final = 1.0
"""The time for which a call may send nothing before it may be closed to make room for others."""

MISTAKE_BYTES: Final = 4 << 20
"""Up to this many bytes, a request that is too long still counts as handled, so that a client which sends such a
configuration keeps its connection."""

_NONE: Final[Counter[str]] = Counter()

Serve = Callable[[Requests, Context], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The most calls, including streams, that are open at once: in all, and from one address or block of IPv6
    addresses."""

    calls: int = 1_024
    host_calls: int = 384

    @classmethod
    def limits_for(cls, calls: int) -> CallLimits:
        """Returns limits for *calls* in all, with the default part of them for one address."""
        return cls(calls, max(1, calls * 3 // 8))


class Refusal(StrEnum):
    """The reasons to refuse a call, which are labels of the metric."""

    HEADERS = "headers"
    """The headers of the call are longer than the settings of the server allow."""
    CALLS = "calls"
    """Too many calls are open."""
    SILENT = "silent"
    """The call sent nothing, and was closed for another one."""
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


class _Silent(NamedTuple):
    host: str
    since_s: float
    link: Link


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """The outermost interceptor, which counts calls by their connections.

    If there are too many calls, a connection that has its share of them gets no further one. For any other connection,
    the oldest call that has sent nothing yet is closed, unless it belongs to a resource manager's connection, whose
    streams may be silent for hours. Every connection may have a few calls whatever the others do.
    """

    def __init__(
        self,
        limits: CallLimits,
        connections: ConnectionKeeper,
        logger: FilteringBoundLogger,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes an interceptor that calls *on_call* as each call begins."""
        self._limits = limits
        self._on_call = on_call
        self._connections = connections
        self._logger = logger
        self._hosts: dict[str, Counter[str]] = {}
        """The numbers of open calls of each address, by connection."""
        self._silent: OrderedDict[asyncio.Task[Any], _Silent] = OrderedDict()
        """The calls whose first request has not come, the oldest first."""
        self._mute: set[asyncio.Task[Any]] = set()
        """The calls that are to be closed to make room for others."""
        self.open = 0
        """The number of open calls."""
        self._turned_away_bytes = 0
        """The bytes of headers of calls that were refused since the cycle collector last ran."""
        self.refused: Counter[Refusal] = Counter()
        """The numbers of refused calls, by reason."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Returns the handler of the call, which reads requests late; ``None``: there is none."""
        self._on_call()
        size = _size_of(handler_call_details.invocation_metadata or ())
        if size > LONGEST_HEADERS:
            return grpc.stream_stream_rpc_method_handler(partial(self._turn_away, size))
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None:
            return None
        serve = read_late(handler, handler_call_details.method, self._logger)

        async def handle(requests: Requests, context: Context) -> None:
            host, peer = address_block(host_of(context.peer())), host_and_port(context.peer())
            task = asyncio.current_task()
            assert task is not None
            try:
                self._make_room(host, peer)
            except TooMany as refusal:
                self.refused[Refusal.CALLS] += 1
                await end_call(context, refusal, self._logger)
                raise
            self.open += 1
            peers = self._hosts.setdefault(host, Counter())
            peers[peer] += 1
            link = self._connections.begin_call(peer)
            self._silent[task] = _Silent(host, time.monotonic(), link)
            token = LINK.set(link)
            try:
                await serve(self._watch_requests(requests, task), context)
            except asyncio.CancelledError:
                if task not in self._mute:
                    raise
                self._mute.discard(task)
                task.uncancel()
                self.refused[Refusal.SILENT] += 1
                # gRPC itself would leave the call open for its client.
                await end_call(context, TooMany("the call sent nothing and was closed to admit another"), self._logger)
            except grpc.aio.InternalError as gone:
                raise asyncio.CancelledError from gone
            except (grpc.aio.AbortError, ServiceError):
                refusal_ = _REFUSED_WITH.get(context.code())
                if refusal_ is not None:
                    self.refused[refusal_] += 1
                raise
            finally:
                self._mute.discard(task)
                LINK.reset(token)
                self._connections.end_call(peer, link)
                self._silent.pop(task, None)
                self.open -= 1
                peers[peer] -= 1
                if not peers[peer]:
                    del peers[peer]
                if not peers and self._hosts.get(host) is peers:
                    del self._hosts[host]

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _turn_away(self, size: int, requests: Requests, context: Context) -> None:
        """End a call with more headers than the settings of the server allow.

        gRPC itself accepts them until the client has confirmed the server's settings, which every client does at once.
        """
        self.refused[Refusal.HEADERS] += 1
        self._connections.cut_connection(host_and_port(context.peer()))
        # gRPC's Python objects for a call's headers are in a reference cycle, so they pile up until the collector runs.
        self._turned_away_bytes += size
        if self._turned_away_bytes >= _COLLECTED_BYTES:
            self._turned_away_bytes = 0
            gc.collect(1)
        await end_call(context, TooLarge(f"headers of more than {LONGEST_HEADERS:,} bytes"), self._logger)

    async def _watch_requests(self, requests: Requests, task: asyncio.Task[Any]) -> Requests:
        try:
            async for raw in requests:
                self._silent.pop(task, None)
                yield raw
        finally:
            await close_requests(requests)

    def _make_room(self, host: str, peer: str) -> None:
        """Make room for one more call of *peer*, by closing another one if need be. Raises :class:`TooMany`."""
        limits, peers = self._limits, self._hosts.get(host, _NONE)
        full = self.open >= limits.calls
        if not full and peers.total() < limits.host_calls:
            return
        if peers[peer] < max(_SHARE, limits.host_calls // max(1, len(peers))):
            mute = self._find_silent("" if full else host)
            if mute is not None and time.monotonic() - self._silent[mute].since_s >= SILENT_S:
                del self._silent[mute]
                self._mute.add(mute)
                mute.cancel()
                return
            if peers[peer] < _SHARE:
                return
        raise TooMany(f"{limits.calls} calls are open, or {limits.host_calls} of this address")

    def _find_silent(self, host: str) -> asyncio.Task[Any] | None:
        """Returns the oldest silent call of *host*, or of any host if that is empty, that may be closed."""
        for task, call in self._silent.items():
            if host in ("", call.host) and not call.link.manager:
                return task
        return None


def _size_of(metadata: Sequence[tuple[str, str | bytes]]) -> int:
    """Returns the bytes of *metadata*; if it has too many entries, the most that they could have."""
    if len(metadata) > MOST_HEADERS:
        return len(metadata) * _LONGEST_ENTRY
    return sum(len(key) + len(value) for key, value in metadata)


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
            _take_request(raw, limit)
            return raw
    finally:
        await close_requests(requests)
    raise InvalidRequest("the call has no request")


async def _deserialize_with(requests: Requests, deserialize: Callable[[bytes], Any], limit: int) -> AsyncIterator[Any]:
    try:
        async for raw in requests:
            _take_request(raw, limit)
            yield deserialize(raw)
    finally:
        await close_requests(requests)


def _take_request(raw: bytes, limit: int) -> None:
    """Count *raw* as handled. Raises :class:`TooLarge` if it is longer than *limit*."""
    check_size(raw, limit)
    LINK.get().note_taken(len(raw))


def check_size(raw: bytes, limit: int) -> None:
    """Raises :class:`TooLarge` if *raw* is longer than *limit*, and counts it as handled then."""
    if len(raw) > limit:
        LINK.get().note_taken(min(len(raw), MISTAKE_BYTES))
        raise TooLarge(f"the request has {len(raw):,} bytes; this method takes at most {limit:,}")


def _as_it_is(value: Any) -> Any:
    return value
