"""Serves ``grpc.health.v1.Health``: the health of each service, for every caller.

Every caller may ask, so memory does not grow with the number of callers. A change takes effect at once and waits for no
watcher. A watcher gets the present state once it has read the one before; one that does not read misses the states in
between and delays no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from grpc_health.v1 import health_pb2 as pb
from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.rpc import Context, Handler, end_call, parse, server_stream, unary
from kornel.core.service.connections.callers import address_block, host_of
from kornel.core.service.wire.status_codes import InvalidRequest, NotFound, TooMany

MOST_WATCHERS: Final = 256
"""The most watches of all callers together: each one is a call that stays open."""

MOST_OF_ONE_HOST: Final = 64

LONGEST_NAME: Final = 256
"""The most characters of a service's name. Names of unknown services may be watched, and are kept meanwhile."""

_NEWER: Final[Any] = pb
"""The methods that the type stubs do not know yet."""

_SERVING: Final = pb.HealthCheckResponse.SERVING
_NOT_SERVING: Final = pb.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = pb.HealthCheckResponse.SERVICE_UNKNOWN


class HealthService:
    """Serves the three calls, and keeps the status of each service."""

    def __init__(self, logger: FilteringBoundLogger, has_lapsed: Callable[[], bool] = lambda: False) -> None:
        """Makes the service. *has_lapsed* tells whether another core may lead, which need not be decided yet."""
        self._logger = logger
        self._has_lapsed = has_lapsed
        self._statuses: dict[str, Any] = {}
        self._leaving = False
        self._watchers: dict[asyncio.Event, None] = {}
        self._hosts: Counter[str] = Counter()

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return len(self._watchers)

    def set_serving(self, service: str, serving: bool) -> None:
        """Reports *service* as serving or not from now on; the empty name stands for the core as a whole."""
        self._statuses[service] = _SERVING if serving and not self._leaving else _NOT_SERVING
        self._wake_watchers()

    def stop_serving(self) -> None:
        """Report from now on that no service serves, whatever is set later."""
        self._leaving = True
        for service in self._statuses:
            self._statuses[service] = _NOT_SERVING
        self._wake_watchers()

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {
            "Check": unary(pb.HealthCheckRequest, self._check, self._logger),
            "List": unary(_NEWER.HealthListRequest, self._list_services, self._logger),
            "Watch": server_stream(self._watch),
        }

    async def _check(self, request: pb.HealthCheckRequest) -> pb.HealthCheckResponse:
        status = self._find_statuses().get(_checked_name(request))
        if status is None:
            raise NotFound("no such service")
        return pb.HealthCheckResponse(status=status)

    async def _list_services(self, request: Any) -> Any:
        answers = {name: pb.HealthCheckResponse(status=status) for name, status in self._find_statuses().items()}
        return _NEWER.HealthListResponse(statuses=answers)

    def _find_statuses(self) -> dict[str, Any]:
        return dict.fromkeys(self._statuses, _NOT_SERVING) if self._has_lapsed() else self._statuses

    async def _watch(self, raw: bytes, context: Context) -> None:
        try:
            service = _checked_name(parse(pb.HealthCheckRequest, raw))
            with self._add_watch(address_block(host_of(context.peer()))) as changed:
                await self._tell_changes(service, changed, context)
        except Exception as error:
            await end_call(context, error, self._logger)
            raise

    async def _tell_changes(self, service: str, changed: asyncio.Event, context: Context) -> None:
        told: Any = None
        while True:
            changed.clear()
            status = self._statuses.get(service, _UNKNOWN)
            if status == told:
                await changed.wait()
                continue
            await context.write(pb.HealthCheckResponse(status=status).SerializeToString())
            told = status

    @contextmanager
    def _add_watch(self, host: str) -> Iterator[asyncio.Event]:
        if len(self._watchers) >= MOST_WATCHERS or self._hosts[host] >= MOST_OF_ONE_HOST:
            raise TooMany(f"{MOST_WATCHERS} health watches are open, or {MOST_OF_ONE_HOST} of this address")
        changed = asyncio.Event()
        self._watchers[changed] = None
        self._hosts[host] += 1
        try:
            yield changed
        finally:
            del self._watchers[changed]
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]

    def _wake_watchers(self) -> None:
        for changed in self._watchers:
            changed.set()


def _checked_name(request: pb.HealthCheckRequest) -> str:
    if len(request.service) > LONGEST_NAME:
        raise InvalidRequest(f"the name of a service has at most {LONGEST_NAME} characters")
    return request.service
