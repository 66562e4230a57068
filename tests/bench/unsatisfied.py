"""P5b: asks that preemption owes room and that no victims can give it cost nothing while they wait, nor any memory.

Half of the leaves hold less than they are guaranteed and ask for the rest; the other half hold more than their share,
so there are victims on every node, but nowhere enough of them. Idle means that nothing changes at all. The unrelated
changes are allocations that come and go in a leaf below its guarantee: they give nobody a victim, and their room is no
larger than before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kornel.shim_mock.load.sending import AllocationStream, Sender
from kornel.shim_mock.load.workload import CORE, make_resource
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM, application, running_core
from tests.bench.placing import connection, run
from tests.bench.processes import processor_s, resident_bytes
from tests.bench.table import Row

NODES, LEAVES, PENDING, SIZES = 500, 1_000, 1_500, 900
QUICK_DIVISOR = 5
NODE_CORES = 7
OWED, OWING = CORE, 2 * CORE
"""What one allocation of either half has; two of each leave a core of every node free."""
SMALLEST = 5 * CORE + CORE // 2
"""An ask of the least size: a node has a core free, and victims make that five at most."""
CHANGES_PER_S = 10
DELAY_S = 1
SOME_S = 5.0
"""Until what begins has become usual: whatever has to be found out at the first change is."""
SETTLE_S = 300.0
QUIET_PERCENT = 5.0
MOST_SEARCH_S = 10.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a stretch of time cost: *percent* of one processor, and *mib_per_minute* of memory."""

    percent: float
    mib_per_minute: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """*changes*: what the changes cost before anybody asked.

    *searched_s*: until every ask had its answer; *search_s*: processor time until then.
    """

    searched_s: float
    search_s: float
    changes: Spent
    idle: Spent
    beside_changes: Spent


def p5b(runs: int, *, quick: bool) -> Iterator[Row]:
    """Idle cost with preemption demand that cannot be satisfied, without any changes and beside unrelated ones."""
    divisor, seconds = (QUICK_DIVISOR, 3.0) if quick else (1, 30.0)
    found = [run(_measure(divisor, seconds)) for _ in range(runs)]
    what = f"{PENDING // divisor:,} asks preempt in vain, {SIZES // divisor} sizes"
    yield Row("P5b", f"{what}: idle core", "%", [m.idle.percent for m in found], 1, at_most=True)
    more = [m.beside_changes.percent - m.changes.percent for m in found]
    changes = f"{CHANGES_PER_S} unrelated changes/s"
    yield Row("P5b", f"{changes}: more than without these asks", "%", more, 1, at_most=True)
    yield Row("P5b", f"{changes}: altogether", "%", [m.beside_changes.percent for m in found])
    # A process that serves grows a little in its first minutes: what leaked here was 40 MiB a minute.
    for name, spent in (("idle", [m.idle for m in found]), (changes, [m.beside_changes for m in found])):
        memory = [s.mib_per_minute for s in spent]
        yield Row("P5b", f"memory grows by, {name}", "MiB/min", memory, None if quick else 2, at_most=True)
    yield Row("P5b", "each ask searched for once, after", "s", [m.searched_s for m in found])
    searched = "each ask searched for once, processor time"
    yield Row("P5b", searched, "s", [m.search_s for m in found], MOST_SEARCH_S, at_most=True)


