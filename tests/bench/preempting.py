"""P10: what preemption promises, from the benchmarks of its parts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

from kornel.core.service.machine.garbage import OLDER_THRESHOLDS, YOUNG_THRESHOLD
from tests.bench import attempts, monitor, preemption
from tests.bench.processes import apart
from tests.bench.table import Row


def p10(runs: int, *, quick: bool) -> Iterator[Row]:
    """Room for 1,000 asks under guarantee; single attempts, a monitor round and a quota run in a large cluster."""
    what = f"{preemption.NODES:,} full nodes, {preemption.ASKS:,} asks"
    cases = ((1, 3.0),) if quick else ((1, 3.0), (preemption.PER_NODE, 10.0))
    for units, most in cases:
        found = [asyncio.run(preemption.measure(units)) for _ in range(runs)]
        victims = preemption.ASKS * units
        seconds = [m.took_s for m in found]
        yield Row("P10", f"{what}, {victims:,} victims: all placed after", "s", seconds, most, at_most=True)
        yield Row("P10", f"{what}, {victims:,} victims: rate", "/s", [m.victims / m.took_s for m in found])
    if quick:
        return
    tried = [apart(attempts.attempts, seed) for seed in range(runs)]
    p99 = [attempts.percentile(each, 99) for each, _ in tried]
    yield Row("P10", "100,000 allocations: one attempt to preempt, p99", "ms", p99, 20, at_most=True)
    longest = [max(each + others) * 1e3 for each, others in tried]
    yield Row("P10", "its longest stretch", "ms", longest, 10, at_most=True)
    for what, measure in (
        ("a round of the monitor", monitor_round),
        ("a quota run over 1,000 leaves", attempts.quota_run),
    ):
        slices = [apart(measure) for _ in range(runs)]
        yield Row("P10", what, "ms", [sum(each) * 1e3 for each in slices], 500, at_most=True)
        yield Row("P10", f"{what}: longest slice", "ms", [max(each) * 1e3 for each in slices], 10, at_most=True)


def monitor_round() -> list[float]:
    """Seconds of each slice of the round that kills, in the case with most leaves."""
    _, leaves, applications, hogs = monitor.CASES[1]
    engine = monitor.cluster(leaves, applications, hogs)
    gc.freeze()  # As the service does with what has settled, and the thresholds are its own.
    gc.set_threshold(YOUNG_THRESHOLD, *OLDER_THRESHOLDS)
    monitor.slices(engine, 3 * monitor.SECOND_NS)
    return monitor.slices(engine, 6 * monitor.SECOND_NS)
