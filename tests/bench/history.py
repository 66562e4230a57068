"""What the durable history costs a core that places a burst of asks.

Runs with and without one take turns, because the machines that run this drift; quoted is the median of the ratios of
neighbours. Processor time is that of the core alone, without the process that commits: the part that no second
processor takes off it.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from kornel.si.v1 import si_pb2
from tests.bench import core_process, end_to_end
from tests.bench.report import Figure, show

WORKLOAD = end_to_end.Workload(nodes=5_000, asks=50_000)
LEAST_PERCENT = 90.0

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Burst:
    """``rate``: allocations per second. ``processor_us``: microseconds of the core for each."""

    rate: float
    processor_us: float


async def _burst(workload: end_to_end.Workload) -> Burst:
    async with AsyncExitStack() as stack:
        stub, _, pid = await stack.enter_async_context(core_process.connected(history=workload.history))
        await core_process.register(stub, core_process.flat_queues(workload.queues))
        infos = core_process.node_infos(workload.nodes, si_pb2.NodeInfo.CREATE)
        nodes_per_s = await core_process.report_nodes(stub, infos, workload.batch)
        await core_process.add_applications(
            stub, (core_process.application(f"app-{number}", f"root.q{number}") for number in range(workload.queues))
        )
        before_s = _processor_s(pid)
        placed = await end_to_end.place(stub, workload, nodes_per_s, pid)
        used_s = _processor_s(pid) - before_s
        return Burst(placed.allocations_per_s, used_s / workload.asks * 1e6)


def _processor_s(pid: int) -> float:
    """Seconds that *pid* has computed, where the system tells; else 0."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def report(runs: int, workload: end_to_end.Workload = WORKLOAD) -> bool:
    """Measure and print. Whether the history leaves as much of the rate as it must."""
    without, kept = [], []
    for _ in range(runs):
        without.append(asyncio.run(_burst(replace(workload, history=False))))
        kept.append(asyncio.run(_burst(workload)))
    ratios = [100 * with_it.rate / plain.rate for with_it, plain in zip(kept, without, strict=True)]
    title = f"durable history: {workload.asks:,} asks at once, {runs} runs with and without in turn"
    figures = [
        Figure("rate with it, of that without", "%", ratios, LEAST_PERCENT, each_s=0),
        Figure("allocations without", "/s", [burst.rate for burst in without], each_s=0),
        Figure("allocations with", "/s", [burst.rate for burst in kept], each_s=0),
        Figure("processor time of the core without", "us", [burst.processor_us for burst in without], each_s=0),
        Figure("processor time of the core with", "us", [burst.processor_us for burst in kept], each_s=0),
    ]
    return show(title, figures, "the engine does not wait for what is remembered")


if __name__ == "__main__":
    report(5)
