"""Two managers on one core against one: ``python -m tests.bench.several_managers``. Target: the sum of both rates is at
least 90 % of one's. And a quiet manager while the other one floods: what becomes of its latency.

One run has the same asks placed by one manager, and by two that get half of them each, in alternation, each time on a
new core in a process of its own. The shims share this process, so what they cost is the same on both sides.

By the clock the ratio is right on a machine with nothing else to do. The processor time that the core takes for an ask
is right on any: where the core is what is waited for, the rates are as the reciprocals of these times.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import NamedTuple

import grpc.aio

from kornel.shim_mock.load.sending import CHANNEL_OPTIONS, Placed, Sender
from kornel.shim_mock.load.workload import Workload
from tests.bench.core_process import running_core
from tests.bench.processes import processor_s

QUIET_ASKS = 200
QUIET_EVERY_S = 0.01


class Quiet(NamedTuple):
    """The latencies of a quiet manager in milliseconds, alone and beside one that floods; and the flood's rate."""

    alone: Placed
    beside: Placed
    flood_per_s: float


class Rate(NamedTuple):
    """Allocations per second of all managers together, and the processor time of the core for each."""

    per_s: float
    core_s: float


async def measure_rate(managers: int, workload: Workload) -> Rate:
    """The rate of all *managers* together, each with its part of *workload*."""
    part = replace(workload, asks=workload.asks // managers, nodes=workload.nodes // managers)
    async with running_core(history=False, rest="off") as (address, pid), AsyncExitStack() as channels:
        senders = [
            Sender(await channels.enter_async_context(_connect(address)), f"rm-{number}") for number in range(managers)
        ]
        for sender in senders:
            await _prepare(sender, part)
        messages = [list(part.ask_messages(sender.rm_id)) for sender in senders]
        began, core_s = time.perf_counter(), processor_s(pid)
        await asyncio.gather(*(sender.place_asks(some) for sender, some in zip(senders, messages, strict=True)))
        took_s = time.perf_counter() - began
        return Rate(workload.asks / took_s, (processor_s(pid) - core_s) / workload.asks)


async def measure_quiet(workload: Workload) -> Quiet:
    """What a manager that sends an ask every few milliseconds feels of one that sends all it can."""
    small = replace(workload, asks=2 * QUIET_ASKS, nodes=100)
    async with (
        running_core(history=False, rest="off") as (address, _),
        _connect(address) as first,
        _connect(address) as second,
    ):
        quiet, flooding = Sender(first, "quiet"), Sender(second, "flooding")
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
    rates: dict[int, list[Rate]] = {1: [], 2: []}
    for run in range(options.runs):
        for managers in (1, 2) if run % 2 == 0 else (2, 1):
            rates[managers].append(asyncio.run(measure_rate(managers, workload)))
    for managers, found in rates.items():
        per_s, core_us = [rate.per_s for rate in found], [1e6 * rate.core_s for rate in found]
        print(
            f"{managers} managers {statistics.median(per_s):>8.0f}/s  ({min(per_s):.0f} to {max(per_s):.0f}),"
            f" core {statistics.median(core_us):.1f} us an ask  ({min(core_us):.1f} to {max(core_us):.1f})"
        )
    # Of neighbours in time, because what else the machine does changes from one minute to the next.
    pairs = list(zip(rates[1], rates[2], strict=True))
    by_clock = statistics.median(two.per_s / one.per_s for one, two in pairs)
    by_processor = statistics.median(one.core_s / two.core_s for one, two in pairs)
    print(f"both of one: {by_clock:.0%} by the clock, {by_processor:.0%} by the processor time of the core", flush=True)
    # With nodes for all of them: a flood that does not fit never ends.
    flood = replace(workload, asks=5 * options.asks, nodes=5 * options.nodes)
    quiet = asyncio.run(measure_quiet(flood))
    for name, placed in (("alone", quiet.alone), ("beside a flood", quiet.beside)):
        print(f"quiet manager {name:<15} p50 {placed.percentile_ms(50):.1f} ms, p99 {placed.percentile_ms(99):.1f} ms")
    print(f"the flood: {quiet.flood_per_s:.0f}/s")


if __name__ == "__main__":
    main()
