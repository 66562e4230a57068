"""The table of methods: complete, so that a new method is not open by accident, nor closed by oversight."""

from __future__ import annotations

from collections.abc import Set

import pytest
from google.protobuf.message import Message

from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.security.guard import Pass
from kornel.core.security.identity import Identity
from kornel.core.security.methods import METHODS, Demand
from kornel.core.security.policy import Grants
from kornel.core.service.connections.callers import Permission
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.wire.status_codes import NotPermitted
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import admin_pb2, configuration_pb2, manager_pb2, status_pb2
from tests.unit.service.fakes import FakeEngine

OPS = Identity(("token:ops",), "ops")


class Handlers:
    """A server that only takes down what it is to serve."""

    def __init__(self) -> None:
        self.methods: set[str] = set()

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        for handler in handlers:  # type: ignore[attr-defined]
            self.methods |= set(handler._method_handlers)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, object]) -> None:
        self.methods |= {f"/{service}/{name}" for name in handlers}


async def test_every_served_method_is_in_the_table() -> None:
    """Whoever adds a method has to say what it takes."""
    server = KornelServer(
        FakeEngine(),
        ServerSettings(address="127.0.0.1:0", version="test", test_clock=True),
        clock=ManualClock(),
        metrics=ServiceMetrics(),
        logger=build_logger(LogFormat.CONSOLE, LogLevel.ERROR),
        garbage=GarbageKeeper(enabled=False),
    )
    served = Handlers()
    server._add_services(served)  # type: ignore[arg-type]
    assert len(served.methods) > 20
    assert served.methods <= set(METHODS)


def test_only_health_is_public() -> None:
    assert {name.split("/")[1] for name, demand in METHODS.items() if demand.public} == {"grpc.health.v1.Health"}


def test_a_state_dump_is_for_administrators() -> None:
    """As over HTTP: it shows everything, the shim's own state included."""
    demand = METHODS["/kornel.v1.StatusService/GetStateDump"]
    demand.met_before(Pass(OPS, Grants(frozenset({Permission.ADMINISTER}))))
    others = frozenset(Permission) - {Permission.ADMINISTER}
    with pytest.raises(NotPermitted, match="administer"):
        demand.met_before(Pass(OPS, Grants(others, frozenset({"*"}))))


NOT_FOR_READERS = {
    "StatusService/GetStateDump": {Permission.ADMINISTER},
    "AdminService/DrainNode": {Permission.ADMINISTER},
    "AdminService/UndrainNode": {Permission.ADMINISTER},
    "ConfigurationService/RollbackConfiguration": {Permission.CONFIGURE},
    "TestClockService/AdvanceClock": {Permission.TEST_CLOCK},
    "StatusService/ExplainQueue": set(),
    "ReadService/GetQueue": set(),
}
"""What methods need that do not look at a request; the last two are also for a queue's administrators, whom their
service looks up. All others need the permission to read."""


def is_admitted(demand: Demand, request: Message | None, permissions: Set[Permission], *managers: str) -> bool:
    caller = Pass(OPS, Grants(frozenset(permissions), frozenset(managers)))
    try:
        demand.met_before(caller)
        demand.check(caller, request)
    except NotPermitted:
        return False
    return True


def test_each_method_needs_its_permission_and_no_other() -> None:
    """Whoever has all permissions but one is refused where that one is needed."""
    for name, demand in METHODS.items():
        if demand.request is None and not demand.public:
            needed = {one for one in Permission if not is_admitted(demand, None, set(Permission) - {one})}
            assert needed == NOT_FOR_READERS.get(name.split(".")[-1], {Permission.READ}), name


REGISTER, UPDATE = "/si.v1.Scheduler/RegisterResourceManager", "/kornel.v1.ConfigurationService/UpdateConfiguration"
STATUS, UNREGISTER = "/kornel.v1.StatusService/GetStatus", "/kornel.v1.ManagerService/UnregisterResourceManager"


@pytest.mark.parametrize(
    ("method", "request_", "permissions", "managers", "admitted"),
    [
        (REGISTER, si.RegisterResourceManagerRequest(rmID="a"), "", "a", True),
        (REGISTER, si.RegisterResourceManagerRequest(rmID="a"), "configure administer", "b", False),
        (REGISTER, si.RegisterResourceManagerRequest(rmID="a", config="x"), "", "a", False),
        (REGISTER, si.RegisterResourceManagerRequest(rmID="a", extraConfig={"x": "y"}), "", "a", False),
        (REGISTER, si.RegisterResourceManagerRequest(rmID="a", config="x"), "configure", "a", True),
        (UPDATE, configuration_pb2.UpdateConfigurationRequest(rm_id="a"), "", "a", False),
        (UPDATE, configuration_pb2.UpdateConfigurationRequest(rm_id="a"), "configure", "", True),
        (UPDATE, configuration_pb2.UpdateConfigurationRequest(rm_id="a"), "configure", "b", False),
        (STATUS, status_pb2.GetStatusRequest(), "read", "", True),
        (STATUS, status_pb2.GetStatusRequest(audit=True), "read", "", False),
        (STATUS, status_pb2.GetStatusRequest(audit=True), "administer", "", True),
        (UNREGISTER, manager_pb2.UnregisterResourceManagerRequest(rm_id="a"), "", "a", True),
        (UNREGISTER, manager_pb2.UnregisterResourceManagerRequest(rm_id="a"), "configure", "b", False),
        (UNREGISTER, manager_pb2.UnregisterResourceManagerRequest(rm_id="a"), "administer", "", True),
    ],
)
def test_what_a_request_says_decides(
    method: str, request_: Message, permissions: str, managers: str, admitted: bool
) -> None:
    """As whom, with which configuration, and whether it stops scheduling meanwhile."""
    granted = {Permission(name) for name in permissions.split()}
    assert is_admitted(METHODS[method], request_, granted, *managers.split()) is admitted


def test_preempting_by_hand_needs_its_permission_and_a_dry_run_that_to_read() -> None:
    demand = METHODS["/kornel.v1.AdminService/Preempt"]
    for dry_run, permission in ((False, Permission.PREEMPT), (True, Permission.READ)):
        request = admin_pb2.PreemptRequest(node_id="n1", dry_run=dry_run)
        needed = {one for one in Permission if not is_admitted(demand, request, set(Permission) - {one})}
        assert needed == {permission}
