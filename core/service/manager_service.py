"""``kornel.v1.ManagerService``: the end of what ``RegisterResourceManager`` began."""

from __future__ import annotations

from kornel.v1 import manager_pb2 as pb
from structlog.typing import FilteringBoundLogger

from core.domain.commands import UnregisterManager
from core.service.rpc import Handler, unary
from core.service.runner import PartitionRunner


class ManagerService:
    """Takes a resource manager away, so that another one may register."""

    def __init__(self, runner: PartitionRunner, *, logger: FilteringBoundLogger) -> None:
        self._runner = runner
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """The calls by method name."""
        return {"UnregisterResourceManager": unary(pb.UnregisterResourceManagerRequest, self._unregister, self._logger)}

    async def _unregister(self, request: pb.UnregisterResourceManagerRequest) -> pb.UnregisterResourceManagerResponse:
        await self._runner.call(UnregisterManager(request.rm_id))
        self._logger.info("resource manager unregistered", rm_id=request.rm_id)
        return pb.UnregisterResourceManagerResponse()
