"""P7: a cluster at 95 % in which as much ends as begins, for minutes: the rate must hold and memory stay flat.

The shim keeps a window of asks open. For each allocation it hears of it ends the oldest one and asks for another, both
in one message. Beside it the echo of the same conversation.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kornel.shim_mock.load.sending import Sender
from kornel.shim_mock.load.workload import Workload
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM, running_core
from tests.bench.echo import running_echo
from tests.bench.placing import connection, run, set_up, undisturbed
from tests.bench.processes import resident_bytes
from tests.bench.table import Row

PER_NODE = 10
CLUSTER = Workload(
    asks=5_000 * PER_NODE * 95 // 100,
    queues=(10, 10),
    sizes=1,
    node_cores=PER_NODE,
    node_gib=PER_NODE,
)
WINDOW = 2_000
"""Asks that wait for an answer; at 95 % there is room for 2,500."""

SAMPLE_S = 0.5
WARM = 0.25
"""Part of the time after which memory counts: until then caches and the allocator's arenas fill."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """*rate*: allocations per second. *slowest*: of the tenths of the time. *growth_percent*: memory after WARM."""

    rate: float
    slowest: float
    growth_percent: float


def p7(runs: int, *, quick: bool, seconds: float) -> Iterator[Row]:
    """Rate and memory under churn for so many *seconds*, however *quick* the others are."""
    del quick
    echoed, found = [], []
    for _ in range(runs):
        echoed.append(run(_over_echo(CLUSTER, min(10.0, seconds / 8))))
        found.append(run(_over_core(CLUSTER, seconds)))
    what = f"churn, {CLUSTER.nodes:,} nodes at 95 %, {seconds:g} s"
    rates, ceilings = [m.rate for m in found], [m.rate for m in echoed]
    yield Row("P7", f"{what}, over gRPC", "/s", rates, 15_000, ceilings=ceilings)
    yield Row("P7", "its slowest tenth", "/s", [m.slowest for m in found])
    growth = [m.growth_percent for m in found]
    yield Row("P7", "memory after the first quarter grows by", "%", growth, 5, at_most=True)
    single_s = min(60.0, seconds / 2)
    singly = [run(_over_core(CLUSTER, single_s, together=False)).rate for _ in range(runs)]
    yield Row("P7", f"the same, each end in a message of its own, {single_s:g} s", "/s", singly)


async def _over_core(workload: Workload, seconds: float, *, together: bool = True) -> Measurement:
    async with running_core() as (address, pid), connection(address) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, workload)
        await sender.place_asks(list(workload.ask_messages(RM)))
        return await _churn(sender, workload, seconds, pid, together=together)


async def _over_echo(workload: Workload, seconds: float) -> Measurement:
    async with running_echo() as address, connection(address) as channel:
        return await _churn(Sender(channel, RM), workload, seconds, 0)


async def _churn(sender: Sender, workload: Workload, seconds: float, pid: int, *, together: bool = True) -> Measurement:
    """Keeps *workload* in motion. *together*: all that is answered to one response goes in one message."""
    asks = [ask for message in workload.ask_messages(RM) for ask in message.allocations]
    running = deque((ask.allocationKey, ask.applicationID) for ask in asks)
    names = [request.applicationID for request in workload.application_requests()]
    size = asks[0].resourcePerAlloc
    asked = 0

    def message(count: int, *, ending: bool) -> si.AllocationRequest:
        """*count* new asks, and the end of as many of the oldest allocations."""
        nonlocal asked
        fresh = [
            si.Allocation(
                allocationKey=f"churn-{number}", applicationID=names[number % len(names)], resourcePerAlloc=size
            )
            for number in range(asked, asked + count)
        ]
        asked += count
        if not ending:
            return si.AllocationRequest(rmID=RM, allocations=fresh)
        ended = [
            si.AllocationRelease(allocationKey=key, applicationID=name, terminationType=si.STOPPED_BY_RM)
            for key, name in (running.popleft() for _ in range(count))
        ]
        releases = si.AllocationReleasesRequest(allocationsToRelease=ended)
        return si.AllocationRequest(rmID=RM, allocations=fresh, releases=releases)

    samples: list[tuple[float, int, int]] = []
    placed = 0
    async with sender.allocations() as stream:
        with undisturbed():
            began = time.perf_counter()
            sampled_at = 0.0
            await stream.write(message(WINDOW, ending=False))
            while (now := time.perf_counter() - began) < seconds:
                async with asyncio.timeout(60):
                    response: Any = await stream.read()
                new = response.new
                if new:
                    running.extend([(allocation.allocationKey, allocation.applicationID) for allocation in new])
                    placed += len(new)
                    for count in [len(new)] if together else [1] * len(new):
                        await stream.write(message(count, ending=True))
                if now >= sampled_at:
                    samples.append((now, placed, resident_bytes(pid) if pid else 0))
                    sampled_at += SAMPLE_S
            took = time.perf_counter() - began
    return Measurement(placed / took, _slowest(samples, seconds), _growth(samples, seconds))


def _slowest(samples: list[tuple[float, int, int]], seconds: float) -> float:
    """Least rate of the tenths of the time."""
    rates = []
    for tenth in range(10):
        within = [s for s in samples if seconds * tenth / 10 <= s[0] < seconds * (tenth + 1) / 10]
        if len(within) > 1:
            (first_s, first, _), (last_s, last, _) = within[0], within[-1]
            rates.append((last - first) / (last_s - first_s))
    return min(rates, default=0.0)


def _growth(samples: list[tuple[float, int, int]], seconds: float) -> float:
    """Percent by which resident memory at the end is above that after WARM."""
    warm = [resident for at, _, resident in samples if at >= seconds * WARM]
    return 100 * (warm[-1] / warm[0] - 1) if warm and warm[0] else 0.0
