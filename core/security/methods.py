"""Lists the permission that each gRPC method needs. A method that is not listed is refused to all callers.

Requests are checked here, so that services need not know the caller. The manager's name is in the request, or in the
first request of a stream; services refuse other names later in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import Message

from kornel.core.security.guard import Pass
from kornel.core.service.calls.rpc import parse
from kornel.core.service.calls.wire_pieces import pick_field
from kornel.core.service.connections.callers import Permission
from kornel.core.service.wire.status_codes import NotPermitted
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import admin_pb2, callback_pb2, configuration_pb2, manager_pb2, status_pb2


@dataclass(frozen=True, slots=True)
class Demand:
    """The check that a method demands. ``request``: the message that ``check`` is given; ``None``: it needs none.

    ``public`` tells whether every caller is admitted. ``before``: the check of the caller before the request is read.
    ``field``: the only field of the message that ``check`` looks at, and the only one that is parsed if the message is
    long; empty: any.
    """

    check: Callable[[Pass, Any], None]
    request: type[Message] | None = None
    public: bool = False
    before: Callable[[Pass], None] | None = None
    field: str = ""

    def met_before(self, caller: Pass) -> None:
        """Raises an error if *caller* may not make this call, whatever the first request contains."""
        if self.before is not None:
            self.before(caller)
        if self.request is None:
            self.check(caller, None)

    def check_caller(self, caller: Pass, raw: bytes) -> None:
        """Raises an error unless *caller* may make this call with the (first) request *raw*, which is parsed whole."""
        self.check(caller, parse(self.request, raw) if self.request is not None else None)

    async def check_first(self, caller: Pass, raw: bytes) -> None:
        """Raises an error unless *caller* may make this call with the first request *raw*, which may be of any length
        if the method has a ``field``."""
        if self.request is not None and self.field:
            raw = await pick_field(self.request, self.field, raw)
        self.check_caller(caller, raw)


def _need_permission(permission: Permission) -> Demand:
    return Demand(lambda caller, _: caller.require(permission))


def _need_manager(request: type[Message], field: str, rm_id_of: Callable[[Any], str] = str) -> Demand:
    """Returns the demand to be the manager that *field* of the first request names: *rm_id_of* that field."""
    return Demand(
        lambda caller, message: caller.require_manager(rm_id_of(getattr(message, field))),
        request,
        before=Pass.require_any_manager,
        field=field,
    )


def _register(caller: Pass, request: si.RegisterResourceManagerRequest) -> None:
    """Demand the permission to configure for a registration that brings a configuration."""
    caller.require_manager(request.rmID)
    if request.config or request.extraConfig:
        caller.require(Permission.CONFIGURE)


def _update(caller: Pass, request: configuration_pb2.UpdateConfigurationRequest) -> None:
    """Demand the permission to configure, unless a manager changes its own configuration.

    The same is true of a rollback, which the service checks.
    """
    caller.require(Permission.CONFIGURE)
    caller.require_no_other_manager(request.rm_id)


def _unregister(caller: Pass, request: manager_pb2.UnregisterResourceManagerRequest) -> None:
    try:
        caller.require(Permission.ADMINISTER)
    except NotPermitted:
        caller.require_manager(request.rm_id)


def _administer_or_manage(caller: Pass) -> None:
    if not caller.manages_any:
        caller.require(Permission.ADMINISTER)


def _preempt(caller: Pass, request: admin_pb2.PreemptRequest) -> None:
    """Demand the permission to preempt, unless the request only asks who would leave."""
    caller.require(Permission.READ if request.dry_run else Permission.PREEMPT)


def _status(caller: Pass, request: status_pb2.GetStatusRequest) -> None:
    """Demand a further permission for an audit, because it stops scheduling while it runs."""
    caller.require(Permission.ADMINISTER if request.audit else Permission.READ)


_READ: Final = _need_permission(Permission.READ)
_CONFIGURE: Final = _need_permission(Permission.CONFIGURE)
_PUBLIC: Final = Demand(lambda caller, _: None, public=True)
_FOR_QUEUE: Final = Demand(lambda caller, _: None)
"""The demand of a method whose service checks the caller itself, because a queue's administrators may call it."""

