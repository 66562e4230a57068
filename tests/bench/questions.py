"""What questions cost in a full cluster: ``python -m tests.bench.questions``. Target: a second each."""

from __future__ import annotations

import gc
import os
import random
import statistics
from collections.abc import Callable, Mapping

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
from kornel.core.telling.explain import Named
from kornel.core.telling.reader import Reader
from kornel.core.telling.what_if.supposition import SupposeAsk, SupposeNodeLost, SupposePriority, SupposeQuota
from tests.supposing import suppose as suppose_apart

PARTITION = "[bench]default"
SECOND = 10**9
NOW_NS = 100 * SECOND
LEAVES = 100
BUSY = 90
"""Leaves that hold everything; the others are owed their guarantee."""


def cluster(nodes: int = 5_000, allocations: int = 100_000, waiting: int = 2_000) -> Engine:
    """A cluster without any vcore left, and asks that wait."""
    queues = ", ".join(f"{{name: q{n}, resources: {{guaranteed: {{vcore: 1500}}}}}}" for n in range(LEAVES))
    config = (
        "partitions: [{name: default, preemption: {quotapreemptionenabled: true}, queues: [{name: root,"
        f" submitacl: '*', properties: {{quota.preemption.delay: 60s}}, queues: [{queues}]}}]}}]"
    )
    engine = Engine()
    engine.apply(RegisterManager("bench", config), 0)
    capacity = Resources({"vcore": 1_600 * allocations // nodes, "memory": 256 << 30})
    specs = tuple(NodeSpec(f"node-{n:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(nodes))
    engine.apply(UpdateNodes("bench", specs), 0)
    applications = tuple(
        ApplicationSpec(f"app-{leaf}-{n}", f"root.q{leaf}", PARTITION, user="bench")
        for leaf in range(LEAVES)
        for n in range(10)
    )
    engine.apply(UpdateApplications("bench", applications), 0)
    dice = random.Random(1)

    def spec(key: str, vcore: int, node_id: str = "") -> AllocationSpec:
        size = Resources({"vcore": vcore, "memory": dice.randint(1, 8) << 30})
        owner = f"app-{dice.randrange(BUSY)}-{dice.randrange(10)}"
        return AllocationSpec(
            key, owner, PARTITION, size, dice.randint(0, 3), node_id, created_s=dice.randint(0, 90)
        )  # fmt: skip

    running = tuple(spec(f"k{n}", 1_600, f"node-{n % nodes:05}") for n in range(allocations))
    engine.apply(UpdateAllocations("bench", running), 0)
    asks = tuple(spec(f"p{n}", dice.choice([2_000, 4_000])) for n in range(waiting))
    owed = AllocationSpec("owed", "app-95-0", PARTITION, Resources({"vcore": 4_000}), allow_preempt_other=True)
    engine.apply(UpdateAllocations("bench", (*asks, owed)), NOW_NS)
    while engine.cycle(NOW_NS, 1_000).more:
        pass
    return engine


def questions(engine: Engine) -> Mapping[str, Callable[[], object]]:
    """What is asked, by its name."""
    large = Resources({"vcore": 4_000, "memory": 4 << 30})
    reader = Reader(engine, lambda: NOW_NS)

    def suppose(question: SupposeAsk | SupposeNodeLost | SupposeQuota | SupposePriority) -> Callable[[], object]:
        return lambda: suppose_apart(reader[PARTITION], question)

    return {
        "what if: an ask that preempts": suppose(SupposeAsk(large, "root.q95", priority=3)),
        "what if: a gang of 100 that preempts": suppose(SupposeAsk(large, "root.q95", asks=100, priority=3)),
        "what if: a node lost": suppose(SupposeNodeLost("node-00007")),
        "what if: a max lowered": suppose(SupposeQuota("root.q3", {"vcore": 1_000_000}, {"vcore": 1_000_000})),
        "what if: another priority of an ask": suppose(SupposePriority("p3", 9)),
        "what if: another priority of an allocation": suppose(SupposePriority("k3", -9)),
        "explain: an ask": lambda: reader[PARTITION].explain(Named("owed")),
        "explain: an application": lambda: reader[PARTITION].explain(Named("app-95-0")),
    }


def _used_s() -> float:
    """The processor time of this process and of its copies that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measured(engine: Engine, runs: int = 5) -> dict[str, tuple[float, float]]:
    """Milliseconds of processor time of the first time each is asked, and the median of *runs* more."""
    found: dict[str, tuple[float, float]] = {}
    gc.collect()
    gc.disable()  # As in the service, where memory is tidied up between slices.
    try:
        for name, ask in questions(engine).items():
            times: list[float] = []
            for _ in range(runs + 1):
                began = _used_s()
                ask()
                times.append(1_000 * (_used_s() - began))
            found[name] = (times[0], statistics.median(times[1:]))
    finally:
        gc.enable()
    return found


if __name__ == "__main__":
    print("questions, 5,000 nodes, 100,000 allocations, 2,001 pending asks")
    for label, (first, again) in measured(cluster()).items():
        print(f"  {label:<52}{again:>10.1f} ms   (first time {first:.1f} ms)")
