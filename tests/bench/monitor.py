"""Rounds of the periodic preemption in a large cluster: how long one takes in all, and how long it stops other work."""

from __future__ import annotations

import time

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
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.options import EngineOptions

PARTITION = "[bench]default"
SECOND_NS = 10**9
PARENTS = 20
NODES, ALLOCATIONS = 5_000, 100_000

CASES = (
    ("200 leaves x 5 applications, half of them over", 200, 5, 100),
    ("1,000 leaves x 1 application, half of them over", 1_000, 1, 500),
    ("200 leaves, one application holds everything", 200, 1, 1),
)


def cluster(leaves: int, applications: int, hogs: int) -> Engine:
    """All allocations are in the first *hogs* leaves, the others want half as much."""
    share = NODES * 20 // leaves
    queues = ""
    for parent in range(PARENTS):
        queues += f"          - name: p{parent}\n            queues:\n"
        for leaf in range(leaves // PARENTS):
            guaranteed = f"{{vcore: {share}m, memory: {share}}}"
            queues += f"              - {{name: q{leaf}, resources: {{guaranteed: {guaranteed}}}}}\n"
    config = (
        "partitions:\n  - name: default\n    preemption: {monitor: {enabled: true, max_wait_ms: 3000}}\n"
        f"    queues:\n      - name: root\n        submitacl: '*'\n        queues:\n{queues}"
    )
    engine = Engine(EngineOptions(reservation_delay_ns=None))
    engine.apply(RegisterManager("bench", config), 0)
    capacity, one = Resources({"vcore": 20, "memory": 20}), Resources({"vcore": 1, "memory": 1})
    nodes = tuple(NodeSpec(f"n{at:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for at in range(NODES))
    engine.apply(UpdateNodes("bench", nodes), 0)
    paths = [f"root.p{parent}.q{leaf}" for parent in range(PARENTS) for leaf in range(leaves // PARENTS)]
    added = tuple(ApplicationSpec(f"{path}-{at}", path, PARTITION, "u") for path in paths for at in range(applications))
    engine.apply(UpdateApplications("bench", added), 0)
    running = tuple(
        AllocationSpec(
            f"k{at}",
            f"{paths[at % hogs]}-{at // hogs % applications}",
            PARTITION,
            one,
            node_id=f"n{at % NODES:05}",
            created_s=at + 1,
        )
        for at in range(ALLOCATIONS)
    )
    engine.apply(UpdateAllocations("bench", running), 0)
    waiting = paths[hogs:]
    asks = tuple(
        AllocationSpec(f"ask{at}", f"{waiting[at % len(waiting)]}-0", PARTITION, one, allow_preempt_other=True)
        for at in range(ALLOCATIONS // 2)
    )
    engine.apply(UpdateAllocations("bench", asks), 0)
    slices(engine, SECOND_NS)
    return engine


def slices(engine: Engine, now_ns: int) -> list[float]:
    """Seconds of processor time that each slice took until there was nothing more to do."""
    taken: list[float] = []
    more = True
    while more:
        began = time.process_time()
        more = engine.cycle(now_ns, 250).more
        taken.append(time.process_time() - began)
    return taken
