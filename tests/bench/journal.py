"""What the journal costs a core that places asks, in a burst and one at a time, and how fast it is decided again.

Runs with and without one take turns, because the machines that run this drift; quoted is the median of the ratios of
neighbours.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from kornel.core.journal.reading import read_records
from kornel.core.journal.replay import Replay, pause_collecting
from kornel.core.load.sending import Placed, Sender
from kornel.si.v1 import si_pb2
from tests.bench import core_process, end_to_end
from tests.bench.core_process import RM
from tests.bench.placing import P2_FLAT, connection, set_up, undisturbed
from tests.bench.report import Figure, show
from tests.unit.journal.made import open_store

WORKLOAD = end_to_end.Workload(nodes=5_000, asks=50_000)
LEAST_PERCENT = 90.0
MOST_BYTES = 60.0
SINGLE_ASKS = 2_000
EACH_S = 0.001


@dataclass(frozen=True, slots=True)
class Burst:
    """``rate``: allocations per second. ``journal_bytes``: for each, those of nodes and applications included.
    ``replayed``: decisions per second of the journal, decided again."""

    rate: float
    journal_bytes: float = 0.0
    replayed: float = 0.0


async def _burst(workload: end_to_end.Workload, journal: str) -> Burst:
    async with AsyncExitStack() as stack:
        stub, _, pid = await stack.enter_async_context(core_process.connected(journal=journal))
        await core_process.register(stub, core_process.flat_queues(workload.queues))
        infos = core_process.node_infos(workload.nodes, si_pb2.NodeInfo.CREATE)
        nodes_per_s = await core_process.report_nodes(stub, infos, workload.batch)
        await core_process.add_applications(
            stub, (core_process.application(f"app-{number}", f"root.q{number}") for number in range(workload.queues))
        )
        rate = (await end_to_end.place(stub, workload, nodes_per_s, pid)).allocations_per_s
    if not journal:
        return Burst(rate)
    with closing(open_store(journal)) as store, pause_collecting():
        size = store.count_bytes()[2]
        replay, began = Replay(), time.perf_counter()
        assert replay.play_all(read.record for read in read_records(store)) is None
        return Burst(rate, size / workload.asks, workload.asks / (time.perf_counter() - began))


async def _singles(journal: str) -> Placed:
    workload = replace(P2_FLAT, asks=SINGLE_ASKS)
    async with core_process.running_core(journal=journal) as (address, _), connection(address) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, workload)
        asks = [ask for message in workload.ask_messages(RM) for ask in message.allocations]
        with undisturbed():
            return await sender.place_singly(asks, EACH_S)


def report(runs: int, workload: end_to_end.Workload = WORKLOAD) -> bool:
    """Measure and print. Whether the journal leaves as much of the rate as it must, and takes no more room."""
    without, kept, single, single_kept = [], [], [], []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as scratch:
            without.append(asyncio.run(_burst(workload, "")))
            kept.append(asyncio.run(_burst(workload, str(Path(scratch) / f"{number}.db"))))
            single.append(asyncio.run(_singles("")))
            single_kept.append(asyncio.run(_singles(str(Path(scratch) / f"single-{number}.db"))))
    ratios = [100 * with_it.rate / plain.rate for with_it, plain in zip(kept, without, strict=True)]
    title = f"journal, SQLite, full: {workload.asks:,} asks at once, {runs} runs with and without in turn"
    figures = [
        Figure("rate with it, of that without", "%", ratios, LEAST_PERCENT, each_s=0),
        Figure("allocations without", "/s", [burst.rate for burst in without], each_s=0),
        Figure("allocations with", "/s", [burst.rate for burst in kept], each_s=0),
        Figure("decided again", "/s", [burst.replayed for burst in kept], each_s=0),
        Figure("for a placement", "B", [burst.journal_bytes for burst in kept], MOST_BYTES, at_most=True, each_s=0),
        *(
            Figure(f"single asks p{percent} {name}", "ms", [each.percentile_ms(percent) for each in found], each_s=0)
            for percent in (50, 99)
            for name, found in (("without", single), ("with", single_kept))
        ),
    ]
    return show(title, figures, "nothing leaves the core before it is on the disk")


if __name__ == "__main__":
    report(3)
