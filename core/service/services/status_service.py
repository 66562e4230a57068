"""Serves ``kornel.v1.StatusService``: the state of a running core."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from structlog.typing import FilteringBoundLogger

from kornel.core.service.callbacks.callback_board import NoStateDump
from kornel.core.service.callbacks.state_dumps import read_state_dump
from kornel.core.service.calls.rpc import Service
from kornel.core.service.configuration.rollbacks import Rollback
from kornel.core.service.connections.callers import Permission, caller
from kornel.core.service.machine.clock import Clock
from kornel.core.service.managers.managers import Managers, Place
from kornel.core.service.managers.standing import Standing
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.runner.questions import Questions
from kornel.core.service.streams.presence import Presence
from kornel.core.service.wire.status_codes import NotFound
from kornel.core.telling.encoding.kornel_v1 import (
    ENCODERS,
    encode_queue_explanation,
    encode_standing,
    encode_status,
    encode_user_explanation,
)
from kornel.core.telling.explain import AskStanding, QueueAt, UserNamed
from kornel.core.telling.partitions.partition_status import EngineStatus
from kornel.v1 import status_pb2 as pb

_encode_rollback: Final = ENCODERS.add(
    Rollback, pb.RollbackStatus, {"since_ns": "at_ns"}, left_out=("text", "rm_id", "brought")
)
_encode_presence: Final = ENCODERS.add(Presence, pb.ManagerPresence, {"open_streams": "streams"}, left_out=("rm_id",))


class StatusService(Service):
    """Serves ``kornel.v1.StatusService``. *version*: the version of this core."""

    described = pb.DESCRIPTOR.services_by_name["StatusService"]

    def __init__(
        self,
        managers: Managers,
        *,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        clock: Clock,
        version: str,
        standing: Standing | None = None,
    ) -> None:
        """Makes the service. Without *standing*, the core always leads."""
        super().__init__(logger)
        self._managers = managers
        self._standing = standing or Standing()
        self._reader = managers.reader
        self._metrics = metrics
        self._clock = clock
        self._version = version
        self._questions = Questions(beside=managers.questions)

    async def _explain_user(self, request: pb.ExplainUserRequest) -> pb.ExplainUserResponse:
        """Returns the limits of a user (config.md 10.3)."""
        found = self._managers.find_partition(request.partition).explain(UserNamed(request.user))
        if found is None:
            where = f"partition {request.partition or 'default'!r}"
            raise NotFound(f"user {request.user!r} has neither applications nor limits in {where}")
        return encode_user_explanation(found)

    async def _explain_queue(self, request: pb.ExplainQueueRequest) -> pb.ExplainQueueResponse:
        """Returns the bounds of a queue (config.md 7.3). Its administrators may see them, and everybody who may
        read."""
        caller().require_for_queue(
            Permission.READ, partial(self._reader.may_administer, request.partition, request.path)
        )
        found = self._managers.find_partition(request.partition).explain(QueueAt(request.path))
        if found is None:
            raise NotFound(f"no queue {request.path!r} in partition {request.partition or 'default'!r}")
        return encode_queue_explanation(found)

    async def _explain_ask(self, request: pb.ExplainAskRequest) -> pb.ExplainAskResponse:
        found = self._managers.find_partition(request.partition).explain(AskStanding(request.allocation_key))
        if found is None:
            raise NotFound(
                f"no ask or allocation {request.allocation_key!r} in partition {request.partition or 'default'!r}"
            )
        return encode_standing(found)

    async def _get_state_dump(self, request: pb.GetStateDumpRequest) -> pb.GetStateDumpResponse:
        """Returns the state dump (protocol.md 13, contract case 149)."""
        place = self._managers.choose(request.rm_id if self._managers.registered else "")
        status = await self._get_status(pb.GetStatusRequest(rm_id=request.rm_id))
        dump = {
            "timestamp_ns": self._clock.now_ns(),
            **MessageToDict(status, always_print_fields_with_no_presence=True, preserving_proto_field_name=True),
            "extra_config_names": sorted(place.runner.extra_config()),
            "metrics": self._metrics.as_dict(),
            "rm_diagnostics": await _read_diagnostics(place),
        }
        return pb.GetStateDumpResponse(json=json.dumps(dump))

    async def _get_status(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        """Returns the state at one moment. The engine stands still in the meantime, so there is one such call at a
        time."""
        return await self._questions.ask(lambda: self._read_status(request))

    def _read_status(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        managers = self._managers
        registered = managers.registered
        places = [managers.choose(request.rm_id)] if request.rm_id and registered else registered or [managers.first]
        if request.partition:
            views = managers.find_partition(request.partition)
            if views.rm_id not in {place.rm_id for place in places}:
                raise NotFound(f"no partition {request.partition!r}")
            partitions = [views.status(audited=request.audit)]
            places = [place for place in places if place.rm_id == views.rm_id]
        else:
            readers = [views for place in places for views in place.runner.reader.partitions()]
            partitions = [views.status(audited=request.audit) for views in readers]
        if request.omit_queues:
            partitions = [partition._replace(queues=()) for partition in partitions]
        found = [_describe_place(place) for place in places]
        first = found[0]
        return encode_status(
            EngineStatus(first.rm_id, first.configuration_checksum, tuple(partitions), first.unrouted_entries),
            core_version=self._version,
            configuration_version=first.configuration_version,
            configuration_problem=first.configuration_problem,
            rollback=first.rollback if first.HasField("rollback") else None,
            presence=first.presence if first.HasField("presence") else None,
            managers=[each for each in found if each.rm_id],
            standing=_describe_standing(self._standing) if self._standing.shared else None,
        )


def _describe_standing(standing: Standing) -> pb.CoreStanding:
    return pb.CoreStanding(
        role=standing.role,
        leader_address=standing.leader_address,
        epoch=standing.epoch,
        records_behind=standing.records_behind,
        behind_ms=round(standing.behind_s * 1_000),
        problem=standing.problem,
        lease_age_ms=round(standing.find_lease_age() * 1_000),
    )


def _describe_place(place: Place) -> pb.ManagerStatus:
    """Returns the status of the manager at *place*, without its partitions."""
    runner, configurator = place.runner, place.configurator
    rollback = configurator.rollback_held if place.rm_id else None
    return pb.ManagerStatus(
        rm_id=place.rm_id,
        configuration_checksum=runner.reader.checksum,
        configuration_version=configurator.in_force,
        configuration_problem=configurator.problem,
        unrouted_entries=runner.reader.unrouted,
        presence=_encode_presence(runner.presence) if runner.presence is not None else None,
        rollback=_encode_rollback(rollback) if rollback is not None else None,
        damaged=place.damaged,
    )


async def _read_diagnostics(place: Place) -> dict[str, Any]:
    """Returns the state of the shim as it describes it, or an error that says why there is none."""
    try:
        return await read_state_dump(place.callbacks)
    except NoStateDump as reason:
        return {"error": str(reason)}
