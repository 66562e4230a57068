"""Gangs that preempt as units: a thousand of them on full nodes, and single attempts on a large cluster.

``python -m tests.bench.gang_preemption`` measures processor time, since other programs may run beside it, without
the garbage collector, as a core that serves keeps it from stopping everything. Victims leave as soon as they are told.
"""

from __future__ import annotations

import gc
import time
from typing import Final, NamedTuple

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
from kornel.core.engine.engine import Engine
from tests.bench.core_process import RM
from tests.bench.report import Figure, show

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
          - {{name: load{kept}}}
          - {{name: gangs, resources: {{guaranteed: {{vcore: {cores}, memory: {cores}Gi}}}}}}
"""


class Cluster:
    """An engine with full nodes, *tasks* on each, and a queue that all of it is guaranteed to, except what the tasks'
    queue *keeps* (in tasks)."""

    def __init__(self, nodes: int, tasks: int, keeps: int = 0) -> None:
        self.engine = Engine()
        self.now_ns = 1_000 * SECOND
        self.slices: list[float] = []
        self._tasks = tasks
        kept = f", resources: {{guaranteed: {{vcore: {keeps}, memory: {keeps}Gi}}}}" if keeps else ""
        self.engine.apply(RegisterManager(RM, CONFIG.format(cores=nodes * tasks, kept=kept)), self.now_ns)
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
        self.run_slices()

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

    def run_slices(self) -> list[Effect]:
        """Runs slices until nothing is left to do at this moment."""
        effects: list[Effect] = []
        more = True
        while more:
            began = time.process_time()
            result = self.engine.cycle(self.now_ns, 200)
            self.slices.append((time.process_time() - began) * 1000)
            effects += result.effects
            more = result.more
        return effects

    def settle(self) -> tuple[int, int]:
        """Plays until nothing more happens at this moment. Returns how many were placed, and how many left."""
        placed = left = 0
        while True:
            effects = self.run_slices()
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


class Measured(NamedTuple):
    """What attempts took, and the slices in them, in ms of processor time, ascending."""

    attempts: list[float]
    slices: list[float]


def preempt_for_many(gangs: int, nodes: int) -> float:
    """Returns how many victims a second leave for *gangs* of eight members, all of which are placed in the end."""
    cluster = Cluster(nodes, 8)
    for n in range(gangs):
        cluster.ask_for_gang(f"gang-{n}", 8)
    began, placed, left, rounds = time.process_time(), 0, 0, 0
    while placed < gangs * 8:
        assert rounds < 200, f"{placed} of {gangs * 8} members were placed"
        more, gone = cluster.settle()
        placed, left, rounds = placed + more, left + gone, rounds + 1
        cluster.now_ns += SECOND
    return left / (time.process_time() - began)


def preempt_for_one(nodes: int, tasks: int, attempts: int, request: TopologyRequest | None) -> Measured:
    """Returns what attempts of gangs of sixteen take, one after the other, the first of them on a cluster that nobody
    has preempted in."""
    cluster = Cluster(nodes, tasks)
    found = Measured([], [])
    for n in range(attempts):
        cluster.now_ns += 2 * SECOND
        cluster.settle()
        cluster.slices.clear()
        cluster.ask_for_gang(f"gang-{n}", 16, request)
        began = time.process_time()
        effects = cluster.run_slices()
        found.attempts.append((time.process_time() - began) * 1000)
        found.slices.extend(cluster.slices)
        left = [effect for effect in effects if isinstance(effect, Released)]
        assert len(left) == 16, f"{len(left)} victims"
        gone = (ReleaseSpec(PARTITION, e.application_id, e.key, TerminationType.PREEMPTED_BY_SCHEDULER) for e in left)
        cluster.engine.apply(UpdateAllocations(RM, releases=tuple(gone)), cluster.now_ns)
        cluster.run_slices()
    return Measured(sorted(found.attempts), sorted(found.slices))


def refuse_one(nodes: int, tasks: int, attempts: int) -> Measured:
    """Returns what attempts take of gangs of sixteen that require a rack while guarantees let ten tasks go at most."""
    cluster = Cluster(nodes, tasks, keeps=nodes * tasks - 10)
    found = Measured([], [])
    for n in range(attempts):
        cluster.now_ns += 2 * SECOND
        cluster.settle()
        cluster.slices.clear()
        cluster.ask_for_gang(f"gang-{n}", 16, TopologyRequest(Wish.REQUIRED, "rack"))
        began = time.process_time()
        effects = cluster.run_slices()
        found.attempts.append((time.process_time() - began) * 1000)
        found.slices.extend(cluster.slices)
        assert not any(isinstance(effect, Released) for effect in effects), "a victim for a gang that cannot run"
    return Measured(sorted(found.attempts), sorted(found.slices))


def report(runs: int) -> bool:
    """Prints the victims a second of many gangs, and what single attempts take."""
    gc.collect()
    gc.disable()
    try:
        figures = [Figure("1,000 gangs of 8 on 1,000 full nodes, victims", "/s", [preempt_for_many(1_000, 1_000)])]
        for label, request in (("any nodes", None), ("required: rack", TopologyRequest(Wish.REQUIRED, "rack"))):
            found = preempt_for_one(5_000, 20, 10 * runs, request)
            later = found.attempts[:-1]  # The longest is the first: it looks at everything.
            figures += [
                Figure(f"a gang of 16 at 5,000 nodes, {label}: p99 after the first", "ms", [later[-1]], 50, True),
                Figure("    the first", "ms", found.attempts[-1:], 50, at_most=True),
                Figure("    p99 of the slices", "ms", [found.slices[len(found.slices) * 99 // 100]], 5, at_most=True),
            ]
        found = refuse_one(5_000, 20, 5 * runs)
        figures += [
            Figure("a gang of 16 for which no rack can be freed", "ms", [found.attempts[-1]], 50, at_most=True),
            Figure("    p99 of the slices", "ms", [found.slices[len(found.slices) * 99 // 100]], 5, at_most=True),
        ]
    finally:
        gc.enable()
    return show("gangs that preempt as units, 200 racks, 100,000 allocations", figures, "processor time")


if __name__ == "__main__":
    report(2)
