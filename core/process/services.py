"""The gRPC services of a core: which there are, what they need, and which of them a core has that stands by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from structlog.typing import FilteringBoundLogger

from kornel.core.archive.absent_history import AbsentHistory
from kornel.core.service.calls.rpc import Handler, Service
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.refusals import RefusalKeeper
from kornel.core.service.machine.clock import Clock, ManualClock
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Managers
from kornel.core.service.managers.standing import Standing
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.services.admin_service import AdminService
from kornel.core.service.services.callback_service import CallbackService
from kornel.core.service.services.clock_service import TestClockService
from kornel.core.service.services.configuration_service import ConfigurationService
from kornel.core.service.services.event_service import EventService
from kornel.core.service.services.explain_service import ExplainService
from kornel.core.service.services.health_service import HealthService
from kornel.core.service.services.manager_service import ManagerService
from kornel.core.service.services.read_service import ReadService
from kornel.core.service.services.scheduler_service import SchedulerService
from kornel.core.service.services.status_service import StatusService

if TYPE_CHECKING:
    from kornel.core.archive.history_service import HistoryService

READING: Final = frozenset(
    each.described.full_name for each in (AbsentHistory, EventService, ExplainService, StatusService, ReadService)
)
"""The services of a core that stands by."""

Services = Mapping[str, Mapping[str, Handler]]
"""The handlers by service and method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The parts of a core that its services use. *moves_clock* tells whether callers may move the clock."""

    managers: Managers
    lookups: GroupLookups
    events: EventJournal
    history: HistoryService | AbsentHistory
    health: HealthKeeper
    refusals: RefusalKeeper
    standing: Standing
    clock: Clock
    metrics: ServiceMetrics
    logger: FilteringBoundLogger
    version: str
    callback_timeout_ns: int
    moves_clock: bool


def make_services(parts: ServiceParts) -> dict[str, Mapping[str, Handler]]:
    """Returns the services of a core, except the health service."""
    managers, clock, metrics, logger = parts.managers, parts.clock, parts.metrics, parts.logger
    services: list[Service] = [
        SchedulerService(
            managers, lookups=parts.lookups, metrics=metrics, logger=logger, clock=clock, standing=parts.standing
        ),
        ConfigurationService(managers, logger=logger),
        CallbackService(managers, clock=clock, metrics=metrics, logger=logger, timeout_ns=parts.callback_timeout_ns),
        StatusService(
            managers, metrics=metrics, logger=logger, clock=clock, version=parts.version, standing=parts.standing
        ),
        ExplainService(managers, lookups=parts.lookups, logger=logger),
        parts.history,
        EventService(parts.events, managers, clock=clock, logger=logger),
        ManagerService(managers, logger=logger, on_unregistered=lambda place, said: place.tell(said)),
        ReadService(managers, parts.health, parts.refusals, logger=logger),
        AdminService(managers, logger=logger),
    ]
    if parts.moves_clock:
        assert isinstance(clock, ManualClock), "only a clock that stands still can be moved"
        services.append(TestClockService(managers, clock, logger=logger))
    return {each.described.full_name: each.handlers() for each in services}


def health_handlers(health: HealthService) -> Services:
    """Returns the health service."""
    return {health_pb2.DESCRIPTOR.services_by_name["Health"].full_name: health.handlers()}


def name_calls(services: Services) -> dict[str, Handler]:
    """Returns the handlers by service and method, such as ``AdminService/DrainNode``."""
    return {
        f"{name.rpartition('.')[2]}/{method}": handler
        for name, handlers in services.items()
        for method, handler in handlers.items()
    }


def add_services(server: grpc.aio.Server, services: Services) -> None:
    """Makes *server* serve *services*, and describe them to clients."""
    for name, handlers in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, dict(handlers)),))
    reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), server)
