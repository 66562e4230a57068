"""``kornel.v1.StatusService``: the state of a running core."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.json_format import MessageToDict
from structlog.typing import FilteringBoundLogger

from kornel.core.domain.partition_names import full_partition_name
from kornel.core.domain.secrets import document_without_secrets
from kornel.core.service.callback_board import CallbackBoard, NoStateDump
from kornel.core.service.callers import Permission, caller
from kornel.core.service.clock import Clock
from kornel.core.service.configuring import Configurator
from kornel.core.service.metrics import ServiceMetrics
from kornel.core.service.presence import Presence
from kornel.core.service.questions import Questions
from kornel.core.service.rollbacks import Rollback
from kornel.core.service.rpc import Handler, unary
from kornel.core.service.runner import PartitionRunner
from kornel.core.service.status_codes import UnknownAsk, UnknownPartition, UnknownQueue, UnknownUser, say_no_partition
from kornel.core.telling.encoding.kornel_v1 import (
    ENCODERS,
    encode_queue_explanation,
    encode_standing,
    encode_status,
    encode_user_explanation,
)
from kornel.core.telling.explain import AskStanding, QueueAt, Subject, UserNamed
from kornel.v1 import status_pb2 as pb

_encode_rollback: Final = ENCODERS.add(
    Rollback, pb.RollbackStatus, {"since_ns": "at_ns"}, left_out=("text", "rm_id", "brought")
)
_encode_presence: Final = ENCODERS.add(Presence, pb.ManagerPresence, {"open_streams": "streams"}, left_out=("rm_id",))

T = TypeVar("T")


class StatusService:
    """Serves ``kornel.v1.StatusService``. ``version``: of this core."""

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
        self._questions = Questions(beside=runner.questions)

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {
            "GetStatus": unary(pb.GetStatusRequest, self._get, self._logger),
            "ExplainUser": unary(pb.ExplainUserRequest, self._explain_user, self._logger),
            "ExplainQueue": unary(pb.ExplainQueueRequest, self._explain_queue, self._logger),
            "ExplainAsk": unary(pb.ExplainAskRequest, self._explain, self._logger),
            "GetStateDump": unary(pb.GetStateDumpRequest, self._dump, self._logger),
        }

    async def _explain_user(self, request: pb.ExplainUserRequest) -> pb.ExplainUserResponse:
        """Returns the limits of a user (config.md 10.3)."""
        found = self._explain_subject(request.partition, UserNamed(request.user))
        if found is None:
            self._require_partition(request.partition)
            where = f"partition {request.partition or 'default'!r}"
            raise UnknownUser(f"user {request.user!r} has neither applications nor limits in {where}")
        return encode_user_explanation(found)

    async def _explain_queue(self, request: pb.ExplainQueueRequest) -> pb.ExplainQueueResponse:
        """Returns the bounds of a queue (config.md 7.3), which its administrators may see as well as everybody who may
        read."""
        caller().require_for_queue(
            Permission.READ, partial(self._reader.may_administer, request.partition, request.path)
        )
        found = self._explain_subject(request.partition, QueueAt(request.path))
        if found is None:
            self._require_partition(request.partition)
            raise UnknownQueue(f"no queue {request.path!r} in partition {request.partition or 'default'!r}")
        return encode_queue_explanation(found)

    async def _explain(self, request: pb.ExplainAskRequest) -> pb.ExplainAskResponse:
        found = self._explain_subject(request.partition, AskStanding(request.allocation_key))
        if found is None:
            self._require_partition(request.partition)
            raise UnknownAsk(
                f"no ask or allocation {request.allocation_key!r} in partition {request.partition or 'default'!r}"
            )
        return encode_standing(found)

    def _explain_subject(self, partition: str, subject: Subject[T]) -> T | None:
        reader = self._reader.get(partition)
        return reader.explain(subject) if reader is not None else None

    def _require_partition(self, partition: str) -> None:
        """Raises :class:`UnknownPartition` if that is why nothing was found."""
        if self._reader.get(partition) is None:
            raise UnknownPartition(say_no_partition(self._reader.rm_id, partition))

    async def _dump(self, _request: pb.GetStateDumpRequest) -> pb.GetStateDumpResponse:
        """Returns the state dump (protocol.md 13, contract case 149)."""
        status = await self._get(pb.GetStatusRequest())
        dump = {
            "timestamp_ns": self._clock.now_ns(),
            **MessageToDict(status, always_print_fields_with_no_presence=True, preserving_proto_field_name=True),
            "extra_config_names": sorted(self._runner.extra_config()),
            "metrics": self._metrics.as_dict(),
            "rm_diagnostics": await self._read_diagnostics(),
        }
        return pb.GetStateDumpResponse(json=json.dumps(dump))

    async def _read_diagnostics(self) -> dict[str, Any]:
        """Returns the shim's own state, or why there is none."""
        try:
            return dict(document_without_secrets(_json_object(await self._callbacks.state_dump())))
        except NoStateDump as reason:
            return {"error": str(reason)}

    async def _get(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        """Returns the state at one moment, so the engine stands still for it: one such call after the other."""
        return await self._questions.ask(lambda: self._read_status(request))

    def _read_status(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        status = self._reader.status(audited=request.audit)
        partitions = sorted(status.partitions, key=lambda partition: partition.name)
        if request.partition:
            wanted = full_partition_name(status.rm_id, request.partition)
            partitions = [partition for partition in partitions if partition.name == wanted]
            if not partitions:
                raise UnknownPartition(say_no_partition(status.rm_id, request.partition))
        if request.omit_queues:
            partitions = [partition._replace(queues=()) for partition in partitions]
        rollback = self._configurator.rollback_held if status.rm_id else None
        presence = self._runner.presence
        return encode_status(
            status._replace(partitions=tuple(partitions)),
            core_version=self._version,
            configuration_version=self._configurator.in_force,
            configuration_problem=self._configurator.problem,
            rollback=_encode_rollback(rollback) if rollback is not None else None,
            presence=_encode_presence(presence) if presence is not None else None,
        )


def _json_object(text: str) -> dict[str, Any]:
    """Returns *text* as something that can be written as JSON again. Raises :class:`NoStateDump`."""
    try:
        value = json.loads(text)
        # Python reads and writes NaN and infinities, which no other reader of JSON takes.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise NoStateDump(f"the shim's answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NoStateDump(f"the shim's answer is not a JSON object but a {type(value).__name__}")
    return value
