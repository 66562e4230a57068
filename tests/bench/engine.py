"""The engine alone: commands in, decisions out, no network. What is left for decode, encode and transport to cost."""

from __future__ import annotations

import gc
import random
import statistics
import time

from core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from core.domain.effects import Allocated, Released
from core.domain.resources import Resources
from core.partition.engine import Engine
from core.service.runner import SLICE_BUDGET

PARTITION = "[bench]default"


def _engine(nodes: int, leaves: int, policy: str, sort: str = "fifo") -> Engine:
    queues = "\n".join(
        f"          - {{name: q{n}, properties: {{application.sort.policy: {sort}}}}}" for n in range(leaves)
    )
    config = (
        "partitions:\n  - name: default\n"
        f"    nodesortpolicy: {{type: {policy}}}\n"
        f"    queues:\n      - name: root\n        submitacl: '*'\n        queues:\n{queues}\n"
    )
    engine = Engine()
    engine.apply(RegisterManager("bench", config), 0)
    capacity = Resources({"vcore": 64_000, "memory": 256 << 30})
    specs = tuple(NodeSpec(f"node-{n:06}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(nodes))
    engine.apply(UpdateNodes("bench", specs), 0)
    return engine


def _place(engine: Engine, asks: int, leaves: int, applications: int, *, equal: bool) -> float:
    """Placements per second for *asks* asks over *leaves* x *applications*."""
    added = tuple(
        ApplicationSpec(f"app-{leaf}-{n}", f"root.q{leaf}", PARTITION, user="bench")
        for leaf in range(leaves)
        for n in range(applications)
    )
    engine.apply(UpdateApplications("bench", added), 0)
    dice = random.Random(7)
    sizes = [
        Resources({"vcore": 1_000 if equal else dice.randint(1, 8) * 1_000, "memory": dice.randint(1, 16) << 30})
        for _ in range(1 if equal else 128)
    ]
    specs = tuple(
        AllocationSpec(f"ask-{n}", added[n % len(added)].application_id, PARTITION, sizes[n % len(sizes)])
        for n in range(asks)
    )
    began = time.perf_counter()
    engine.apply(UpdateAllocations("bench", specs), 1)
    placed, more = 0, True
    while more:
        result = engine.cycle(1, 500)
        placed += sum(isinstance(effect, Allocated) for effect in result.effects)
        more = result.more
    took = time.perf_counter() - began
    if placed != asks:
        raise AssertionError(f"{placed} of {asks} asks were placed")
    return placed / took


def _create(queues: int) -> float:
    """Dynamic queues made per second, one application with a quota tag each, one request each."""
    engine = Engine()
    engine.apply(RegisterManager("bench", ""), 0)
    quota = ("namespace.resourcequota", '{"resources":{"vcore":{"value":2000}}}')
    specs = [
        ApplicationSpec(f"app-{n}", "", PARTITION, user="bench", tags=(("namespace", f"ns-{n}"), quota))
        for n in range(queues)
    ]
    began = time.perf_counter()
    for spec in specs:
        engine.apply(UpdateApplications("bench", (spec,)), 1)
        engine.cycle(1, 500)
    return queues / (time.perf_counter() - began)


def _enforce(leaves: int, allocations: int, part: float) -> tuple[float, float]:
    """A parent's max is lowered by *part* of what runs below it: milliseconds of all slices, and of the longest."""

    def config(most: int) -> str:
        queues = ", ".join(f"{{name: q{n}}}" for n in range(leaves))
        parent = (
            f"{{name: p, parent: true, properties: {{quota.preemption.delay: '1'}}, "
            f"resources: {{max: {{memory: {most}}}}}, queues: [{queues}]}}"
        )
        root = f"{{name: root, submitacl: '*', queues: [{parent}]}}"
        return f"partitions: [{{name: default, preemption: {{quotapreemptionenabled: true}}, queues: [{root}]}}]"

    engine = Engine()
    engine.apply(RegisterManager("bench", config(1 << 60)), 0)
    capacity = Resources({"memory": 1 << 40})
    nodes = tuple(NodeSpec(f"node-{n}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(1_000))
    engine.apply(UpdateNodes("bench", nodes), 0)
    added = tuple(ApplicationSpec(f"app-{n}", f"root.p.q{n}", PARTITION, user="bench") for n in range(leaves))
    engine.apply(UpdateApplications("bench", added), 0)
    dice = random.Random(7)
    sizes = [dice.randint(1, 64) << 30 for _ in range(allocations)]
    specs = tuple(
        AllocationSpec(
            f"k-{n}", f"app-{dice.randrange(leaves)}", PARTITION, Resources({"memory": size}),
            priority=dice.randint(0, 3), node_id=f"node-{n % 1_000}", created_s=dice.randint(0, 9_999),
        )
        for n, size in enumerate(sizes)
    )  # fmt: skip
    engine.apply(UpdateAllocations("bench", specs), 0)
    engine.apply(UpdateConfiguration("bench", config(int(sum(sizes) * (1 - part)))), 0)
    # As in the service, where memory is tidied up between slices.
    gc.collect()
    gc.disable()
    slices: list[float] = []
    victims, more = 0, True
    while more:
        began = time.perf_counter()
        result = engine.cycle(10**9, SLICE_BUDGET)
        slices.append(1_000 * (time.perf_counter() - began))
        victims += sum(isinstance(effect, Released) for effect in result.effects)
        more = result.more
    gc.enable()
    if not victims:
        raise AssertionError("nobody was told to leave")
    return sum(slices), max(slices)


CASES = (
    ("P1: 5,000 nodes, 10,000 equal asks, 2 queues", 5_000, 10_000, 2, 1, "fair", "fifo", True),
    ("P2: 5,000 nodes, 50,000 asks, 100 x 10, fair", 5_000, 50_000, 100, 10, "fair", "fair", False),
    ("P3: the same with binpacking", 5_000, 50_000, 100, 10, "binpacking", "fair", False),
)


def report(runs: int) -> None:
    """Print placements/s for each case, median and spread over *runs*."""
    print("engine alone, asks taken in and placed")
    for label, nodes, asks, leaves, applications, policy, sort, equal in CASES:
        rates = [
            _place(_engine(nodes, leaves, policy, sort), asks, leaves, applications, equal=equal) for _ in range(runs)
        ]
        print(f"  {label:<52}{statistics.median(rates):>10,.0f}/s   ({min(rates):,.0f} to {max(rates):,.0f})")
    print("engine alone, a lowered max enforced over 1,000 leaves and 100,000 allocations")
    for part in (0.02, 0.2):
        times = [_enforce(1_000, 100_000, part) for _ in range(runs)]
        total, longest = statistics.median(t for t, _ in times), statistics.median(t for _, t in times)
        print(f"  {f'{part:.0%} to be freed':<52}{total:>10,.0f} ms   (longest slice {longest:.1f} ms)")
    print("engine alone, queues made by placement, each with a cycle")
    for queues in (1_000, 5_000, 20_000):
        rates = [_create(queues) for _ in range(runs)]
        label = f"{queues:,} namespaces"
        print(f"  {label:<52}{statistics.median(rates):>10,.0f}/s   ({min(rates):,.0f} to {max(rates):,.0f})")
