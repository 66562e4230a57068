"""Runs configurations on the same workloads, and pairs their figures by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_mock.scenario import Scenario
from kornel.simulate.figures import QueueFigures
from kornel.simulate.playing import Simulation
from kornel.simulate.workloads import Workload

COMPARED: Final = ("wait_p50_s", "wait_p95_s", "wait_p99_s", "slowdown_p95", "preempted", "lost_core_hours")
"""The figures of a queue that are compared."""
_T: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11,
             2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05)  # fmt: skip
"""Student's t for 95 %, by degrees of freedom from 1 on; beyond them, that of the normal distribution is close."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The figures of a leaf in one run. ``utilisation`` is what it used of all cores of the cluster, on average."""

    configuration: str
    seed: int
    queue: str
    asked: int
    started: int
    ended: int
    given_up: int
    waiting: int
    running: int
    preempted: int
    lost_with_nodes: int
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_longest_s: float
    waiting_longest_s: float
    slowdown_p50: float
    slowdown_p95: float
    utilisation: float
    lost_core_hours: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: how many of the core's seconds it took, the calls of the engine, the victims of each kind of preemption,
    and how often the model was refused something or found a message wrong, with the first of that."""

    configuration: str
    seed: int
    seconds: float
    calls: int
    victims: dict[str, int]
    anomalies: int
    first_anomaly: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a queue with one configuration against the first one: means over the seeds that both have, the mean
    difference and half of its 95 % confidence interval; ``None`` for a single seed."""

    queue: str
    figure: str
    configuration: str
    first: float
    other: float
    difference: float
    margin: float | None
    seeds: int

    @property
    def is_clear(self) -> bool:
        """Tells whether the interval leaves out zero."""
        return self.margin is not None and abs(self.difference) > self.margin


@dataclass(slots=True)
class Comparison:
    """The runs so far, of *wanted* in all."""

    configurations: list[str]
    wanted: int
    runs: list[RunRow] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Tells whether no run is missing."""
        return len(self.runs) == self.wanted

    def find_differences(self) -> Iterator[Difference]:
        """Yields the differences of each further configuration from the first one, by queue and figure."""
        first, *others = self.configurations
        found: dict[str, dict[str, dict[int, QueueRow]]] = {}
        for row in self.queues:
            found.setdefault(row.queue, {}).setdefault(row.configuration, {})[row.seed] = row
        for other in others:
            for queue, by_configuration in found.items():
                before, after = by_configuration.get(first, {}), by_configuration.get(other, {})
                pairs = [(row, after[seed]) for seed, row in before.items() if seed in after]
                if pairs:
                    yield from (_compare_figure(pairs, name, queue, other) for name in COMPARED)

    def as_document(self) -> dict[str, Any]:
        """Returns everything as plain values."""
        return {
            "complete": self.complete,
            "configurations": self.configurations,
            "runs": [asdict(row) for row in self.runs],
            "queues": [asdict(row) for row in self.queues],
            "differences": [asdict(each) for each in self.find_differences()],
        }


class Comparer:
    """Runs all *configurations*, pairs of a name and a text, with each of the seeds 1 to *seeds*.

    :meth:`stop` ends it before the next event of the run that is under way, which is left out then. Raises
    :class:`kornel.simulate.simulated_core.SimulationFailed`.
    """

    def __init__(self, configurations: Sequence[tuple[str, str]], workload: Workload, seeds: int) -> None:
        self._configurations = configurations
        self._workload = workload
        self._seeds = seeds
        self._simulation: Simulation | None = None
        self._stopped = False
        self.comparison = Comparison([name for name, _ in configurations], seeds * len(configurations))

    def stop(self) -> None:
        """End without the runs that are not finished."""
        self._stopped = True
        if self._simulation is not None:
            self._simulation.stopped = True

    def run_all(self, on_run: Callable[[RunRow], None]) -> None:
        """Make all runs, seed by seed, and call *on_run* after each."""
        for seed in range(1, self._seeds + 1):
            for name, text in self._configurations:
                if self._stopped:
                    return
                scenario = self._workload(text, seed)
                self._simulation = Simulation(scenario)
                self._simulation.stopped = self._stopped
                self._simulation.play()
                if self._simulation.stopped:
                    return
                on_run(self._note_run(name, seed, scenario, self._simulation))

    def _note_run(self, name: str, seed: int, scenario: Scenario, simulation: Simulation) -> RunRow:
        seconds = simulation.lasted_ns / SECOND_NS
        cores = measure_capacity(scenario, "vcore", seconds * scenario.speed)
        for queue, figures in sorted(simulation.figures.queues.items()):
            self.comparison.queues.append(_make_row(name, seed, queue, figures, cores))
        victims = dict(sorted(simulation.figures.victims.items()))
        anomalies = simulation.model.anomalies
        row = RunRow(name, seed, seconds, simulation.core.calls, victims, len(anomalies), *anomalies[:1])
        self.comparison.runs.append(row)
        return row


def measure_capacity(scenario: Scenario, kind: str, until_s: float) -> float:
    """Returns the amount of *kind* of all nodes times the seconds until *until_s* for which they are there."""
    total = 0.0
    for group in scenario.nodes:
        ends_s = until_s if group.remove_s is None else min(until_s, group.remove_s)
        total += group.count * group.resources.get(kind, 0) * max(0.0, ends_s - group.at_s)
    return total


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns the smallest of *ordered* that at least *percent* of them do not exceed, or 0 if there are none."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


def _make_row(name: str, seed: int, queue: str, figures: QueueFigures, capacity: float) -> QueueRow:
    waits = [wait_ns / 1e9 for wait_ns in sorted(figures.waits_ns)]
    slowdowns = sorted(figures.slowdowns)
    return QueueRow(
        name,
        seed,
        queue,
        figures.asked,
        len(waits),
        figures.ended,
        figures.given_up,
        figures.waiting,
        figures.running,
        figures.preempted,
        figures.lost_with_nodes,
        percentile(waits, 50),
        percentile(waits, 95),
        percentile(waits, 99),
        percentile(waits, 100),
        figures.longest_waiting_s,
        percentile(slowdowns, 50),
        percentile(slowdowns, 95),
        figures.used.get("vcore", 0.0) / capacity if capacity else 0.0,
        figures.lost.get("vcore", 0.0) / 1_000 / 3_600,
    )


def _compare_figure(pairs: Sequence[tuple[QueueRow, QueueRow]], figure: str, queue: str, other: str) -> Difference:
    first = [float(getattr(row, figure)) for row, _ in pairs]
    second = [float(getattr(row, figure)) for _, row in pairs]
    differences = [after - before for before, after in zip(first, second, strict=True)]
    number = len(pairs)
    margin = None
    if number > 1:
        t = _T[number - 2] if number - 2 < len(_T) else 1.96
        margin = t * statistics.stdev(differences) / math.sqrt(number)
    before, after, difference = map(statistics.fmean, (first, second, differences))
    return Difference(queue, figure, other, before, after, difference, margin, number)
