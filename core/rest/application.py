"""Assembles the REST interface: an ASGI application over the services of one core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from kornel.core.rest.documents.history import UsageHistory
from kornel.core.rest.documents.page_links import NO_LINKS, PageLinks
from kornel.core.rest.handlers import debug, health
from kornel.core.rest.handlers.applications import ApplicationHandlers
from kornel.core.rest.handlers.calls import CallHandlers
from kornel.core.rest.handlers.cluster import ClusterHandlers
from kornel.core.rest.handlers.configuration import ConfigurationHandlers
from kornel.core.rest.handlers.documentation import DocumentationHandlers
from kornel.core.rest.handlers.dump import DumpHandlers
from kornel.core.rest.handlers.events import EventHandlers
from kornel.core.rest.handlers.history import HistoryHandlers
from kornel.core.rest.handlers.metrics import Exposition, MetricsHandlers
from kornel.core.rest.handlers.nodes import NodeHandlers
from kornel.core.rest.handlers.queues import QueueHandlers
from kornel.core.rest.handlers.users import UserHandlers
from kornel.core.rest.http.access import NO_PROOFS, Door, Proofs
from kornel.core.rest.http.browser_rules import ANYTHING, BrowserRules
from kornel.core.rest.serving.event_streams import EventStreams
from kornel.core.rest.serving.routing import Router
from kornel.core.rest.serving.rows import Row, rows_of
from kornel.core.service.calls.long_answers import LongAnswers
from kornel.core.service.calls.rpc import Handler
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Managers
from kornel.core.service.managers.standing import Standing

OWNERS: Final = (
    ClusterHandlers, HistoryHandlers, QueueHandlers, NodeHandlers, ApplicationHandlers,
    UserHandlers, EventHandlers, ConfigurationHandlers, CallHandlers, health.HealthHandlers, DocumentationHandlers,
    MetricsHandlers, DumpHandlers, health, debug,
)  # fmt: skip
"""The classes and modules whose functions serve rows, in the order of the documentation."""


def all_rows() -> list[Row]:
    """Returns all rows of the interface."""
    return [row for row, _ in rows_of(OWNERS)]


@dataclass(frozen=True, slots=True)
class Services:
    """The services behind the interface, and how it is served. ``ready`` tells whether the core accepts requests.
    ``log_level`` returns the level in force.

    ``calls``: the handlers of gRPC by service and method. ``local``: HTTP is served to this machine alone. ``page``
    answers requests without a row, such as ``/``; absent: 404. ``door`` decides which callers may do what, and
    ``proofs`` says for the documentation what callers have to prove. ``rules``: what pages in browsers may do.
    ``links``: what the page links to. ``standing``: that of a core which shares its journal.
    """

    managers: Managers
    events: EventJournal
    history: UsageHistory
    health: HealthKeeper
    metrics: Exposition
    ready: Callable[[], bool]
    log_level: Callable[[], str]
    calls: Callable[[], Mapping[str, Handler]]
    local: bool
    clock: Clock
    logger: FilteringBoundLogger
    version: str
    standing: Standing | None = None
    door: Door | None = None
    proofs: Proofs = NO_PROOFS
    rules: BrowserRules = ANYTHING
    page: ASGIApp | None = None
    links: PageLinks = NO_LINKS


class RestApplication:
    """The REST interface as an ASGI application. ``app`` answers requests; :meth:`close` ends answers that would never
    end by themselves."""

    def __init__(self, services: Services) -> None:
        managers, clock, logger = services.managers, services.clock, services.logger
        reader = managers.reader
        self._streams = EventStreams(services.events, clock=clock, logger=logger)
        cluster = ClusterHandlers(reader, clock.now_ns())
        configuration = ConfigurationHandlers(managers)
        history = HistoryHandlers(services.history)
        long_answers = LongAnswers()
        serving: dict[object, object] = {
            type(each): each
            for each in (
                cluster,
                configuration,
                history,
                QueueHandlers(reader),
                NodeHandlers(reader),
                ApplicationHandlers(reader),
                UserHandlers(reader),
                EventHandlers(services.events, self._streams),
                health.HealthHandlers(services.health, services.ready),
                DumpHandlers(
                    managers,
                    services.events.places,
                    cluster,
                    configuration,
                    history,
                    clock=clock,
                    log_level=services.log_level,
                    long_answers=long_answers,
                ),
                MetricsHandlers(services.metrics),
                DocumentationHandlers(all_rows(), services.version, services.proofs, services.links),
                CallHandlers(services.calls, managers, long_answers, local=services.local),
            )
        }
        self.app: ASGIApp = Router(
            rows_of(serving.get(owner, owner) for owner in OWNERS),
            logger=logger,
            door=services.door,
            rules=services.rules,
            otherwise=services.page,
            long_answers=long_answers,
            standing=services.standing,
        )

    def close(self) -> None:
        """Ends all streams, because the core is stopping."""
        self._streams.close()
