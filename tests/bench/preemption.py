"""Room made for 1,000 asks under guarantee in a full cluster, over gRPC, by a shim that confirms every victim at once.

The clock starts when the asks are old enough (``preemption.delay``) and stops when the last of them is placed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import core_process
from tests.bench.core_process import RM

NODES, PER_NODE, ASKS = 1_000, 10, 1_000
DELAY_S = 3
LEAVES, APPLICATIONS = 10, 10
CORE = 1_000
GIB = 1 << 30
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """*took_s*: from the end of the delay to the last ask placed."""

    took_s: float
    victims: int


def _config(each: int) -> str:
    """Leaves ``low0`` and so on with nothing guaranteed, and ``high`` with just what its asks want."""
    low = ", ".join(f"{{name: low{number}}}" for number in range(LEAVES))
    guaranteed = f"{{vcore: {ASKS * each}, memory: {ASKS * each * GIB}}}"
    high = f"{{name: high, resources: {{guaranteed: {guaranteed}}}, properties: {{preemption.delay: {DELAY_S}s}}}}"
    root = f"{{name: root, submitacl: '*', queues: [{low}, {high}]}}"
    # Ten victims for each ask at once are more than the governor lets go by default.
    governor = "preemption: {governor: {victims: {guarantee: {interval: 0}}}}, " if each > 1 else ""
    return f"partitions: [{{name: default, {governor}queues: [{root}]}}]"


def _size(units: int) -> si_pb2.Resource:
    return make_resource(vcore=units * CORE, memory=units * GIB)


def _running() -> Iterator[si_pb2.Allocation]:
    size = _size(1)
    for number in range(NODES * PER_NODE):
        yield si_pb2.Allocation(
            allocationKey=f"low-{number}",
            applicationID=f"low-{number % (LEAVES * APPLICATIONS)}",
            resourcePerAlloc=size,
            nodeID=f"node-{number % NODES:04}",
            preemptionPolicy=si_pb2.PreemptionPolicy(allowPreemptSelf=True),
            allocationTags={"creationTime": str(1 + number)},
        )


def _asks(units: int) -> list[si_pb2.Allocation]:
    size = _size(units)
    policy = si_pb2.PreemptionPolicy(allowPreemptSelf=True, allowPreemptOther=True)
    return [
        si_pb2.Allocation(
            allocationKey=f"high-{number}",
            applicationID=f"high-{number % APPLICATIONS}",
            resourcePerAlloc=size,
            preemptionPolicy=policy,
        )
        for number in range(ASKS)
    ]


async def _set_up(stub: si_pb2_grpc.SchedulerAsyncStub, units: int) -> None:
    await core_process.register(stub, _config(units))
    infos = [
        si_pb2.NodeInfo(nodeID=f"node-{number:04}", action=si_pb2.NodeInfo.CREATE, schedulableResource=_size(PER_NODE))
        for number in range(NODES)
    ]
    await core_process.report_nodes(stub, infos)
    added = [
        core_process.application(f"low-{number}", f"root.low{number % LEAVES}")
        for number in range(LEAVES * APPLICATIONS)
    ]
    added += [core_process.application(f"high-{number}", "root.high") for number in range(APPLICATIONS)]
    await core_process.add_applications(stub, added)


async def measure(units: int) -> Measurement:
    async with core_process.connected() as (stub, _, _):
        await _set_up(stub, units)
        stream: Any = stub.UpdateAllocation()
        running = list(_running())
        for start in range(0, len(running), BATCH):
            await stream.write(si_pb2.AllocationRequest(rmID=RM, allocations=running[start : start + BATCH]))
        reported = 0
        while reported < len(running):
            reported += len((await stream.read()).new)
        old_enough = time.perf_counter() + DELAY_S
        await stream.write(si_pb2.AllocationRequest(rmID=RM, allocations=_asks(units)))
        placed = victims = 0
        while placed < ASKS:
            response = await stream.read()
            placed += sum(allocation.allocationKey.startswith("high-") for allocation in response.new)
            told = [r for r in response.released if r.terminationType == si_pb2.PREEMPTED_BY_SCHEDULER]
            if told:
                victims += len(told)
                confirmed = si_pb2.AllocationReleasesRequest(allocationsToRelease=told)
                await stream.write(si_pb2.AllocationRequest(rmID=RM, releases=confirmed))
        took = time.perf_counter() - old_enough
        await stream.done_writing()
        if victims != ASKS * units:
            raise AssertionError(f"{victims} victims for {ASKS} asks of {units}")
        return Measurement(took, victims)
