"""Assembles the REST interface: an ASGI application over the services of one core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from kornel.core.rest.access import NO_PROOFS, OPEN_DOOR, Door, Proofs
from kornel.core.rest.browser_rules import ANYTHING, BrowserRules
from kornel.core.rest.event_streams import EventStreams
from kornel.core.rest.handlers.applications import ApplicationHandlers
from kornel.core.rest.handlers.calls import CallHandlers
from kornel.core.rest.handlers.cluster import ClusterHandlers
from kornel.core.rest.handlers.configuration import ConfigurationHandlers
from kornel.core.rest.handlers.documentation import DocumentationHandlers
from kornel.core.rest.handlers.dump import DumpHandlers
from kornel.core.rest.handlers.events import EventHandlers
from kornel.core.rest.handlers.explanations import ExplanationHandlers
from kornel.core.rest.handlers.findings import FindingHandlers
from kornel.core.rest.handlers.health import HealthHandlers
from kornel.core.rest.handlers.history import HistoryHandlers
from kornel.core.rest.handlers.metrics import Exposition, MetricsHandlers
from kornel.core.rest.handlers.nodes import NodeHandlers
from kornel.core.rest.handlers.queues import QueueHandlers
from kornel.core.rest.handlers.refusals import RefusalHandlers
from kornel.core.rest.handlers.users import UserHandlers
from kornel.core.rest.history import UsageHistory
from kornel.core.rest.long_answers import LongAnswers
from kornel.core.rest.page_links import NO_LINKS, PageLinks
from kornel.core.rest.routes import Handlers, all_routes
from kornel.core.rest.routing import Router, Table
from kornel.core.service.calls.rpc import Handler
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.refusals import RefusalKeeper
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Managers


@dataclass(frozen=True, slots=True)
class Services:
    """The services behind the interface. ``ready`` tells whether the core accepts requests. ``log_level`` returns the
    level in force.

    ``calls``: the handlers of gRPC by service and method. ``local``: HTTP is served to this machine alone.
    """

    managers: Managers
    events: EventJournal
    history: UsageHistory
    health: HealthKeeper
    refusals: RefusalKeeper
    metrics: Exposition
    ready: Callable[[], bool]
    log_level: Callable[[], str]
    calls: Callable[[], Mapping[str, Handler]]
    local: bool


class RestApplication:
    """The REST interface as an ASGI application. ``app`` answers requests; :meth:`close` ends answers that would never
    end by themselves.

    *page* answers requests without a route, such as ``/``; absent: 404. *door* decides which callers may do what;
    *proofs* says for the documentation what callers have to prove. *rules*: what pages in browsers may do. *links*:
    what the page links to.
    """

    def __init__(
        self,
        services: Services,
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        version: str,
        door: Door = OPEN_DOOR,
        proofs: Proofs = NO_PROOFS,
        rules: BrowserRules = ANYTHING,
        page: ASGIApp | None = None,
        links: PageLinks = NO_LINKS,
    ) -> None:
        managers = services.managers
        reader = managers.reader
        self._streams = EventStreams(services.events, clock=clock, logger=logger)
        cluster = ClusterHandlers(reader, clock.now_ns())
        configuration = ConfigurationHandlers(managers)
        history = HistoryHandlers(services.history)
        documentation = DocumentationHandlers(version, proofs, links)
        long_answers = LongAnswers()
        routes = all_routes(
            Handlers(
                cluster=cluster,
                queues=QueueHandlers(reader),
                nodes=NodeHandlers(reader),
                applications=ApplicationHandlers(reader),
                users=UserHandlers(reader),
                events=EventHandlers(services.events, self._streams),
                explanations=ExplanationHandlers(managers, services.events),
                configuration=configuration,
                history=history,
                health=HealthHandlers(services.health, services.ready),
                refusals=RefusalHandlers(services.refusals, reader),
                dump=DumpHandlers(
                    managers,
                    services.events.places,
                    cluster,
                    configuration,
                    history,
                    clock=clock,
                    log_level=services.log_level,
                    long_answers=long_answers,
                ),
                metrics=MetricsHandlers(services.metrics),
                documentation=documentation,
                findings=FindingHandlers(reader),
                calls=CallHandlers(services.calls, managers, long_answers, local=services.local),
            )
        )
        documentation.describe(routes)
        self.app: ASGIApp = Router(
            Table(routes), logger=logger, door=door, rules=rules, otherwise=page, long_answers=long_answers
        )

    def close(self) -> None:
        """Ends all streams, because the core is stopping."""
        self._streams.close()
