"""A core that starts with nothing while everything runs: nodes, applications and allocations reported again.

The order is that of protocol.md 12. The time ends with the first new decision, made for an ask that was sent last.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2
from tests.bench import core_process
from tests.bench.core_process import RM
from tests.bench.report import Figure, show


@dataclass(frozen=True, slots=True)
class Workload:
    """*per_node* allocations run on each of *nodes* nodes."""

    nodes: int = 5_000
    per_node: int = 28
    applications: int = 1_000
    batch: int = 1_000


async def _recover(workload: Workload) -> tuple[float, float]:
    """Seconds from the registration to the first new decision, and the peak memory of the core in MiB."""
    capacity = make_resource(vcore=32_000, memory=128 << 30, pods=110)
    nodes = [
        si_pb2.NodeInfo(nodeID=f"node-{n:05}", action=si_pb2.NodeInfo.CREATE_DRAIN, schedulableResource=capacity)
        for n in range(workload.nodes)
    ]
    opened = [si_pb2.NodeInfo(nodeID=node.nodeID, action=si_pb2.NodeInfo.DRAIN_TO_SCHEDULABLE) for node in nodes]
    reports = list_reports(workload)
    async with core_process.connected() as (stub, _, pid):
        began = time.perf_counter()
        await core_process.register(stub, core_process.flat_queues(10))
        await core_process.report_nodes(stub, nodes)
        await core_process.add_applications(
            stub,
            (core_process.application(f"app-{n}", f"root.q{n % 10}") for n in range(workload.applications)),
        )
        stream: Any = stub.UpdateAllocation()

        async def send() -> None:
            for request in reports:
                await stream.write(request)

        sender = asyncio.create_task(send())
        echoed = 0
        while echoed < workload.nodes * workload.per_node:
            echoed += len((await stream.read()).new)
        await sender
        ask = si_pb2.Allocation(
            allocationKey="fresh", applicationID="app-0", resourcePerAlloc=make_resource(vcore=1_000)
        )
        await stream.write(si_pb2.AllocationRequest(rmID=RM, allocations=[ask]))
        node_stream: Any = stub.UpdateNode()
        for start in range(0, len(opened), workload.batch):
            await node_stream.write(si_pb2.NodeRequest(rmID=RM, nodes=opened[start : start + workload.batch]))
        response = await stream.read()
        took = time.perf_counter() - began
        if [allocation.allocationKey for allocation in response.new] != ["fresh"]:
            raise AssertionError("the first new decision is not the one for the new ask")
        await stream.done_writing()
        await node_stream.done_writing()
        return took, core_process.peak_mib(pid)


def list_reports(workload: Workload) -> list[si_pb2.AllocationRequest]:
    size = make_resource(vcore=1_000, memory=1 << 30)
    running = [
        si_pb2.Allocation(
            allocationKey=f"run-{node}-{n}",
            applicationID=f"app-{(node * workload.per_node + n) % workload.applications}",
            nodeID=f"node-{node:05}",
            resourcePerAlloc=size,
            allocationTags={"creationTime": str(1_700_000_000 + n)},
        )
        for node in range(workload.nodes)
        for n in range(workload.per_node)
    ]
    return [
        si_pb2.AllocationRequest(rmID=RM, allocations=running[start : start + workload.batch])
        for start in range(0, len(running), workload.batch)
    ]


def report(runs: int) -> bool:
    workload = Workload()
    results = [asyncio.run(_recover(workload)) for _ in range(runs)]
    allocations = workload.nodes * workload.per_node
    seconds = [seconds for seconds, _ in results]
    figures = [
        Figure("until the first new decision", "s", seconds, 10, at_most=True, each_s=min(seconds) / allocations),
        Figure("peak memory of the core", "MiB", [mib for _, mib in results], 600, at_most=True, each_s=0),
    ]
    title = f"recovery over gRPC: {workload.nodes:,} nodes and {allocations:,} allocations reported again"
    return show(title, figures, "30 us per allocation, about that of decoding and booking one, and 2 KiB each")
