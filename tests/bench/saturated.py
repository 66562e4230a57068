"""P19 and P21: saturated clusters in virtual time, with preemption and re-creation: how many task lives a second.

P19: the nodes and pods of the openb trace, or made ones of the same sort; ten leaves, each guaranteed a tenth of the
cluster; tasks come at 1.2 times what the cluster can run, one by one, and live a minute on average. Victims leave after
a second and come again. A task life is an allocation that has ended, in whatever way. Counted is the processor time of
the engine, called as the service calls it, once tasks end as fast as they begin; how much of it goes into looking for
what has changed since an ask was refused victims is counted apart.

P21: the mixed hour of ``tests/properties/test_mixed_hour.py``: 40 nodes and 2,000 asks, of which many preempt.
"""

from __future__ import annotations

import heapq
import json
import random
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

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
from kornel.core.preemption.guarantee.attempts.questions import QuestionGate
from kornel.shim_mock.trace import load_trace
from tests.bench.clocked import SECOND_NS, ClockedEngine, settle_garbage
from tests.bench.core_process import RM
from tests.bench.owed_queues import make_trace
from tests.bench.processes import apart
from tests.bench.table import Row
from tests.properties.test_mixed_hour import MODES, MixedHour

PARTITION: Final = f"[{RM}]default"
LEAVES: Final = 10
APPLICATIONS: Final = 5
"""The number of applications of each leaf."""
LIFE_S: Final = 60.0
LOAD: Final = 1.2
LEAVES_AFTER_NS: Final = SECOND_NS
LEAST: Final = 2_500
SEED: Final = 19


class Lived(NamedTuple):
    """*lives*: task lives for each second of processor time; *changes*: the part of it in looking for changes, in
    percent; *victims*: the part of the lives that preemption ended, in percent."""

    lives: float
    changes: float
    victims: float


def p19(folder: Path | None, runs: int, *, quick: bool) -> Iterator[Row]:
    """Task lives, with preemption and without."""
    nodes, lives, most_s = (300, 1_000, 10.0) if quick else (1_523, 20_000, 60.0)
    what = f"saturated, {nodes:,} nodes, {LEAVES} guaranteed queues"
    found = [apart(measure_lives, folder, nodes, lives, most_s, preempts=True) for _ in range(runs)]
    yield Row("P19", f"{what}: task lives, engine alone", "/s", [each.lives for each in found], LEAST)
    changes = [each.changes for each in found]
    yield Row("P19", "of which in looking for changes", "%", changes, 10, at_most=True)
    yield Row("P19", "lives that preemption ended", "%", [each.victims for each in found])
    plain = [apart(measure_lives, folder, nodes, lives, most_s, preempts=False) for _ in range(runs)]
    yield Row("P19", f"{what}: without preemption", "/s", [each.lives for each in plain])


def p21(runs: int, *, quick: bool) -> Iterator[Row]:
    """Processor time of the mixed hour."""
    for mode in list(MODES)[: 1 if quick else None]:
        took = [apart(measure_hour, mode) for _ in range(runs)]
        yield Row("P21", f"the mixed hour, 40 nodes, 2,000 asks, {mode}", "s", took)


def measure_hour(mode: str) -> float:
    """Returns the seconds of processor time of the mixed hour, with its shim."""
    hour = MixedHour(mode, 0)
    began = time.process_time()
    hour.play()
    return time.process_time() - began


def measure_lives(folder: Path | None, nodes: int, lives: int, most_s: float, *, preempts: bool) -> Lived:
    """Returns what at most *lives* task lives cost, and fewer if they take longer than *most_s* seconds."""
    cluster = Saturated(folder, nodes, preempts=preempts)
    cluster.play(2 * LIFE_S, 1 << 60, most_s)
    settle_garbage()
    cluster.clock.took_s = 0.0
    cluster.ended = cluster.victims = 0
    looked_s = 0.0
    sound = QuestionGate.sort_out

    def sort_out(*arguments: Any) -> Any:
        nonlocal looked_s
        began = time.process_time()
        try:
            return sound(*arguments)
        finally:
            looked_s += time.process_time() - began

    with mock.patch.object(QuestionGate, "sort_out", sort_out):
        cluster.play(1e9, lives, most_s)
    took_s = cluster.clock.took_s
    return Lived(cluster.ended / took_s, 100 * looked_s / took_s, 100 * cluster.victims / max(1, cluster.ended))


