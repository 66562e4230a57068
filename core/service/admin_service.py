"""``kornel.v1.AdminService``: what an administrator does to a running core."""

from __future__ import annotations

from kornel.v1 import admin_pb2 as pb
from structlog.typing import FilteringBoundLogger

from core.domain.commands import NodeAction, NodeSpec, UpdateNodes
from core.domain.partition_names import full_partition_name
from core.domain.views import NodeView
from core.service.rpc import Handler, unary
from core.service.runner import PartitionRunner
from core.service.status_codes import NothingRegistered, UnknownNode, UnknownPartition


class AdminService:
    """Takes nodes out of scheduling, and back."""

    def __init__(self, runner: PartitionRunner, *, logger: FilteringBoundLogger) -> None:
        self._runner = runner
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """The calls by method name."""
        return {
            "DrainNode": unary(pb.DrainNodeRequest, self._drain, self._logger),
            "UndrainNode": unary(pb.UndrainNodeRequest, self._undrain, self._logger),
        }

    async def _drain(self, request: pb.DrainNodeRequest) -> pb.DrainNodeResponse:
        before, now = await self._set(request.partition, request.node_id, NodeAction.DRAIN_NODE)
        return pb.DrainNodeResponse(
            changed=before.schedulable is not now.schedulable, allocation_count=len(now.allocations)
        )

    async def _undrain(self, request: pb.UndrainNodeRequest) -> pb.UndrainNodeResponse:
        before, now = await self._set(request.partition, request.node_id, NodeAction.DRAIN_TO_SCHEDULABLE)
        return pb.UndrainNodeResponse(changed=before.schedulable is not now.schedulable)

    async def _set(self, partition: str, node_id: str, action: NodeAction) -> tuple[NodeView, NodeView]:
        """The node before and after *action*."""
        rm_id = self._runner.rm_id
        if not rm_id:
            raise NothingRegistered("no resource manager is registered, so there are no nodes")
        before = self._node(partition, node_id)
        name = full_partition_name(rm_id, partition)
        await self._runner.call(UpdateNodes(rm_id, (NodeSpec(node_id, action, name),)))
        now = self._node(partition, node_id)
        self._logger.info("node set by an administrator", partition=name, node_id=node_id, schedulable=now.schedulable)
        return before, now

    def _node(self, partition: str, node_id: str) -> NodeView:
        views = self._runner.views(partition)
        if views is None:
            raise UnknownPartition(f"no partition {partition or 'default'!r}")
        node = views.node(node_id)
        if node is None:
            raise UnknownNode(f"no node {node_id!r} in partition {partition or 'default'!r}")
        return node
