"""Gangs as units on a full cluster: what those that do not fit cost, and one decision for a large gang.

``python -m tests.bench.gang_units [--gangs 1000] [--nodes 1000]`` fills every node, asks for gangs of eight, and frees
the cluster task by task: gangs are placed as soon as all of one fit. Then one gang of sixteen asks on a large cluster.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from tests.bench import core_process
from tests.bench.core_process import RM

PARTITION: Final = f"[{RM}]default"
MEMBERS: Final = 8
TASKS_A_NODE: Final = 8
SIZE: Final = Resources({"vcore": 1_000, "memory": 1 << 30})
CAPACITY: Final = Resources({"vcore": 1_000 * TASKS_A_NODE, "memory": TASKS_A_NODE << 30})


def fill_cluster(nodes: int, tasks: int) -> Engine:
    """An engine with full nodes, *tasks* on each."""
    engine = Engine()
    engine.apply(RegisterManager(RM, core_process.flat_queues(2)), 0)
    made = (NodeSpec(f"node-{n:05}", NodeAction.CREATE, PARTITION, capacity=CAPACITY) for n in range(nodes))
    engine.apply(UpdateNodes(RM, tuple(made)), 0)
    engine.apply(UpdateApplications(RM, (ApplicationSpec("load", "root.q0", PARTITION, user="ann"),)), 0)
    running = (
        AllocationSpec(f"load-{n}-{t}", "load", PARTITION, SIZE, node_id=f"node-{n:05}")
        for n in range(nodes)
        for t in range(tasks)
    )
    engine.apply(UpdateAllocations(RM, tuple(running)), 0)
    return engine


def ask_for_gangs(engine: Engine, gangs: int, members: int, first: int = 0) -> None:
    """Has *gangs* hard gangs of *members* ask."""
    whole = Resources({name: amount * members for name, amount in SIZE.items()})
    names = [f"gang-{first + n}" for n in range(gangs)]
    added = tuple(
        ApplicationSpec(name, "root.q1", PARTITION, user="ann", placeholder_ask=whole, gang_style="Hard")
        for name in names
    )
    engine.apply(UpdateApplications(RM, added), 0)
    asks = (
        AllocationSpec(f"{name}-{n}", name, PARTITION, SIZE, task_group="g", placeholder=True)
        for name in names
        for n in range(members)
    )
    engine.apply(UpdateAllocations(RM, tuple(asks)), 0)


def run_slices(engine: Engine, now_ns: int) -> tuple[int, float]:
    """Runs slices until nothing is left to do. Returns what was placed, and how long the longest slice took in ms."""
    placed, longest = 0, 0.0
    more = True
    while more:
        began = time.perf_counter()
        result = engine.cycle(now_ns, 200)
        longest = max(longest, (time.perf_counter() - began) * 1000)
        more = result.more
        placed += sum(isinstance(effect, Allocated) for effect in result.effects)
    return placed, longest


def free_bit_by_bit(gangs: int, nodes: int) -> None:
    engine = fill_cluster(nodes, TASKS_A_NODE)
    began = time.perf_counter()
    ask_for_gangs(engine, gangs, MEMBERS)
    _, longest = run_slices(engine, 0)
    took = time.perf_counter() - began
    print(f"{gangs} gangs of {MEMBERS} find {nodes} nodes full: {took:.2f} s, longest slice {longest:.1f} ms")
    placed, released, worst, spent = 0, 0, 0.0, 0.0
    for t in range(TASKS_A_NODE):
        for n in range(nodes):
            began = time.perf_counter()
            engine.apply(UpdateAllocations(RM, (), (), (ReleaseSpec(PARTITION, "load", f"load-{n}-{t}"),)), 0)
            got, longest = run_slices(engine, 0)
            spent += time.perf_counter() - began
            placed, released, worst = placed + got, released + 1, max(worst, longest)
    print(
        f"{released} tasks end one by one: {placed // MEMBERS} gangs placed, {spent / released * 1e6:.0f} us for each,"
        f" longest slice {worst:.1f} ms"
    )


def place_one_large(nodes: int, tasks: int) -> None:
    engine = fill_cluster(nodes, tasks)
    took: list[float] = []
    slices: list[float] = []
    for n in range(50):
        ask_for_gangs(engine, 1, 16, first=n)
        began = time.perf_counter()
        placed, longest = run_slices(engine, 0)
        took.append((time.perf_counter() - began) * 1000)
        slices.append(longest)
        assert placed in (0, 16)
    took.sort()
    print(
        f"a gang of 16 at {nodes} nodes and {nodes * tasks} allocations: median {took[25]:.1f} ms,"
        f" longest {took[-1]:.1f} ms, longest slice {max(slices):.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=5_000)
    arguments = parser.parse_args()
    free_bit_by_bit(arguments.gangs, arguments.nodes)
    place_one_large(arguments.large, TASKS_A_NODE - 1)


if __name__ == "__main__":
    main()
