"""``kornel.v1.ManagerService``: the end of what ``RegisterResourceManager`` began."""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import UnregisterManager
from kornel.core.service.callers import principal
from kornel.core.service.rpc import Handler, unary
from kornel.core.service.runner import PartitionRunner
from kornel.v1 import manager_pb2 as pb


class ManagerService:
    """Takes a resource manager away, so that another one may register. ``on_unregistered`` hears in words by whom."""

    def __init__(
        self,
        runner: PartitionRunner,
        *,
        logger: FilteringBoundLogger,
        on_unregistered: Callable[[str], None] = lambda said: None,
    ) -> None:
        self._on_unregistered = on_unregistered
        self._runner = runner
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {"UnregisterResourceManager": unary(pb.UnregisterResourceManagerRequest, self._unregister, self._logger)}

    async def _unregister(self, request: pb.UnregisterResourceManagerRequest) -> pb.UnregisterResourceManagerResponse:
        await self._runner.call(UnregisterManager(request.rm_id))
        by = principal()
        self._logger.info("resource manager unregistered", rm_id=request.rm_id, by=by)
        self._on_unregistered(f"resource manager {request.rm_id} was unregistered by {by}")
        return pb.UnregisterResourceManagerResponse()
