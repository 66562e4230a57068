"""Guards gRPC: checks every call of every service, including those of gRPC's own packages.

A grant by which a call was admitted may expire while the call is open. Then a stream ends UNAVAILABLE, so that clients
connect again with a new proof, or PERMISSION_DENIED if a new proof would not help.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from structlog.typing import FilteringBoundLogger

from kornel.core.security.guard import Guard, Pass
from kornel.core.security.methods import METHODS, Demand
from kornel.core.security.tls import der_of
from kornel.core.service.calls.admission import check_size, read_late
from kornel.core.service.calls.rpc import Handler, Requests, close_requests, end_call
from kornel.core.service.connections.callers import CALLER, host_of
from kornel.core.service.connections.limits import request_limit
from kornel.core.service.wire.status_codes import NotPermitted, ServiceError

_NOT_LISTED: Final = Demand(lambda caller, _: _refuse_call())


class GuardInterceptor(grpc.aio.ServerInterceptor):
    """Admits calls by the rules in :data:`kornel.core.security.methods.METHODS`."""

    def __init__(self, guard: Guard, logger: FilteringBoundLogger) -> None:
        self._guard = guard
        self._logger = logger

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Returns the handler of the call, guarded; ``None``: there is none."""
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None:
            return None
        demand = METHODS.get(handler_call_details.method, _NOT_LISTED)
        return handler if demand.public else self._guard_handler(handler, handler_call_details.method, demand)

    def _guard_handler(self, handler: Any, method: str, demand: Demand) -> Handler:
        """Returns *handler* as a stream, so that nothing of a call is read before its caller was admitted."""
        serve = read_late(handler, method, self._logger)
        limit = request_limit(method)
        short = handler.unary_unary is not None

        async def handle(requests: Requests, context: Any) -> None:
            async with self._admit_call(context) as admitted:
                await self._check_before(demand, admitted, context)
                serving = serve(self._check_requests(requests, admitted, demand, limit), context)
                if short:
                    await serving
                else:
                    await self._while_good(admitted, serving, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    @contextlib.asynccontextmanager
    async def _admit_call(self, context: Any) -> AsyncIterator[Pass]:
        try:
            peer = context.peer()
            host = host_of(peer)
            # All callers of a unix socket have the same name of a peer.
            connection = peer if peer.startswith(("ipv4:", "ipv6:")) else ""
            admitted = await self._guard.admit_call(
                _find_authorization(context), _certificate(context), host, connection
            )
        except ServiceError as error:
            await end_call(context, error, self._logger)
            raise
        token = CALLER.set(admitted)
        try:
            yield admitted
        finally:
            CALLER.reset(token)
            self._guard.end_call(admitted)

    async def _check_before(self, demand: Demand, admitted: Pass, context: Any) -> None:
        """Checks the caller as far as possible before the first request is read."""
        try:
            demand.met_before(admitted)
        except ServiceError as error:
            self._logger.info("call refused", caller=admitted.name, cause=str(error))
            await end_call(context, error, self._logger)

    async def _check_requests(self, requests: Requests, admitted: Pass, demand: Demand, limit: int) -> Requests:
        """Yields *requests* after checking the first one. An error ends the call like an error of the service.

        *limit*: the most bytes of a request, which is checked before any of the first one is parsed.
        """
        first = True
        try:
            async for request in requests:
                if first and demand.request is not None:
                    try:
                        check_size(request, limit)
                        await demand.check_first(admitted, request)
                    except ServiceError as error:
                        self._logger.info("call refused", caller=admitted.name, cause=str(error))
                        raise
                    first = False
                yield request
        finally:
            await close_requests(requests)

    async def _while_good(self, admitted: Pass, serving: Any, context: Any) -> None:
        """Runs *serving* until it ends or is no longer allowed. Responses may be yielded by it or written to the
        context."""
        work = asyncio.ensure_future(serving)
        ended = asyncio.ensure_future(admitted.ended.wait())
        try:
            await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
                return
        finally:
            ended.cancel()
            work.cancel()
            await asyncio.gather(work, ended, return_exceptions=True)
        assert admitted.reason is not None
        self._logger.info("call ended", caller=admitted.name, cause=str(admitted.reason))
        await end_call(context, admitted.reason, self._logger)


def _refuse_call() -> None:
    raise NotPermitted("this method is served to nobody here")


def _find_authorization(context: Any) -> str | None:
    found = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    if not found:
        return None
    # With two proofs, the second one may not come from the caller.
    return found[0] if len(found) == 1 else ""


def _certificate(context: Any) -> bytes | None:
    shown = context.auth_context().get("x509_pem_cert")
    return der_of(shown[0]) if shown else None
