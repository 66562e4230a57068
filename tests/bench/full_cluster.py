"""A full cluster with a backlog that fits no node: what a release costs, and what waiting costs.

Without spare room the asks wait for quota, since the root's is what the nodes offer. With spare room on every node, but
too little for any ask, they wait for a node; having waited longer than the reservation delay, the first of them have
nodes kept free, as many as could ever be granted (scheduling.md 8).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

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
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from tests.bench import core_process
from tests.bench.core_process import RM
from tests.bench.report import Figure, show

PARTITION = f"[{RM}]default"
SECOND_NS = 10**9


@dataclass(frozen=True, slots=True)
class Workload:
    """*waiting* asks of *shapes* sizes, 5 cores and more; what runs has one each, *spare* cores of a node are free."""

    spare: int
    nodes: int = 1_000
    per_node: int = 10
    waiting: int = 10_000
    applications: int = 100
    shapes: int = 32
    releases: int = 1_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """Microseconds per release with the cycles it causes, per cycle with nothing to do, and per idle minute."""

    release_us: float
    cycle_us: float
    minute_us: float


def _full(workload: Workload) -> Engine:
    engine = Engine()
    engine.apply(RegisterManager(RM, core_process.flat_queues(10)), 0)
    capacity = Resources({"vcore": (workload.per_node + workload.spare) * 1_000})
    nodes = (NodeSpec(f"node-{n:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(workload.nodes))
    engine.apply(UpdateNodes(RM, tuple(nodes)), 0)
    applications = (
        ApplicationSpec(f"app-{n}", f"root.q{n % 10}", PARTITION, user="bench") for n in range(workload.applications)
    )
    engine.apply(UpdateApplications(RM, tuple(applications)), 0)
    one = Resources({"vcore": 1_000})
    running = (
        AllocationSpec(f"run-{n}", f"app-{n % workload.applications}", PARTITION, one)
        for n in range(workload.nodes * workload.per_node)
    )
    engine.apply(UpdateAllocations(RM, tuple(running)), 0)
    _settle(engine, 0)
    sizes = [Resources({"vcore": 5_000 + 10 * n}) for n in range(workload.shapes)]
    waiting = (
        AllocationSpec(f"wait-{n}", f"app-{n % workload.applications}", PARTITION, sizes[n % workload.shapes])
        for n in range(workload.waiting)
    )
    engine.apply(UpdateAllocations(RM, tuple(waiting)), SECOND_NS)
    _pass_time(engine, SECOND_NS, 60 * SECOND_NS)
    return engine


def _settle(engine: Engine, now_ns: int) -> None:
    while engine.cycle(now_ns, 250).more:
        pass


def _pass_time(engine: Engine, now_ns: int, until_ns: int) -> None:
    """Call the engine when it wants to be called, as the server does."""
    _settle(engine, now_ns)
    while (wakeup_ns := engine.next_wakeup_ns()) is not None and wakeup_ns <= until_ns:
        now_ns = max(wakeup_ns, now_ns + 1_000_000)
        _settle(engine, now_ns)


def _measure(workload: Workload) -> Measurement:
    engine = _full(workload)
    now_ns = 61 * SECOND_NS
    began = time.process_time()
    _pass_time(engine, now_ns, now_ns + 60 * SECOND_NS)
    minute_s = time.process_time() - began
    now_ns += 60 * SECOND_NS
    began = time.process_time()
    for _ in range(1_000):
        engine.cycle(now_ns, 250)
    cycle_s = (time.process_time() - began) / 1_000
    began = time.process_time()
    for number in range(workload.releases):
        ended = ReleaseSpec(PARTITION, f"app-{number % workload.applications}", f"run-{number}")
        now_ns += 10_000_000
        engine.apply(UpdateAllocations(RM, releases=(ended,)), now_ns)
        _settle(engine, now_ns)
    release_s = (time.process_time() - began) / workload.releases
    return Measurement(release_s * 1e6, cycle_s * 1e6, minute_s * 1e6)


def report(runs: int) -> bool:
    expected = "a release tests every size that waits, 6 us; every 100 ms all that wait are looked at for reservations"
    results = [
        _report(Workload(spare=spare), runs, how, expected)
        for spare, how in ((0, "wait for quota"), (3, "wait for a node"))
    ]
    return all(results)


def _report(workload: Workload, runs: int, how: str, expected: str) -> bool:
    measurements = [_measure(workload) for _ in range(runs)]

    def figure(label: str, values: list[float], most: float) -> Figure:
        return Figure(label, "us", values, most, at_most=True, each_s=sum(values) / len(values) / 1e6)

    figures = [
        figure("a release with what it wakes", [m.release_us for m in measurements], 2_000),
        figure("a cycle without anything to do", [m.cycle_us for m in measurements], 20),
        figure("a minute in which nothing happens", [m.minute_us for m in measurements], 1_000),
    ]
    title = (
        f"a full cluster, engine alone: {workload.nodes:,} nodes, {workload.waiting:,} asks of {workload.shapes} sizes "
        f"{how}, a release every 10 ms"
    )
    return show(title, figures, expected)
