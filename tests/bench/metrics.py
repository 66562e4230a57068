"""A large core whose metrics a test scrapes: 5,000 nodes, 1,000 queues with guaranteed and max, 10,000 applications."""

from __future__ import annotations

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Effect
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics

PARTITION = "[bench]default"
NODES, LEAVES, APPLICATIONS = 5_000, 999, 10_000


class BusyServer(KornelServer):
    """A server that listens nowhere. ``effects``: of all its placements."""

    effects: list[Effect]


def busy_server(allocations: int) -> BusyServer:
    """All queues in use and with limits of their own; their placements counted."""
    limits = "{guaranteed: {vcore: 1, memory: 1Gi}, max: {vcore: 1000, memory: 4Ti}}"
    queues = "\n".join(f"          - {{name: q{n}, resources: {limits}}}" for n in range(LEAVES))
    config = (
        "partitions:\n  - name: default\n    queues:\n      - name: root\n        submitacl: '*'\n        queues:\n"
        f"{queues}\n"
    )
    engine = Engine()
    engine.apply(RegisterManager("bench", config), 0)
    capacity = Resources({"vcore": 64_000, "memory": 256 << 30})
    nodes = (NodeSpec(f"node-{n:06}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(NODES))
    engine.apply(UpdateNodes("bench", tuple(nodes)), 0)
    added = tuple(ApplicationSpec(f"app-{n}", f"root.q{n % LEAVES}", PARTITION, user="u") for n in range(APPLICATIONS))
    engine.apply(UpdateApplications("bench", added), 0)
    sizes = [Resources({"vcore": 100, "memory": 1 << 28}), Resources({"vcore": 1_000_000})]
    specs = [
        AllocationSpec(f"task-{n}", f"app-{n % APPLICATIONS}", PARTITION, sizes[n >= allocations])
        for n in range(allocations + LEAVES)
    ]
    server = BusyServer(
        engine,
        ServerSettings(address="127.0.0.1:0", version="bench"),
        clock=ManualClock(),
        metrics=ServiceMetrics(),
        logger=build_logger(LogFormat.CONSOLE, LogLevel.WARNING),
        garbage=GarbageKeeper(enabled=False),
    )
    engine.apply(UpdateAllocations("bench", tuple(specs)), 1)
    server.effects = []
    more = True
    while more:
        result = engine.cycle(1, 500)
        server.effects += result.effects
        more = result.more
    server.measures.decisions.observe(server.effects)
    return server
