"""What long lists over REST cost: 5,000 nodes, 1,000 queues, 10,000 applications, 100,000 allocations.

Times are those of the processor. Under load a list gets about half of it, so its client waits about twice as long.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

from core.domain.commands import AllocationSpec, ApplicationSpec, UpdateAllocations, UpdateApplications
from core.domain.resources import Resources
from core.partition.engine import Engine
from core.partition.views.door import PartitionViews
from core.rest.answers import encode
from core.rest.documents.applications import application
from core.rest.documents.nodes import node
from core.rest.documents.users import user
from core.rest.handlers.queues import queue_tree
from core.rest.turns import encode_list
from tests.bench.engine import PARTITION, engine_of
from tests.bench.report import Figure, show

NODES, LEAVES, APPLICATIONS, ALLOCATIONS = 5_000, 999, 10_000, 100_000
MOST_MS = 150


def report(runs: int) -> bool:
    views = _filled().views(PARTITION, 1)
    assert views is not None
    gc.collect()
    gc.freeze()
    lists: dict[str, Callable[[], Awaitable[list[bytes]]]] = {
        "nodes": lambda: encode_list(map(node, views.nodes())),
        "applications": lambda: encode_list(map(application, views.applications())),
        "users": lambda: encode_list(map(user, views.users())),
        "queues": lambda: _queues(views),
    }
    figures = []
    for name, make in lists.items():
        first = asyncio.run(_cost(make))
        figures.append(Figure(f"{name}, nothing shown before", "ms", [first], each_s=first / 1_000))
        costs = [asyncio.run(_cost(make)) for _ in range(runs)]
        figures.append(Figure(name, "ms", costs, MOST_MS, at_most=True, each_s=statistics.median(costs) / 1_000))
    gc.unfreeze()
    held = f"{NODES:,} nodes, {LEAVES + 1:,} queues, {APPLICATIONS:,} applications, {ALLOCATIONS:,} allocations"
    return show(f"lists over REST: {held}", figures, "half of 300 ms each: under load a list gets half of the time")


async def _cost(make: Callable[[], Awaitable[list[bytes]]]) -> float:
    """Milliseconds of the processor."""
    began = time.process_time()
    await make()
    return (time.process_time() - began) * 1_000


async def _queues(views: PartitionViews) -> list[bytes]:
    return [encode(await queue_tree(views))]


def _filled() -> Engine:
    engine = engine_of(NODES, LEAVES, "fair")
    added = tuple(
        ApplicationSpec(f"app-{n}", f"root.q{n % LEAVES}", PARTITION, user=f"user-{n % 50}")
        for n in range(APPLICATIONS)
    )
    engine.apply(UpdateApplications("bench", added), 0)
    size = Resources({"vcore": 100, "memory": 1 << 28})
    specs = tuple(
        AllocationSpec(
            f"task-{n:06}",
            f"app-{n % APPLICATIONS}",
            PARTITION,
            size,
            tags=(("kubernetes.io/meta/namespace", "work"), ("kubernetes.io/meta/podName", f"pod-{n}")),
        )
        for n in range(ALLOCATIONS)
    )
    engine.apply(UpdateAllocations("bench", specs), 1)
    while engine.cycle(1, 500).more:
        pass
    return engine