async def _measure(divisor: int, seconds: float) -> Measurement:
    nodes, leaves, pending, sizes = (amount // divisor for amount in (NODES, LEAVES, PENDING, SIZES))
    async with running_core() as (address, pid), connection(address) as channel:
        sender = Sender(channel, RM)
        await sender.register(_config(leaves))
        await sender.report_nodes(list(_nodes(nodes)))
        names = [f"root.q{number}" for number in range(leaves)]
        await sender.add_applications([application(name, name) for name in [*names, "root.other"]])
        await sender.place_asks([si.AllocationRequest(rmID=RM, allocations=list(_running(nodes, names)))])
        async with sender.allocations() as stream:
            async with _changing(stream, "before"):
                await asyncio.sleep(SOME_S)
                changes = await _spend(pid, seconds)
            await stream.write(si.AllocationRequest(rmID=RM, allocations=list(_asks(pending, sizes, names))))
            began, used = time.perf_counter(), processor_s(pid)
            await asyncio.sleep(DELAY_S + 1)
            while time.perf_counter() - began < SETTLE_S and (await _spend(pid, 1.0)).percent > QUIET_PERCENT:
                pass
            searched_s, search_s = time.perf_counter() - began, processor_s(pid) - used
            idle = await _spend(pid, seconds)
            async with _changing(stream, "beside"):
                await asyncio.sleep(SOME_S)
                beside_changes = await _spend(pid, seconds)
            return Measurement(searched_s, search_s, changes, idle, beside_changes)


async def _spend(pid: int, seconds: float) -> Spent:
    """What the core spends while nobody but the others talks to it."""
    began, used, held = time.perf_counter(), processor_s(pid), resident_bytes(pid)
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    grown_mib = (resident_bytes(pid) - held) / (1 << 20)
    return Spent(100 * (processor_s(pid) - used) / took, 60 * grown_mib / took)


@asynccontextmanager
async def _changing(stream: AllocationStream, prefix: str) -> AsyncIterator[None]:
    """Unrelated changes meanwhile."""
    ended = asyncio.Event()
    changing = asyncio.create_task(_change(stream, prefix, ended))
    yield
    ended.set()
    # A task that is cancelled while it writes would end the stream with it.
    await changing


async def _change(stream: AllocationStream, prefix: str, ended: asyncio.Event) -> None:
    """An allocation comes and goes, again and again until *ended* is set."""
    number = 0
    while not ended.is_set():
        ask = si.Allocation(
            allocationKey=f"{prefix}-{number}",
            applicationID="root.other",
            resourcePerAlloc=make_resource(vcore=CORE // 10),
        )
        await stream.write(si.AllocationRequest(rmID=RM, allocations=[ask]))
        await asyncio.sleep(1 / CHANGES_PER_S)
        gone = si.AllocationRelease(
            allocationKey=ask.allocationKey, applicationID=ask.applicationID, terminationType=si.STOPPED_BY_RM
        )
        releases = si.AllocationReleasesRequest(allocationsToRelease=[gone])
        await stream.write(si.AllocationRequest(rmID=RM, releases=releases))
        await asyncio.sleep(1 / CHANGES_PER_S)
        number += 1


def _config(leaves: int) -> str:
    """The even leaves are owed room; the odd ones hold more than their share."""
    delay = f"properties: {{preemption.delay: {DELAY_S}s}}"
    owed, owing, other = (f"resources: {{guaranteed: {{vcore: {cores}}}}}" for cores in (9, 1, 100))
    below = [f"{{name: q{number}, {owing if number % 2 else owed}, {delay}}}" for number in range(leaves)]
    root = f"{{name: root, submitacl: '*', queues: [{', '.join(below)}, {{name: other, {other}}}]}}"
    return f"partitions: [{{name: default, queues: [{root}]}}]"


def _nodes(count: int) -> Iterator[si.NodeInfo]:
    capacity = make_resource(vcore=NODE_CORES * CORE)
    for number in range(count):
        yield si.NodeInfo(nodeID=f"node-{number:04}", action=si.NodeInfo.CREATE, schedulableResource=capacity)


def _running(nodes: int, names: list[str]) -> Iterator[si.Allocation]:
    """Four on each node, two of either half: one after the other, so that neighbours are of other leaves."""
    for number in range(4 * nodes):
        yield si.Allocation(
            allocationKey=f"run-{number}",
            applicationID=names[number % len(names)],
            resourcePerAlloc=make_resource(vcore=OWING if number % 2 else OWED),
            nodeID=f"node-{number // 4:04}",
            preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=True),
        )


def _asks(count: int, sizes: int, names: list[str]) -> Iterator[si.Allocation]:
    owed = names[::2]
    for number in range(count):
        yield si.Allocation(
            allocationKey=f"wait-{number}",
            applicationID=owed[number % len(owed)],
            resourcePerAlloc=make_resource(vcore=SMALLEST + number % sizes),
            preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=True, allowPreemptOther=True),
        )