class Saturated:
    """A cluster of the trace to which more comes than it can run."""

    def __init__(self, folder: Path | None, nodes: int, *, preempts: bool) -> None:
        trace = load_trace(folder) if folder is not None else make_trace()
        self.clock = ClockedEngine()
        self.ended = self.victims = 0
        self._dice = random.Random(SEED)
        self._sizes = [Resources(pod.resources) for pod in trace.pods]
        self._preempts = preempts
        self._asked = 0
        self._ends: list[tuple[int, str]] = []
        """When each task that runs ends by itself, as a heap; tasks that have left before are skipped."""
        self._leaving: list[tuple[int, str]] = []
        self._running: dict[str, AllocationSpec] = {}
        self._capacities = [Resources(node.resources) for node in islice(_repeat(trace.nodes), nodes)]
        capacity = self._sum(self._capacities)
        self._fill(capacity)
        mean = self._sum(self._sizes)
        fit = min(capacity[t] / (amount / len(self._sizes)) for t, amount in mean.items() if amount)
        self._between_s = LIFE_S / (LOAD * fit)
        self._next_ns = self.clock.now_ns

    def play(self, seconds: float, lives: int, most_s: float) -> None:
        """Plays for so many seconds of virtual time, *lives* task lives or *most_s* seconds of processor time."""
        clock = self.clock
        until_ns, began = clock.now_ns + int(seconds * SECOND_NS), time.process_time()
        while clock.now_ns < until_ns and self.ended < lives and time.process_time() - began < most_s:
            heads = [heap[0][0] for heap in (self._ends, self._leaving) if heap]
            at_ns = min([self._next_ns, *heads])
            self._hear(clock.pass_time(at_ns, until_effect=True))
            if clock.now_ns < at_ns:
                continue
            if at_ns == self._next_ns:
                self._next_ns += 1 + int(self._dice.expovariate(1 / self._between_s) * SECOND_NS)
                self._ask(self._dice.choice(self._sizes), self._dice.randrange(LEAVES * APPLICATIONS))
            elif self._leaving and self._leaving[0][0] == at_ns:
                self._end(heapq.heappop(self._leaving)[1], TerminationType.PREEMPTED_BY_SCHEDULER)
            else:
                self._end(heapq.heappop(self._ends)[1], TerminationType.STOPPED_BY_RM)

    def _fill(self, capacity: Resources) -> None:
        send = self.clock.send
        guaranteed = {t: f"{amount // LEAVES}{'m' if t == 'vcore' else ''}" for t, amount in capacity.items() if amount}
        leaf = {"resources": {"guaranteed": guaranteed}, "properties": {"preemption.delay": "5s"}}
        root = {"name": "root", "submitacl": "*", "queues": [{"name": f"q{at}", **leaf} for at in range(LEAVES)]}
        partition = {"name": "default", "preemption": {"enabled": self._preempts}, "queues": [root]}
        send(RegisterManager(RM, json.dumps({"partitions": [partition]})))
        made = (
            NodeSpec(f"n{at:05}", NodeAction.CREATE, PARTITION, capacity=capacity)
            for at, capacity in enumerate(self._capacities)
        )
        send(UpdateNodes(RM, tuple(made)))
        added = (
            ApplicationSpec(f"a{at}", f"root.q{at % LEAVES}", PARTITION, user="bench")
            for at in range(LEAVES * APPLICATIONS)
        )
        send(UpdateApplications(RM, tuple(added)))

    def _ask(self, size: Resources, application: int | str) -> None:
        self._asked += 1
        name = application if isinstance(application, str) else f"a{application}"
        spec = AllocationSpec(
            f"k{self._asked}",
            name,
            PARTITION,
            size,
            allow_preempt_other=self._preempts,
            created_s=self.clock.now_ns // SECOND_NS,
        )
        self._hear(self.clock.send(UpdateAllocations(RM, (spec,))))

    def _end(self, key: str, how: TerminationType) -> None:
        spec = self._running.pop(key, None)
        if spec is None:
            return
        self.ended += 1
        gone = ReleaseSpec(PARTITION, spec.application_id, key, how)
        self._hear(self.clock.send(UpdateAllocations(RM, releases=(gone,))))
        if how is TerminationType.PREEMPTED_BY_SCHEDULER:
            self.victims += 1
            assert spec.resources is not None
            self._ask(spec.resources, spec.application_id)

    def _hear(self, effects: Iterable[Effect]) -> None:
        now_ns = self.clock.now_ns
        for effect in effects:
            if isinstance(effect, Allocated):
                self._running[effect.spec.key] = effect.spec
                lives_ns = int(self._dice.expovariate(1 / LIFE_S) * SECOND_NS)
                heapq.heappush(self._ends, (now_ns + lives_ns, effect.spec.key))
            elif isinstance(effect, Released) and effect.termination == TerminationType.PREEMPTED_BY_SCHEDULER:
                heapq.heappush(self._leaving, (now_ns + LEAVES_AFTER_NS, effect.key))

    @staticmethod
    def _sum(amounts: Iterable[Resources]) -> Resources:
        total: dict[str, int] = {}
        for each in amounts:
            for t, amount in each.items():
                total[t] = total.get(t, 0) + amount
        return Resources(total)


def _repeat(nodes: Iterable[Any]) -> Iterator[Any]:
    known = list(nodes)
    while True:
        yield from known
