"""Two managers on one core against one: ``python -m tests.bench.several_managers``. Target: the sum of both rates is at
least 90 % of one's. And a quiet manager while the other one floods: what becomes of its latency.

One run has the same asks placed by one manager, and by two that get half of them each, in alternation, each time on a
new core in a process of its own. The shims share this process, so what they cost is the same on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import replace
from typing import NamedTuple

import grpc.aio

from kornel.core.load.sending import CHANNEL_OPTIONS, Placed, Sender
from kornel.core.load.workload import Workload
from tests.bench.core_process import running_core

QUIET_ASKS = 200
QUIET_EVERY_S = 0.01


class Quiet(NamedTuple):
    """The latencies of a quiet manager in milliseconds, alone and beside one that floods; and the flood's rate."""

    alone: Placed
    beside: Placed
    flood_per_s: float


async def measure_rate(managers: int, workload: Workload) -> float:
    """Allocations per second of all *managers* together, each with its part of *workload*."""
    part = replace(workload, asks=workload.asks // managers, nodes=workload.nodes // managers)
    async with running_core(history=False, rest="off") as (address, _):
        senders = [Sender(_connect(address), f"rm-{number}") for number in range(managers)]
        for sender in senders:
            await _prepare(sender, part)
        messages = [list(part.ask_messages(sender.rm_id)) for sender in senders]
        began = time.perf_counter()
        await asyncio.gather(*(sender.place_asks(some) for sender, some in zip(senders, messages, strict=True)))
        return workload.asks / (time.perf_counter() - began)


async def measure_quiet(workload: Workload) -> Quiet:
    """What a manager that sends an ask every few milliseconds feels of one that sends all it can."""
    small = replace(workload, asks=2 * QUIET_ASKS, nodes=100)
    async with running_core(history=False, rest="off") as (address, _):
        quiet, flooding = Sender(_connect(address), "quiet"), Sender(_connect(address), "flooding")
        await _prepare(quiet, small)
        await _prepare(flooding, workload)
        asks = [ask for message in small.ask_messages("quiet") for ask in message.allocations]
        alone = await quiet.place_singly(asks[:QUIET_ASKS], QUIET_EVERY_S)
        flood = asyncio.create_task(flooding.place_asks(list(workload.ask_messages("flooding"))))
        beside = await quiet.place_singly(asks[QUIET_ASKS:], QUIET_EVERY_S)
        if flood.done():
            raise RuntimeError("the flood was over before the quiet manager was: give it more asks")
        return Quiet(alone, beside, (await flood).rate)


def _connect(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=[*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)])


async def _prepare(sender: Sender, workload: Workload) -> None:
    await sender.register(workload.config)
    await sender.report_nodes(workload.node_infos())
    await sender.add_applications(workload.application_requests())


def main() -> None:
    """Prints the rates with their ratio, and the latencies."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.several_managers", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--asks", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    workload = Workload(nodes=options.nodes, asks=options.asks, queues=(2,), applications=1, node_cores=64)
    rates: dict[int, list[float]] = {1: [], 2: []}
    for run in range(options.runs):
        for managers in (1, 2) if run % 2 == 0 else (2, 1):
            rates[managers].append(asyncio.run(measure_rate(managers, workload)))
    one, two = (statistics.median(rates[managers]) for managers in (1, 2))
    for managers, found in rates.items():
        print(f"{managers} managers {statistics.median(found):>8.0f}/s  ({min(found):.0f} to {max(found):.0f})")
    print(f"both of one: {two / one:.0%}")
    quiet = asyncio.run(measure_quiet(replace(workload, asks=3 * options.asks)))
    for name, placed in (("alone", quiet.alone), ("beside a flood", quiet.beside)):
        print(f"quiet manager {name:<15} p50 {placed.percentile_ms(50):.1f} ms, p99 {placed.percentile_ms(99):.1f} ms")
    print(f"the flood: {quiet.flood_per_s:.0f}/s")


if __name__ == "__main__":
    main()
