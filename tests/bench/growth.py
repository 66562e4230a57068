"""P4: what an allocation costs when the cluster, or the number of asks, grows a hundredfold.

The nodes are so large that everything fits at every size: only the size under test changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kornel.shim_mock.load.workload import Workload
from tests.bench.placing import P2_FLAT, engine_seconds
from tests.bench.processes import apart
from tests.bench.report import pace
from tests.bench.table import Row

ROOMY = replace(P2_FLAT, node_cores=4_096, node_gib=8_192)
NODES, ASKS = (1_000, 10_000, 50_000, 100_000), (10_000, 100_000, 1_000_000)
QUICK_NODES, QUICK_ASKS = (1_000, 10_000), (10_000, 40_000)


def p4(runs: int, *, quick: bool) -> Iterator[Row]:
    """Cost per allocation at the largest size to that at the smallest."""
    nodes, asks = (QUICK_NODES, QUICK_ASKS) if quick else (NODES, ASKS)
    base = replace(ROOMY, asks=10_000) if quick else ROOMY
    yield _growth("nodes", [replace(base, nodes=size) for size in nodes], nodes, runs)
    yield _growth("asks", [replace(base, asks=size) for size in asks], asks, runs)


def _growth(what: str, workloads: Sequence[Workload], sizes: Sequence[int], runs: int) -> Row:
    """The sizes are measured in turn, run by run, so that a machine that changes its pace changes all of them."""
    costs = [[_steps(workload) for workload in workloads] for _ in range(runs)]
    ratios = [run[-1] / run[0] for run in costs]
    points = {size: min(run[at] for run in costs) for at, size in enumerate(sizes)}
    label = f"P2 engine alone, cost with {sizes[-1]:,} {what} to {sizes[0]:,}"
    return Row("P4", label, "x", ratios, 1.5, at_most=True, points=points)


def _steps(workload: Workload) -> float:
    """Steps per allocation: processor time in units of a loop timed just before and after, see ``report.pace``."""
    before = pace()
    seconds = apart(engine_seconds, workload)
    return seconds / workload.asks * (before + pace()) / 2
