"""Serves ``kornel.v1.AdminService``, with which an administrator changes a running core."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import PreemptByHand, PreemptTarget, SetOperatorDrain
from kornel.core.domain.resources import Resources
from kornel.core.service.calls.rpc import Service
from kornel.core.service.connections.callers import caller, principal
from kornel.core.service.managers.managers import Managers
from kornel.core.service.wire.status_codes import InvalidRequest, NotFound, NothingRegistered
from kornel.core.telling.encoding.kornel_v1 import encode_decision
from kornel.core.telling.nodes.node_views import NodeView
from kornel.core.telling.reader import PartitionReader
from kornel.v1 import admin_pb2 as pb


class AdminService(Service):
    """Takes nodes out of scheduling, and back, and preempts whom a person names."""

    described = pb.DESCRIPTOR.services_by_name["AdminService"]

    def __init__(self, managers: Managers, *, logger: FilteringBoundLogger) -> None:
        super().__init__(logger)
        self._managers = managers

    async def _drain_node(self, request: pb.DrainNodeRequest) -> pb.DrainNodeResponse:
        before = self._find_node(request.partition, request.node_id)
        await self._set(request.partition, request.node_id, drained=True)
        now = self._find_node(request.partition, request.node_id)
        drain = now.operator_drain
        assert drain is not None, "nobody else had a turn since it was set"
        return pb.DrainNodeResponse(
            changed=before.operator_drain is None,
            allocation_count=len(now.allocations),
            principal=drain.by,
            since_ns=drain.at_ns,
        )

    async def _undrain_node(self, request: pb.UndrainNodeRequest) -> pb.UndrainNodeResponse:
        views = self._find_partition(request.partition)
        drained = request.node_id in views.operator_drains()
        if not drained:
            self._find_node(request.partition, request.node_id)
        await self._set(request.partition, request.node_id, drained=False)
        now = self._find_partition(request.partition).node(request.node_id)
        return pb.UndrainNodeResponse(
            changed=drained, schedulable=now is not None and now.schedulable, registered=now is not None
        )

    async def _preempt(self, request: pb.PreemptRequest) -> pb.PreemptResponse:
        views, by = self._find_partition(request.partition), principal()
        caller().require_no_other_manager(views.rm_id)
        order = _read_order(request, views, by)
        if request.dry_run:
            decided = views.foresee(order)
        else:
            done = await self._managers.place_for(views.rm_id).runner.call(order)
            (decided,) = done.decided
            victims, waived = [victim.key for victim in decided.victims], list(order.waived)
            said = {"target": str(order.target), "name": order.name, "waived": waived, "reason": order.reason, "by": by}
            self._logger.info(
                "preempted by hand", partition=views.name, outcome=str(decided.outcome), victims=victims, **said
            )
        return pb.PreemptResponse(decision=encode_decision(decided, id=0, next_event_id=0))

    async def _set(self, partition: str, node_id: str, *, drained: bool) -> None:
        views, by = self._find_partition(partition), principal()
        rm_id, name = views.rm_id, views.name
        caller().require_no_other_manager(rm_id)
        await self._managers.place_for(rm_id).runner.call(SetOperatorDrain(rm_id, name, node_id, drained, by))
        said = "node drained by an operator" if drained else "node undrained by an operator"
        self._logger.info(said, partition=name, node_id=node_id, by=by)

    def _find_partition(self, partition: str) -> PartitionReader:
        if not self._managers.rm_id:
            raise NothingRegistered("no resource manager is registered, so there are no nodes")
        return self._managers.find_partition(partition)

    def _find_node(self, partition: str, node_id: str) -> NodeView:
        node = self._find_partition(partition).node(node_id)
        if node is None:
            raise NotFound(f"no node {node_id!r} in partition {partition or 'default'!r}")
        return node


def _read_order(request: pb.PreemptRequest, views: PartitionReader, by: str) -> PreemptByHand:
    target = request.WhichOneof("target")
    if target is None:
        raise InvalidRequest("name an allocation, an application, a node or a queue")
    if bool(request.amount) is not (target == "queue"):
        raise InvalidRequest("an amount is given for a queue, and for nothing else")
    what, name = PreemptTarget(target.removesuffix("_id")), getattr(request, target)
    amount = Resources(request.amount) if request.amount else None
    return PreemptByHand(views.rm_id, views.name, what, name, amount, tuple(request.waived), request.reason, by)
