"""Gangs that preempt as units: a thousand of them on full nodes, and single attempts on a large cluster.

``python -m tests.bench.gang_preemption [--gangs 1000] [--nodes 1000] [--large 5000]`` measures processor time, since
other programs may run beside it. Victims leave as soon as they are told.
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
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.partition.engine import Engine
from tests.bench.core_process import RM

PARTITION: Final = f"[{RM}]default"
SIZE: Final = Resources({"vcore": 1_000, "memory": 1 << 30})
SECOND: Final = 10**9
RACKS: Final = 200
CONFIG: Final = """
partitions:
  - name: default
    topology: [rack]
    preemption: {{governor: {{victims: {{guarantee: {{ask: 0, interval: 0}}}}}}}}
    queues:
      - name: root
        submitacl: "*"
        properties: {{preemption.delay: 1s}}
        queues:
          - {{name: load}}
          - {{name: gangs, resources: {{guaranteed: {{vcore: {cores}, memory: {cores}Gi}}}}}}
"""


class Cluster:
    """An engine with full nodes, *tasks* on each, and a queue that all of it is guaranteed to."""

    def __init__(self, nodes: int, tasks: int) -> None:
        self.engine = Engine()
        self.now_ns = 1_000 * SECOND
        self.slices: list[float] = []
        self._tasks = tasks
        self.engine.apply(RegisterManager(RM, CONFIG.format(cores=nodes * tasks)), self.now_ns)
        capacity = Resources({name: amount * tasks for name, amount in SIZE.items()})
        made = (
            NodeSpec(f"n{n:05}", NodeAction.CREATE, PARTITION, (("rack", f"r{n % RACKS:03}"),), capacity)
            for n in range(nodes)
        )
        self.engine.apply(UpdateNodes(RM, tuple(made)), self.now_ns)
        self.engine.apply(
            UpdateApplications(
                RM, tuple(ApplicationSpec(f"load-{n}", "root.load", PARTITION, user="ann") for n in range(100))
            ),
            self.now_ns,
        )
        running = (
            AllocationSpec(f"t-{n}-{t}", f"load-{n % 100}", PARTITION, SIZE, node_id=f"n{n:05}", created_s=t)
            for n in range(nodes)
            for t in range(tasks)
        )
        self.engine.apply(UpdateAllocations(RM, tuple(running)), self.now_ns)
        self._run(self.engine)

    def ask_for_gang(self, name: str, members: int, request: TopologyRequest | None = None) -> None:
        """Has a hard gang of *members* ask that is old enough to preempt."""
        whole = Resources({t: amount * members for t, amount in SIZE.items()})
        spec = ApplicationSpec(name, "root.gangs", PARTITION, "bob", placeholder_ask=whole, gang_style="Hard")
        self.engine.apply(UpdateApplications(RM, (spec,)), self.now_ns)
        asks = (
            AllocationSpec(
                f"{name}-{n}", name, PARTITION, SIZE, task_group="g", placeholder=True, allow_preempt_other=True,
                created_s=1, topology=request,
            )
            for n in range(members)
        )  # fmt: skip
        self.engine.apply(UpdateAllocations(RM, tuple(asks)), self.now_ns)

    def _run(self, engine: Engine) -> list[Effect]:
        effects: list[Effect] = []
        more = True
        while more:
            began = time.process_time()
            result = engine.cycle(self.now_ns, 200)
            self.slices.append((time.process_time() - began) * 1000)
            effects += result.effects
            more = result.more
        return effects

    def settle(self) -> tuple[int, int]:
        """Plays until nothing more happens at this moment. Returns how many were placed, and how many left."""
        placed = left = 0
        while True:
            effects = self._run(self.engine)
            placed += sum(isinstance(effect, Allocated) for effect in effects)
            gone = tuple(
                ReleaseSpec(PARTITION, e.application_id, e.key, TerminationType.PREEMPTED_BY_SCHEDULER)
                for e in effects
                if isinstance(e, Released) and e.termination == TerminationType.PREEMPTED_BY_SCHEDULER
            )
            if not gone:
                return placed, left
            left += len(gone)
            self.engine.apply(UpdateAllocations(RM, releases=gone), self.now_ns)


def preempt_for_many(gangs: int, nodes: int) -> None:
    cluster = Cluster(nodes, 8)
    for n in range(gangs):
        cluster.ask_for_gang(f"gang-{n}", 8)
    cluster.slices.clear()
    began, placed, left, rounds = time.process_time(), 0, 0, 0
    while placed < gangs * 8 and rounds < 200:
        more, gone = cluster.settle()
        placed, left, rounds = placed + more, left + gone, rounds + 1
        cluster.now_ns += SECOND
    took = time.process_time() - began
    rate, longest = left / took, max(cluster.slices)
    print(f"{gangs} gangs of 8 on {nodes} full nodes: {placed // 8} placed after {left} victims in {rounds} rounds,")
    print(f"    {rate:.0f} victims/s of processor time, longest slice {longest:.1f} ms")


def preempt_for_one(nodes: int, tasks: int, attempts: int, request: TopologyRequest | None) -> None:
    cluster = Cluster(nodes, tasks)
    took: list[float] = []
    slices: list[float] = []
    for n in range(attempts):
        cluster.now_ns += 2 * SECOND
        cluster.settle()
        cluster.slices.clear()
        cluster.ask_for_gang(f"gang-{n}", 16, request)
        began = time.process_time()
        effects = cluster._run(cluster.engine)
        took.append((time.process_time() - began) * 1000)
        slices += cluster.slices
        left = sum(isinstance(effect, Released) for effect in effects)
        assert left == 16, f"{left} victims"
        gone = tuple(
            ReleaseSpec(PARTITION, e.application_id, e.key, TerminationType.PREEMPTED_BY_SCHEDULER)
            for e in effects
            if isinstance(e, Released)
        )
        cluster.engine.apply(UpdateAllocations(RM, releases=gone), cluster.now_ns)
        cluster._run(cluster.engine)
    took.sort()
    slices.sort()
    where = "" if request is None else f" that requires one of {RACKS} racks"
    middle, worst = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(f"a gang of 16{where} at {nodes} nodes and {nodes * tasks} allocations:")
    print(f"    attempt median {middle:.1f} ms, p99 {worst:.1f} ms")
    print(f"    slices p99 {slices[int(len(slices) * 0.99)]:.1f} ms, longest {slices[-1]:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=5_000)
    parser.add_argument("--attempts", type=int, default=50)
    arguments = parser.parse_args()
    preempt_for_one(arguments.large, 20, arguments.attempts, None)
    preempt_for_one(arguments.large, 20, arguments.attempts, TopologyRequest(Wish.REQUIRED, "rack"))
    preempt_for_many(arguments.gangs, arguments.nodes)


if __name__ == "__main__":
    main()
