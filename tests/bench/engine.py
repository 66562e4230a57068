"""The engine alone: commands in, decisions out, no network. What is left for decode, encode and transport to cost.

Times are those of the processor, so that other load on the machine counts for less.
"""

from __future__ import annotations

import gc
import random
import time

from kornel.core.domain.commands import (
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
from kornel.core.domain.effects import Allocated, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.service.runner.runner import SLICE_BUDGET
from tests.bench.report import Figure, show

PARTITION = "[bench]default"


def engine_of(nodes: int, leaves: int, policy: str, sort: str = "fifo") -> Engine:
    """An engine with *nodes* equal nodes and *leaves* queues below root, q0 and on."""
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
    began = time.process_time()
    engine.apply(UpdateAllocations("bench", specs), 1)
    placed, more = 0, True
    while more:
        result = engine.cycle(1, 500)
        placed += sum(isinstance(effect, Allocated) for effect in result.effects)
        more = result.more
    took = time.process_time() - began
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
    began = time.process_time()
    for spec in specs:
        engine.apply(UpdateApplications("bench", (spec,)), 1)
        engine.cycle(1, 500)
    return queues / (time.process_time() - began)


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
        began = time.process_time()
        result = engine.cycle(10**9, SLICE_BUDGET)
        slices.append(1_000 * (time.process_time() - began))
        victims += sum(isinstance(effect, Released) for effect in result.effects)
        more = result.more
    gc.enable()
    if not victims:
        raise AssertionError("nobody was told to leave")
    return sum(slices), max(slices)


CASES = (
    ("P1: 5,000 nodes, 10,000 equal asks, 2 queues", 5_000, 10_000, 2, 1, "fair", "fifo", True),
    ("P2: 5,000 nodes, 50,000 asks, 100 x 10", 5_000, 50_000, 100, 10, "fair", "fair", False),
    ("P3: the same with binpacking", 5_000, 50_000, 100, 10, "binpacking", "fair", False),
)
LEAST = (20_000, 12_000, 12_000)


def report(runs: int, *, thorough: bool) -> bool:
    """Measure and print; *thorough*: with more queues too."""
    plain = [
        Figure(
            label,
            "/s",
            [_place(engine_of(nodes, leaves, policy, sort), asks, leaves, each, equal=equal) for _ in range(runs)],
            least,
        )
        for (label, nodes, asks, leaves, each, policy, sort, equal), least in zip(CASES, LEAST, strict=True)
    ]
    expected = "P1 60,000/s, P2 and P3 30,000/s: what they were before gangs, limits, predicates and reservations"
    reached = show("engine alone, asks taken in and placed", plain, expected)
    made = [
        Figure(f"{queues:,} namespaces", "/s", [_create(queues) for _ in range(runs)], 4_000)
        for queues in (1_000, 5_000, 20_000)[: 3 if thorough else 2]
    ]
    enforced = [(part, [_enforce(1_000, 100_000, part) for _ in range(runs)]) for part in (0.02, 0.2)]
    lowered = [
        figure
        for part, times in enforced
        for figure in (
            Figure(f"{part:.0%} to be freed", "ms", [total for total, _ in times], 1_000, at_most=True, each_s=0),
            Figure("the longest slice of it", "ms", [longest for _, longest in times], each_s=0),
        )
    ]
    expected = "200 ms for 2 %, 350 ms for 20 %, in slices of 5 ms"
    title = "engine alone, a lowered max enforced over 1,000 leaves and 100,000 allocations"
    reached = show(title, lowered, expected) and reached
    expected = "the same for the last as for the first: nothing that a queue costs grows with their number"
    return show("engine alone, queues made by placement, each with a cycle", made, expected) and reached
