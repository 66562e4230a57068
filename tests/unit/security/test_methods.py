"""The table of methods: complete, so that a new method is not open by accident, nor closed by oversight."""

from __future__ import annotations

import pytest

from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.security.guard import Pass
from kornel.core.security.identity import Identity
from kornel.core.security.methods import METHODS
from kornel.core.security.policy import Grants
from kornel.core.service.connections.callers import Permission
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.wire.status_codes import NotPermitted
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
