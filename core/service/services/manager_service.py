"""Serves ``kornel.v1.ManagerService``, which continues and ends what ``RegisterResourceManager`` began."""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.rpc import Service
from kornel.core.service.connections.callers import principal
from kornel.core.service.managers.managers import Managers, Place
from kornel.core.service.streams.resuming import Kind
from kornel.v1 import manager_pb2 as pb


class ManagerService(Service):
    """Tells how many entries a manager and the core have received, and unregisters a manager with everything it has.
    ``on_unregistered`` gets a sentence about who did it."""

    described = pb.DESCRIPTOR.services_by_name["ManagerService"]

    def __init__(
        self,
        managers: Managers,
        *,
        logger: FilteringBoundLogger,
        on_unregistered: Callable[[Place, str], None] = lambda place, said: None,
    ) -> None:
        super().__init__(logger)
        self._on_unregistered = on_unregistered
        self._managers = managers

    async def _acknowledge(self, request: pb.AcknowledgeRequest) -> pb.AcknowledgeResponse:
        received = request.received
        counts = {
            Kind.NODE: received.nodes,
            Kind.APPLICATION: received.applications,
            Kind.ALLOCATION: received.allocations,
        }
        runner = self._managers.place_for(request.rm_id).runner
        applied = await runner.acknowledge(request.rm_id, request.epoch, counts)
        return pb.AcknowledgeResponse(
            applied=pb.StreamCounts(
                nodes=applied[Kind.NODE],
                applications=applied[Kind.APPLICATION],
                allocations=applied[Kind.ALLOCATION],
            )
        )

    async def _unregister_resource_manager(
        self, request: pb.UnregisterResourceManagerRequest
    ) -> pb.UnregisterResourceManagerResponse:
        place = await self._managers.unregister(request.rm_id)
        by = principal()
        self._logger.info("resource manager unregistered", rm_id=request.rm_id, by=by)
        self._on_unregistered(place, f"resource manager {request.rm_id} was unregistered by {by}")
        return pb.UnregisterResourceManagerResponse()