METHODS: Final[Mapping[str, Demand]] = MappingProxyType(
    {
        "/si.v1.Scheduler/RegisterResourceManager": Demand(
            _register, si.RegisterResourceManagerRequest, before=Pass.require_any_manager
        ),
        "/si.v1.Scheduler/UpdateAllocation": _need_manager(si.AllocationRequest, "rmID"),
        "/si.v1.Scheduler/UpdateApplication": _need_manager(si.ApplicationRequest, "rmID"),
        "/si.v1.Scheduler/UpdateNode": _need_manager(si.NodeRequest, "rmID"),
        "/kornel.v1.ManagerService/Acknowledge": _need_manager(manager_pb2.AcknowledgeRequest, "rm_id"),
        "/kornel.v1.CallbackService/Attach": _need_manager(
            callback_pb2.AttachRequest, "subscription", lambda subscription: subscription.rm_id
        ),
        "/kornel.v1.ConfigurationService/UpdateConfiguration": Demand(
            _update, configuration_pb2.UpdateConfigurationRequest
        ),
        "/kornel.v1.ConfigurationService/RollbackConfiguration": _CONFIGURE,
        "/kornel.v1.ConfigurationService/ValidateConfiguration": _READ,
        "/kornel.v1.ConfigurationService/PreviewConfiguration": _READ,
        "/kornel.v1.ConfigurationService/GetConfigurationHistory": _READ,
        "/kornel.v1.ConfigurationService/GetConfiguration": _READ,
        "/kornel.v1.StatusService/GetStatus": Demand(_status, status_pb2.GetStatusRequest),
        "/kornel.v1.StatusService/GetStateDump": _need_permission(Permission.ADMINISTER),
        "/kornel.v1.StatusService/ExplainAsk": _READ,
        "/kornel.v1.StatusService/ExplainUser": _READ,
        "/kornel.v1.StatusService/ExplainQueue": _FOR_QUEUE,
        "/kornel.v1.ExplainService/Explain": _READ,
        "/kornel.v1.ExplainService/WhatIf": _READ,
        "/kornel.v1.AdminService/DrainNode": _need_permission(Permission.ADMINISTER),
        "/kornel.v1.AdminService/UndrainNode": _need_permission(Permission.ADMINISTER),
        "/kornel.v1.AdminService/Preempt": Demand(_preempt, admin_pb2.PreemptRequest),
        "/kornel.v1.EventService/WatchEvents": _READ,
        "/kornel.v1.EventService/ListDecisions": _READ,
        "/kornel.v1.ReadService/ListQueues": _READ,
        "/kornel.v1.ReadService/GetQueue": _FOR_QUEUE,
        "/kornel.v1.ReadService/ListApplications": _READ,
        "/kornel.v1.ReadService/GetApplication": _READ,
        "/kornel.v1.ReadService/ListWaits": _READ,
        "/kornel.v1.ReadService/ListNodes": _READ,
        "/kornel.v1.ReadService/GetNode": _READ,
        "/kornel.v1.ReadService/ListDomains": _READ,
        "/kornel.v1.ReadService/ListClaims": _READ,
        "/kornel.v1.ReadService/GetHealthReport": _READ,
        "/kornel.v1.ReadService/ListRefusals": _READ,
        "/kornel.v1.ReadService/FindNames": _READ,
        "/kornel.v1.ReadService/FindQueue": _READ,
        "/kornel.v1.ReadService/GetHolds": _READ,
        "/kornel.v1.ReadService/ListPreemptionKinds": _READ,
        "/kornel.v1.HistoryService/ListPastApplications": _READ,
        "/kornel.v1.HistoryService/ListPreemptions": _READ,
        "/kornel.v1.HistoryService/SumPreemptions": _READ,
        "/kornel.v1.HistoryService/ListEvents": _READ,
        "/kornel.v1.HistoryService/ListConfigurations": _READ,
        "/kornel.v1.HistoryService/ListUsage": _READ,
        "/kornel.v1.HistoryService/GetHistoryStatus": _READ,
        "/kornel.v1.ManagerService/UnregisterResourceManager": Demand(
            _unregister, manager_pb2.UnregisterResourceManagerRequest, before=_administer_or_manage
        ),
        "/kornel.v1.TestClockService/AdvanceClock": _need_permission(Permission.TEST_CLOCK),
        "/grpc.health.v1.Health/Check": _PUBLIC,
        "/grpc.health.v1.Health/List": _PUBLIC,
        "/grpc.health.v1.Health/Watch": _PUBLIC,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _READ,
    }
)
