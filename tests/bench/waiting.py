"""P5: asks that fit nowhere cost nothing while they wait, and freed room is used at once.

Every node has a core free, every ask needs five or more, and the quota would allow them: they wait for a node. Idle
means that the shim says nothing and nothing is placed; asks that have waited may have nodes kept free for them
meanwhile (scheduling.md 8).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kornel.shim_mock.load.sending import Sender
from kornel.shim_mock.load.workload import CORE, Workload, make_resource
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM, running_core
from tests.bench.placing import connection, run, set_up
from tests.bench.processes import processor_s
from tests.bench.table import Row

PER_NODE = 10
CLUSTER = Workload(queues=(10,), applications=10, node_cores=PER_NODE + 1, node_gib=1_024)
SETTLE_S = 4.0
"""Longer than the delay after which nodes are kept free, so that this is over before the measuring begins."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """*idle_percent*: of one core. *used_ms*: from a release sent to the allocation of its room received, each."""

    idle_percent: float
    used_ms: list[float]


def p5(runs: int, *, quick: bool) -> Iterator[Row]:
    """Idle cost, and how soon freed room is used."""
    pending = 10_000 if quick else 50_000
    found = [run(_measure(pending, idle_s=2 if quick else 20, releases=40 if quick else 200)) for _ in range(runs)]
    what = f"{pending:,} asks pending, 5,000 full nodes"
    yield Row("P5", f"{what}: idle core", "%", [m.idle_percent for m in found], 1, at_most=True)
    medians = [statistics.median(m.used_ms) for m in found]
    yield Row("P5", "one node frees room: used after, median", "ms", medians, 10, at_most=True)
    yield Row("P5", "one node frees room: used after, longest", "ms", [max(m.used_ms) for m in found], 10, at_most=True)


async def _measure(pending: int, idle_s: float, releases: int) -> Measurement:
    async with running_core() as (address, pid), connection(address) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, CLUSTER)
        names = [request.applicationID for request in CLUSTER.application_requests()]
        whole = make_resource(vcore=PER_NODE * CORE)
        running = [
            si.Allocation(
                allocationKey=f"run-{number}",
                applicationID=names[number % len(names)],
                resourcePerAlloc=whole,
                nodeID=info.nodeID,
            )
            for number, info in enumerate(CLUSTER.node_infos())
        ]
        await sender.place_asks([si.AllocationRequest(rmID=RM, allocations=running)])
        sizes = [make_resource(vcore=5 * CORE + 10 * number) for number in range(32)]
        asks = [
            si.Allocation(
                allocationKey=f"wait-{number}",
                applicationID=names[number % len(names)],
                resourcePerAlloc=sizes[number % len(sizes)],
            )
            for number in range(pending)
        ]
        async with sender.allocations() as stream:
            for start in range(0, pending, 1_000):
                await stream.write(si.AllocationRequest(rmID=RM, allocations=asks[start : start + 1_000]))
            await asyncio.sleep(SETTLE_S)
            began, used = time.perf_counter(), processor_s(pid)
            await asyncio.sleep(idle_s)
            idle = 100 * (processor_s(pid) - used) / (time.perf_counter() - began)
            used_ms = []
            for allocation in running[:releases]:
                release = si.AllocationRelease(
                    allocationKey=allocation.allocationKey,
                    applicationID=allocation.applicationID,
                    terminationType=si.STOPPED_BY_RM,
                )
                request = si.AllocationReleasesRequest(allocationsToRelease=[release])
                began = time.perf_counter()
                await stream.write(si.AllocationRequest(rmID=RM, releases=request))
                async with asyncio.timeout(10):
                    response: Any = None
                    while response is None or not response.new:
                        response = await stream.read()
                used_ms.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(0.02)
            return Measurement(idle, used_ms)
