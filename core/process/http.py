"""Serves HTTP: the REST interface of a core's services, on an address of its own."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.application_states import AppState
from kornel.core.rest.access import NO_PROOFS, OPEN_DOOR, Door, Proofs
from kornel.core.rest.application import RestApplication, Services
from kornel.core.rest.browser_rules import ANYTHING, BrowserRules
from kornel.core.rest.handlers.metrics import Exposition
from kornel.core.rest.history import UsageHistory
from kornel.core.rest.page_links import NO_LINKS, PageLinks
from kornel.core.rest.server import MOST_CONNECTIONS, HttpServer
from kornel.core.rest.standing_header import StandingHeader
from kornel.core.service.calls.rpc import Handler
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.refusals import RefusalKeeper
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Managers
from kornel.core.service.managers.standing import Standing
from kornel.core.telling.core_reader import CoreReader
from kornel.core.web.page import Page


class HttpFront:
    """The HTTP server of a core. ``address``: where it listens, once :meth:`listen` was called."""

    def __init__(
        self,
        address: str,
        *,
        managers: Managers,
        events: EventJournal,
        history: UsageHistory,
        health: HealthKeeper,
        refusals: RefusalKeeper,
        ready: Callable[[], bool],
        standing: Standing,
        log_level: Callable[[], str],
        clock: Clock,
        logger: FilteringBoundLogger,
        version: str,
        metrics: Exposition,
        door: Door = OPEN_DOOR,
        proofs: Proofs = NO_PROOFS,
        rules: BrowserRules = ANYTHING,
        tls: Callable[[], ssl.SSLContext] | None = None,
        connections: int = MOST_CONNECTIONS,
        links: PageLinks = NO_LINKS,
        calls: Callable[[], Mapping[str, Handler]],
        local: bool,
    ) -> None:
        """Prepares the server for HTTP. *tls* absent: plain HTTP. *connections*: the most connections at a time.

        *calls*: the handlers of gRPC by service and method. *local*: the address is reached from this machine only.
        """
        services = Services(
            managers=managers,
            events=events,
            history=history,
            health=health,
            refusals=refusals,
            metrics=metrics,
            ready=ready,
            log_level=log_level,
            calls=calls,
            local=local,
        )
        rest = RestApplication(
            services,
            clock=clock,
            logger=logger,
            version=version,
            door=door,
            proofs=proofs,
            rules=rules,
            page=Page(),
            links=links,
        )
        app = StandingHeader(rest.app, standing) if standing.shared else rest.app
        self._server = HttpServer(app, address, logger=logger, tls=tls, on_stop=rest.close, connections=connections)

    @property
    def address(self) -> str:
        """The address, once the server has started."""
        return self._server.address

    def listen(self) -> None:
        """Open the address. Raises :class:`kornel.core.rest.server.RestAddressUnavailable`."""
        self._server.listen()

    async def start(self) -> None:
        """Answer requests."""
        await self._server.start()

    async def stop(self) -> None:
        """Wait a while for requests under way to end, then close."""
        await self._server.stop()


def count_running(reader: CoreReader) -> tuple[int, int]:
    """Returns how many applications run now, and how many allocations there are, in all partitions."""
    found = [views.partition() for views in reader.partitions()]
    return sum(each.applications.get(AppState.RUNNING, 0) for each in found), sum(each.allocations for each in found)
