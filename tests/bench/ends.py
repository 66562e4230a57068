"""P18: a full cluster in which tasks end one by one while applications wait: what an end costs.

Twenty nodes of a hundred cores are full of tasks of one core. Applications wait with two asks of one core each; one
that has been served is followed by a new one, so that equally many wait all the time. Tasks end in a seeded order, one
for each message and every ten milliseconds of virtual time, and each end gives room to one ask. Its cost is the
processor time of the engine for the message, all decisions that follow, and whatever time alone makes it do until the
next end. What a new application costs is measured apart, and so is how many asks are tried for each that is placed.

``python -m tests.bench.ends [--waiting N] [--leaves N] [--with WHAT] [--profile]`` measures one case.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, AllocationRejected, ApplicationRejected, Effect
from kornel.core.domain.resources import Resources
from kornel.core.engine.scheduling import limit_savings
from kornel.core.state.asks import finding
from kornel.core.state.asks.limit_claims import end_saving_below
from kornel.core.state.waiting.rooms import is_short, note_short
from tests.bench.clocked import SECOND_NS, ClockedEngine, settle_garbage
from tests.bench.core_process import RM
from tests.bench.opcodes import counted_by_function
from tests.bench.processes import apart
from tests.bench.table import Row, quantile

PARTITION: Final = f"[{RM}]default"
NODES: Final = 20
CORES: Final = 100
TASKS: Final = NODES * CORES
ASKS_EACH: Final = 2
BETWEEN_NS: Final = 10_000_000
WARM_ENDS: Final = 10
COUNTED_ENDS: Final = 20
LEAST_ENDS: Final = 20
SEED: Final = 18
SIZES: Final = 50
USERS: Final = 40
USER_CORES: Final = 52
"""With 40 users, a little more than the nodes have: some users are at their limit, others lack room."""
LARGE: Final = 10
"""The number of asks for ten cores, for which room is saved on nodes, and of asks that must run on one node."""

WAITING: Final = (1, 100, 1_000, 5_000, 50_000)
LEAVES: Final = (1, 10, 1_000)
MOST_MS: Final = 0.5
MOST_TIMES: Final = {5_000: 1.5, 50_000: 2.0}


class Case(NamedTuple):
    """*waiting*: applications with two asks each. *leaves*: the queues that they are in, in turn."""

    waiting: int
    leaves: int = 10
    order: str = "fifo"
    sizes: int = 1
    """The number of sizes of asks: each needs one core, and another amount of memory, of which there is plenty."""
    limited: bool = False
    """Tells whether users have limits."""
    claimed: bool = False
    """Tells whether room is saved on nodes for large asks, and held for asks that must run on one node."""
    saved_below: bool = False
    """Tells whether a max of all leaves together is full instead of the nodes, and half of the asks are for two cores,
    so that what ends is saved below it."""

    @property
    def kind(self) -> str:
        """What sets the case apart, whatever the number of applications."""
        leaves = "1 leaf" if self.leaves == 1 else f"{self.leaves:,} leaves"
        sizes = "1 size" if self.sizes == 1 else f"{self.sizes} sizes"
        limited = ", user limits" if self.limited else ""
        claimed = ", claims" if self.claimed else ""
        below = ", savings below a max" if self.saved_below else ""
        return f"{self.order}, {leaves}, {sizes}{limited}{claimed}{below}"


class Found(NamedTuple):
    """The results of one case. Times are milliseconds of processor time."""

    ends: int
    median_ms: float
    p99_ms: float
    arrival_ms: float
    """The cost of one new application with its two asks, which are tried and find no room."""
    tried: float
    """The number of asks tried for each that was placed."""
    placed: float
    """The number of asks placed for each end."""


VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "fifo": {},
    "fair": {"order": "fair"},
    "stateaware": {"order": "stateaware"},
    "sizes": {"sizes": SIZES},
    "limits": {"limited": True},
    "claims": {"claimed": True},
    "below": {"saved_below": True},
    "all": {"order": "fair", "sizes": SIZES, "limited": True, "claimed": True},
}


def cases(*, quick: bool) -> Iterator[list[Case]]:
    """Yields the cases in groups that differ by the number of waiting applications only, fewest first."""
    waiting = (1, 1_000) if quick else WAITING
    for leaves in LEAVES[1:2] if quick else LEAVES:
        yield [Case(most, leaves) for most in waiting]
    for name, options in VARIANTS.items():
        if name != "fifo" and not (quick and name in ("fair", "all")):
            yield [Case(most, **options) for most in waiting]


def p18(runs: int, *, quick: bool) -> Iterator[Row]:
    """Processor time of the engine for each end, and the asks tried for each placement."""
    ends, most_s = (50, 2.0) if quick else (1_000, 6.0)
    for group in cases(quick=quick):
        least: list[float] = []
        for case in group:
            found = [apart(measure_case, case, ends, most_s) for _ in range(runs)]
            medians = [each.median_ms for each in found]
            what = f"{case.kind}: {case.waiting:,} wait"
            yield Row("P18", f"{what}: an end", "ms", medians, MOST_MS, at_most=True)
            yield Row("P18", f"{what}: 99 of 100 ends", "ms", [each.p99_ms for each in found])
            yield Row("P18", f"{what}: asks tried for each placed", "", [each.tried for each in found])
            yield Row("P18", f"{what}: a new application", "ms", [each.arrival_ms for each in found])
            least = least or medians
            if case.waiting in MOST_TIMES:
                times = [many / few for many, few in zip(medians, least, strict=True)]
                yield Row("P18", f"{what}: an end, to 1", "x", times, MOST_TIMES[case.waiting], at_most=True)


def configuration(case: Case) -> str:
    """Returns the queues of *case*: leaves ``root.q0`` and so on, or ``root.all.q0`` below a max."""
    properties = {"application.sort.policy": case.order}
    queues: list[dict[str, Any]] = [{"name": f"q{leaf}", "properties": properties} for leaf in range(case.leaves)]
    if case.saved_below:
        queues = [{"name": "all", "resources": {"max": {"vcore": str(TASKS)}}, "queues": queues}]
    root: dict[str, Any] = {"name": "root", "submitacl": "*", "queues": queues}
    if case.limited:
        users = [f"u{number}" for number in range(USERS)]
        root["limits"] = [{"limit": "each", "users": users, "maxresources": {"vcore": str(USER_CORES)}}]
    return json.dumps({"partitions": [{"name": "default", "queues": [root]}]})


@dataclass
class FullCluster:
    """An engine with full nodes on which applications of *case* wait."""

    case: Case
    clock: ClockedEngine = field(default_factory=ClockedEngine)
    arrival_s: float = 0.0
    """The processor time that applications took which came after the first ones."""
    arrived: int = 0
    placed: int = 0

    def __post_init__(self) -> None:
        self._dice = random.Random(SEED)
        self._running: list[tuple[str, str]] = []
        self._left: dict[str, int] = {}
        """The number of asks that wait, by application."""
        self._made = self._asked = 0
        self._fill()
        self._wait(self.case.waiting)
        if self.case.claimed:
            self._claim()
        # Older than the delay after which room is saved.
        self._hear(self.clock.pass_time(self.clock.now_ns + 5 * SECOND_NS))

    def end_one(self) -> float:
        """Ends one task and lets time pass until the next end. Returns the processor time of the engine for it, without
        that of applications that come in its wake."""
        at = self._dice.randrange(len(self._running))
        self._running[at], self._running[-1] = self._running[-1], self._running[at]
        application_id, key = self._running.pop()
        before_s = self.clock.took_s - self.arrival_s
        until_ns = self.clock.now_ns + BETWEEN_NS
        ended = ReleaseSpec(PARTITION, application_id, key)
        self._hear(self.clock.send(UpdateAllocations(RM, releases=(ended,))))
        self._hear(self.clock.pass_time(until_ns))
        return self.clock.took_s - self.arrival_s - before_s

    def _fill(self) -> None:
        send = self.clock.send
        send(RegisterManager(RM, configuration(self.case)))
        cores = CORES + LARGE if self.case.saved_below else CORES
        capacity = Resources({"vcore": cores * 1_000, "memory": 1 << 50})
        nodes = (NodeSpec(f"n{at}", NodeAction.CREATE, PARTITION, capacity=capacity) for at in range(NODES))
        send(UpdateNodes(RM, tuple(nodes)))
        owners = [self._application(f"run-{number}") for number in range(USERS)]
        send(UpdateApplications(RM, tuple(owners)))
        self._running = [(owners[at % USERS].application_id, f"task-{at}") for at in range(TASKS)]
        size = self._size(0)
        tasks = (
            AllocationSpec(key, name, PARTITION, size, node_id=f"n{at // CORES}", allow_preempt_self=False)
            for at, (name, key) in enumerate(self._running)
        )
        send(UpdateAllocations(RM, tuple(tasks)))

    def _application(self, name: str) -> ApplicationSpec:
        number = self._made
        self._made += 1
        parent = "root.all" if self.case.saved_below else "root"
        queue, user = f"{parent}.q{number % self.case.leaves}", f"u{number % USERS}"
        return ApplicationSpec(name, queue, PARTITION, user=user, created_s=self.clock.now_ns // SECOND_NS)

    def _size(self, number: int) -> Resources:
        return Resources({"vcore": 1_000, "memory": (1 + number % self.case.sizes) << 20})

    def _wait(self, count: int) -> list[Effect]:
        """Adds so many applications that wait, a thousand in each message."""
        effects: list[Effect] = []
        for start in range(0, count, 1_000):
            added = [self._application(f"app-{self._made}") for _ in range(min(1_000, count - start))]
            effects += self.clock.send(UpdateApplications(RM, tuple(added)))
            asks = [self._ask(spec.application_id) for spec in added for _ in range(ASKS_EACH)]
            self._left |= dict.fromkeys((spec.application_id for spec in added), ASKS_EACH)
            effects += self.clock.send(UpdateAllocations(RM, tuple(asks)))
        return effects

    def _ask(self, application_id: str) -> AllocationSpec:
        self._asked += 1
        size = self._size(self._asked)
        if self.case.saved_below and self._asked % 2:
            size = Resources({**size, "vcore": 2_000})
        return AllocationSpec(f"ask-{self._asked}", application_id, PARTITION, size)

    def _claim(self) -> None:
        owners = [self._application("large"), self._application("bound")]
        self.clock.send(UpdateApplications(RM, tuple(owners)))
        for kind in ("large", "bound"):
            self._hear(self.clock.send(UpdateAllocations(RM, tuple(self._claimant(kind) for _ in range(LARGE)))))

    def _claimant(self, kind: str) -> AllocationSpec:
        self._asked += 1
        cores, node = (10, "") if kind == "large" else (1, f"n{self._asked % NODES}")
        size = Resources({"vcore": cores * 1_000, "memory": 1 << 20})
        return AllocationSpec(f"{kind}-{self._asked}", kind, PARTITION, size, required_node=node)

    def _hear(self, effects: Iterable[Effect]) -> None:
        """Notes what was placed, and has as many new applications and claimants come as were served."""
        served = 0
        claimants: list[AllocationSpec] = []
        for effect in effects:
            if isinstance(effect, ApplicationRejected | AllocationRejected):
                raise AssertionError(effect)
            if not isinstance(effect, Allocated):
                continue
            self.placed += 1
            name = effect.spec.application_id
            self._running.append((name, effect.spec.key))
            if name in self._left:
                self._left[name] -= 1
                if not self._left[name]:
                    del self._left[name]
                    served += 1
            else:
                claimants.append(self._claimant(name))
        if not served and not claimants:
            return
        before_s = self.clock.took_s
        heard = self._wait(served)
        if claimants:
            heard += self.clock.send(UpdateAllocations(RM, tuple(claimants)))
        self.arrival_s += self.clock.took_s - before_s
        self.arrived += served
        self._hear(heard)


def measure_case(case: Case, ends: int, most_s: float) -> Found:
    """Returns what at most *ends* ends cost, and fewer if they take longer than *most_s* seconds."""
    cluster = FullCluster(case)
    for _ in range(WARM_ENDS):
        cluster.end_one()
    settle_garbage()
    cluster.arrival_s = cluster.clock.took_s = 0.0
    cluster.arrived = 0
    times_s: list[float] = []
    began = time.process_time()
    while len(times_s) < ends and (len(times_s) < LEAST_ENDS or time.process_time() - began < most_s):
        times_s.append(cluster.end_one())
    arrival_s = cluster.arrival_s / max(1, cluster.arrived)
    tried, placed = _count_tries(cluster)
    return Found(
        len(times_s),
        quantile(times_s, 0.5) * 1e3,
        quantile(times_s, 0.99) * 1e3,
        arrival_s * 1e3,
        tried / max(1, placed),
        placed / COUNTED_ENDS,
    )


def count_instructions(case: Case, ends: int) -> float:
    """Returns the bytecode instructions of the engine for an end, the rounds between ends and the applications that
    come in its wake included."""
    cluster = FullCluster(case)
    for _ in range(WARM_ENDS):
        cluster.end_one()
    by_function, _ = counted_by_function(lambda: [cluster.end_one() for _ in range(ends)])
    return sum(count for code, count in by_function.items() if "core" in Path(code.co_filename).parts) / ends


def count_choice(case: Case) -> float:
    """Returns the bytecode instructions of the engine for a choice who saves below the max of *case*."""
    cluster = FullCluster(case)
    state = cluster.clock.engine.partition(PARTITION)
    assert state is not None
    limit = state.queues["root.all"]
    while not any(is_short(limit, shape) for shape in limit.parked):
        cluster.end_one()
    end_saving_below(state, next(iter(state.reserving.at_limits)).ask)
    note_short(state, limit, tuple(limit.parked))
    state.reserving.asked = (0, 0, False)
    now_ns = cluster.clock.now_ns
    by_function, _ = counted_by_function(lambda: limit_savings.choose_savers(state, now_ns))
    assert state.reserving.at_limits, "somebody saves"
    return sum(by_function.values())


def count_first_saving(case: Case) -> float:
    """Returns the bytecode instructions of the engine from the first end until somebody saves below the max of
    *case*."""
    cluster = FullCluster(case)
    state = cluster.clock.engine.partition(PARTITION)
    assert state is not None
    assert not state.reserving.at_limits

    def end_some() -> None:
        while not state.reserving.at_limits:
            cluster.end_one()

    by_function, _ = counted_by_function(end_some)
    return sum(count for code, count in by_function.items() if "core" in Path(code.co_filename).parts)


def _count_tries(cluster: FullCluster) -> tuple[int, int]:
    """Returns how many asks are tried in some ends, with those of applications that come, and how many are placed."""
    before = cluster.placed
    with mock.patch.object(finding, "find_node", wraps=finding.find_node) as tried:
        for _ in range(COUNTED_ENDS):
            cluster.end_one()
    return tried.call_count, cluster.placed - before


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures one case, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ends", description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000, help="applications that wait (default 1,000)")
    parser.add_argument("--leaves", type=int, default=10, help="leaves that they are in (default 10)")
    parser.add_argument("--with", dest="variant", choices=list(VARIANTS), default="fifo", help="the kind of cluster")
    parser.add_argument("--ends", type=int, default=200, help="ends at most (default 200)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds at most (default 10)")
    parser.add_argument("--profile", action="store_true", help="print the functions in which the time goes")
    given = parser.parse_args(arguments)
    case = Case(given.waiting, given.leaves)._replace(**VARIANTS[given.variant])
    if given.profile:
        cluster = FullCluster(case)
        with cProfile.Profile() as profile:
            for _ in range(min(given.ends, 50)):
                cluster.end_one()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    print(f"{case.kind}: {case.waiting:,} applications wait")
    for name, value in measure_case(case, given.ends, given.seconds)._asdict().items():
        print(f"  {name:12}{value:10.3f}")


if __name__ == "__main__":
    main()
