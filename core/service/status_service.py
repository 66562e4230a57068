"""``kornel.v1.StatusService``: the state of a running core."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict
from kornel.v1 import status_pb2 as pb
from structlog.typing import FilteringBoundLogger

from core.domain.partition_names import full_partition_name
from core.domain.resources import Resources, clamp
from core.domain.secrets import document_without_secrets
from core.service.callback_board import CallbackBoard, NoStateDump
from core.service.callers import Permission, caller
from core.service.clock import Clock
from core.service.configuring import Configurator
from core.service.metrics import ServiceMetrics
from core.service.presence import Presence
from core.service.rollbacks import Rollback
from core.service.rpc import Handler, unary
from core.service.runner import PartitionRunner
from core.service.status_codes import UnknownAsk, UnknownPartition, UnknownQueue, UnknownUser
from core.telling.explain import AskStanding, QueueAt, Subject, UserNamed
from core.telling.partitions.partition_status import (
    GovernorStatus,
    MonitorStatus,
    PartitionStatus,
    QueueStatus,
    StuckVictim,
    UserStatus,
)
from core.telling.queues.above_max import AboveMax
from core.telling.queues.headroom import Bound, QueueExplanation, QueueLevel
from core.telling.users.limits_of_user import LimitLevel

T = TypeVar("T")


class StatusService:
    """``version``: of this core."""

    def __init__(
        self,
        runner: PartitionRunner,
        callbacks: CallbackBoard,
        configurator: Configurator,
        *,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        clock: Clock,
        version: str,
    ) -> None:
        self._runner = runner
        self._reader = runner.reader
        self._callbacks = callbacks
        self._configurator = configurator
        self._metrics = metrics
        self._logger = logger
        self._clock = clock
        self._version = version

    def handlers(self) -> dict[str, Handler]:
        """The calls by method name."""
        return {
            "GetStatus": unary(pb.GetStatusRequest, self._get, self._logger),
            "ExplainUser": unary(pb.ExplainUserRequest, self._explain_user, self._logger),
            "ExplainQueue": unary(pb.ExplainQueueRequest, self._explain_queue, self._logger),
            "ExplainAsk": unary(pb.ExplainAskRequest, self._explain, self._logger),
            "GetStateDump": unary(pb.GetStateDumpRequest, self._dump, self._logger),
        }

    async def _explain_user(self, request: pb.ExplainUserRequest) -> pb.ExplainUserResponse:
        """config.md 10.3."""
        found = self._explain_subject(request.partition, UserNamed(request.user))
        if found is None:
            where = f"partition {request.partition or 'default'!r}"
            raise UnknownUser(f"user {request.user!r} has neither applications nor limits in {where}")
        return pb.ExplainUserResponse(
            user=found.user,
            used=_amounts(found.used),
            application_count=found.applications,
            levels=[_limit_level(level) for level in found.levels],
            tightest=_bound(found.tightest) if found.tightest is not None else None,
        )

    async def _explain_queue(self, request: pb.ExplainQueueRequest) -> pb.ExplainQueueResponse:
        """config.md 7.3. A queue's administrators may see it like everybody who may read."""
        caller().require_for_queue(Permission.READ, partial(self._reader.administers, request.partition, request.path))
        found = self._explain_subject(request.partition, QueueAt(request.path))
        if found is None:
            raise UnknownQueue(f"no queue {request.path!r} in partition {request.partition or 'default'!r}")
        return _explanation(found)

    async def _explain(self, request: pb.ExplainAskRequest) -> pb.ExplainAskResponse:
        found = self._explain_subject(request.partition, AskStanding(request.allocation_key))
        if found is None:
            raise UnknownAsk(
                f"no ask or allocation {request.allocation_key!r} in partition {request.partition or 'default'!r}"
            )
        return pb.ExplainAskResponse(
            application_id=found.application_id,
            queue=found.queue,
            state=found.state,
            node_id=found.node_id,
            failures=[pb.AskFailure(message=text, count=times, last_ns=at_ns) for text, times, at_ns in found.failures],
        )

    def _explain_subject(self, partition: str, subject: Subject[T]) -> T | None:
        reader = self._reader.get(partition)
        return reader.explain(subject) if reader is not None else None

    async def _dump(self, _request: pb.GetStateDumpRequest) -> pb.GetStateDumpResponse:
        """protocol.md 13, contract case 149."""
        status = await self._get(pb.GetStatusRequest())
        dump = {
            "timestampNs": self._clock.now_ns(),
            **MessageToDict(status, always_print_fields_with_no_presence=True),
            "extraConfigNames": sorted(self._runner.extra_config()),
            "metrics": self._metrics.as_dict(),
            "rmDiagnostics": await self._diagnostics(),
        }
        return pb.GetStateDumpResponse(json=json.dumps(dump))

    async def _diagnostics(self) -> dict[str, Any]:
        """The shim's own state, or why there is none."""
        try:
            return dict(document_without_secrets(_json_object(await self._callbacks.state_dump())))
        except NoStateDump as reason:
            return {"error": str(reason)}

    async def _get(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        status = self._reader.status(audited=request.audit)
        partitions = sorted(status.partitions, key=lambda partition: partition.name)
        if request.partition:
            wanted = full_partition_name(status.rm_id, request.partition)
            partitions = [partition for partition in partitions if partition.name == wanted]
            if not partitions:
                raise UnknownPartition(f"no partition {request.partition!r}")
        return pb.GetStatusResponse(
            rm_id=status.rm_id,
            core_version=self._version,
            configuration_checksum=status.checksum,
            configuration_version=self._configurator.in_force,
            configuration_problem=self._configurator.problem,
            unrouted_entries=status.unrouted,
            partitions=[_partition(partition, with_queues=not request.omit_queues) for partition in partitions],
            rollback=_rollback(self._configurator.rollback_held) if status.rm_id else None,
            presence=_presence(self._runner.presence),
        )


def _rollback(held: Rollback | None) -> pb.RollbackStatus | None:
    if held is None:
        return None
    return pb.RollbackStatus(
        version=held.version, since_ns=held.at_ns, principal=held.principal, kept_out=held.kept_out
    )


def _presence(found: Presence | None) -> pb.ManagerPresence | None:
    if found is None:
        return None
    return pb.ManagerPresence(open_streams=found.streams, no_stream_since_ns=found.no_stream_since_ns, gone=found.gone)


def _json_object(text: str) -> dict[str, Any]:
    """*text* as something that can be written as JSON again. Raises :class:`NoStateDump`."""
    try:
        value = json.loads(text)
        # Python reads and writes NaN and infinities, which no other reader of JSON takes.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise NoStateDump(f"the shim's answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NoStateDump(f"the shim's answer is not a JSON object but a {type(value).__name__}")
    return value


def _partition(partition: PartitionStatus, *, with_queues: bool) -> pb.PartitionStatus:
    return pb.PartitionStatus(
        name=partition.name,
        node_count=partition.nodes,
        pending_ask_count=partition.asks,
        allocation_count=partition.allocations,
        reservation_count=partition.reservations,
        total=_amounts(partition.capacity),
        law_checks=partition.law_checks,
        law_violations=partition.law_violations,
        invariant_violations=partition.invariant_violations,
        preemption_attempts=partition.preemption_attempts,
        preemption_triggered=partition.preemptions,
        queues=[_queue(queue) for queue in partition.queues] if with_queues else (),
        users=[_user(user) for user in partition.users],
        ignored=dict(partition.ignored),
        governor=_governor(partition.governor) if partition.governor is not None else None,
        stuck_victims=[_stuck(victim) for victim in partition.stuck],
        monitor=_monitor(partition.monitor) if partition.monitor is not None else None,
        drained_nodes=[
            pb.DrainedNode(
                node_id=node.node_id, principal=node.drain.by, since_ns=node.drain.at_ns, registered=node.known
            )
            for node in partition.drained
        ],
    )


def _governor(governor: GovernorStatus) -> pb.GovernorStatus:
    return pb.GovernorStatus(
        window_ns=governor.window_ns,
        denied_plans=governor.denied,
        shadow=governor.shadow,
        scopes=[
            pb.GovernorScope(
                kind=scope.kind,
                name=scope.name,
                victims=scope.victims,
                max_victims=scope.most_victims,
                lost=_amounts(scope.lost),
                max_lost=_amounts(scope.most_lost),
                paused_until_ns=scope.paused_until_ns,
            )
            for scope in governor.scopes
        ],
    )


def _stuck(victim: StuckVictim) -> pb.StuckVictim:
    return pb.StuckVictim(
        key=victim.key,
        application_id=victim.application_id,
        queue=victim.queue,
        node_id=victim.node_id,
        resources=_amounts(victim.resources),
        preemptor=victim.preemptor,
    )


def _monitor(monitor: MonitorStatus) -> pb.MonitorStatus:
    return pb.MonitorStatus(
        observe_only=monitor.observe_only,
        rounds=monitor.rounds,
        open_notices=monitor.notices,
        at_risk_allocations=monitor.at_risk,
    )


def _user(user: UserStatus) -> pb.UserStatus:
    return pb.UserStatus(user=user.user, used=_amounts(user.used), application_count=user.applications)


def _queue(queue: QueueStatus) -> pb.QueueStatus:
    return pb.QueueStatus(
        path=queue.path,
        leaf=queue.leaf,
        state="Draining" if queue.draining else "Active",
        guaranteed=_amounts(queue.guaranteed),
        max=_amounts(queue.max),
        used=_amounts(queue.used),
        pending=_amounts(queue.pending),
        preempting=_amounts(queue.preempting),
        preempted_allocations=queue.preempted_allocations,
        preempted=_amounts(queue.preempted),
        application_count=queue.applications,
        priority=queue.priority,
        quota_preemption_start_ns=queue.quota_due_ns,
        quota_preemption_running=queue.quota_running,
    )


def _explanation(found: QueueExplanation) -> pb.ExplainQueueResponse:
    return pb.ExplainQueueResponse(
        path=found.path,
        leaf=found.leaf,
        state="Draining" if found.draining else "Active",
        levels=[_level(level) for level in found.levels],
        headroom=_amounts(found.headroom),
        bounds=[_bound(bound) for bound in found.bounds],
        tightest=_bound(found.tightest) if found.tightest is not None else None,
        above_max=[_above_max(above) for above in found.above],
    )


def _above_max(found: AboveMax) -> pb.QueueAboveMax:
    return pb.QueueAboveMax(
        path=found.path,
        since_ns=found.since_ns,
        above=_amounts(found.above),
        leaving=_amounts(found.leaving),
        due_ns=found.due_ns,
        course=found.course,
        protected_by=found.protected,
    )


def _level(level: QueueLevel) -> pb.QueueLevel:
    return pb.QueueLevel(
        path=level.path,
        guaranteed=_amounts(level.guaranteed),
        max=_amounts(level.max),
        used=_amounts(level.used),
        pending=_amounts(level.pending),
        preempting=_amounts(level.preempting),
        headroom=_amounts(level.headroom),
    )


def _limit_level(level: LimitLevel) -> pb.LimitLevel:
    return pb.LimitLevel(
        path=level.path,
        kind=level.kind,
        name=level.name,
        max=_amounts(level.max),
        used=_amounts(level.used),
        headroom=_amounts(level.headroom),
        application_count=level.applications,
        max_applications=level.max_applications,
    )


def _bound(bound: Bound) -> pb.QueueBound:
    return pb.QueueBound(type=bound.type, path=bound.path, left=clamp(bound.left), max=clamp(bound.max))


def _amounts(resources: Resources) -> dict[str, int]:
    """*resources* as the wire can carry them: the books are exact, the sum of two quantities may be none (2.2)."""
    return {name: clamp(amount) for name, amount in resources.items()}
