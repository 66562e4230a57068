"""What metrics cost: a scrape of a large core, and the counting of what it decides.

5,000 nodes, 1,000 queues with guaranteed and max, 10,000 applications. Times are those of the processor.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Final

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
)
from kornel.core.domain.effects import Effect
from kornel.core.domain.resources import Resources
from kornel.core.metrics.decisions import Decisions
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from tests.bench.engine import PARTITION, engine_of
from tests.bench.report import Figure, show

NODES, LEAVES, APPLICATIONS, ALLOCATIONS = 5_000, 999, 10_000, 100_000
MOST_MS: Final = 50
EXPECTED: Final = "a look at each queue, application and node, and 15,000 lines; an increment for an effect"
MOST_US: Final = 1.0
"""For each effect that the engine has; a placement is one, beside the events that tell of it."""


def report(runs: int) -> bool:
    server = busy_server(ALLOCATIONS)
    gc.collect()
    gc.freeze()
    costs = [cost_ms(server) for _ in range(runs)]
    counted = [_counting_us(server.effects) for _ in range(runs)]
    gc.unfreeze()
    figures = [
        Figure("a scrape", "ms", costs, MOST_MS, at_most=True, each_s=min(costs) / 1_000),
        Figure("counting an effect", "us", counted, MOST_US, at_most=True, each_s=min(counted) / 1e6),
    ]
    return show(f"metrics: {NODES:,} nodes, {LEAVES + 1:,} queues, {APPLICATIONS:,} applications", figures, EXPECTED)


class BusyServer(KornelServer):
    """A server that listens nowhere. ``effects``: of all its placements."""

    effects: list[Effect]


def busy_server(allocations: int) -> BusyServer:
    """All queues in use and with limits of their own; their placements counted."""
    engine = engine_of(NODES, LEAVES, "fair")
    limits = "{guaranteed: {vcore: 1, memory: 1Gi}, max: {vcore: 1000, memory: 4Ti}}"
    queues = "\n".join(f"          - {{name: q{n}, resources: {limits}}}" for n in range(LEAVES))
    config = (
        "partitions:\n  - name: default\n    queues:\n      - name: root\n        submitacl: '*'\n        queues:\n"
        f"{queues}\n"
    )
    engine.apply(UpdateConfiguration("bench", config), 0)
    added = tuple(ApplicationSpec(f"app-{n}", f"root.q{n % LEAVES}", PARTITION, user="u") for n in range(APPLICATIONS))
    engine.apply(UpdateApplications("bench", added), 0)
    sizes = [Resources({"vcore": 100, "memory": 1 << 28}), Resources({"vcore": 1_000_000})]
    specs = [
        AllocationSpec(f"task-{n}", f"app-{n % APPLICATIONS}", PARTITION, sizes[n >= allocations])
        for n in range(allocations + LEAVES)
    ]
    server = BusyServer(
        engine,
        ServerSettings("127.0.0.1:0", "bench"),
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


def cost_ms(server: KornelServer) -> float:
    """Milliseconds of the processor for one scrape."""
    began = time.process_time()
    server.metrics.render()
    return (time.process_time() - began) * 1_000


def _counting_us(effects: Sequence[Effect], a_slice: int = 1_000) -> float:
    """Microseconds of the processor to count an effect, a slice of them at a time."""
    decisions = Decisions(lambda name: "root.q0", lambda: 0)
    began = time.process_time()
    for start in range(0, len(effects), a_slice):
        decisions.observe(effects[start : start + a_slice])
    return (time.process_time() - began) * 1e6 / len(effects)
