"""What it costs that a shim is asked about each placement: ``python -m tests.bench.end_to_end [RUNS]``.

Measured is from the first ask sent to the last allocation received, over a connection to a core in its own process.
Latency is taken per ask, from the moment its batch was handed to the connection until its allocation was read. Figures
are medians over the runs; the spread is printed because the machines that run this are shared.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from kornel.shim_client import CallbackHandler, PredicatesQuestion, ShimClient
from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import core_process
from tests.bench.core_process import RM
from tests.bench.report import Figure, show


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes of one run. *batch*: asks per message.

    *answer_s*: seconds the shim takes to allow a placement; absent: it is not asked.
    """

    nodes: int = 5_000
    asks: int = 10_000
    queues: int = 2
    batch: int = 500
    answer_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run. Rates per second, latencies in milliseconds, peak memory of the core in MiB."""

    nodes_per_s: float
    asks_per_s: float
    allocations_per_s: float
    p50_ms: float
    p99_ms: float
    peak_mib: float


class Pondering(CallbackHandler):
    """Allows every placement after a while."""

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str]:
        await asyncio.sleep(self._answer_s)
        return {}


def _keys(workload: Workload) -> list[str]:
    return [f"ask-{number}" for number in range(workload.asks)]


def _batches(workload: Workload) -> Iterator[list[str]]:
    keys = _keys(workload)
    for start in range(0, workload.asks, workload.batch):
        yield keys[start : start + workload.batch]


async def _measure(workload: Workload) -> Measurement:
    async with AsyncExitStack() as stack:
        stub, address, pid = await stack.enter_async_context(core_process.connected())
        await core_process.register(stub, core_process.flat_queues(workload.queues))
        if workload.answer_s is not None:
            client = await stack.enter_async_context(ShimClient(address, RM))
            await client.attach_callbacks(Pondering(workload.answer_s))
        infos = core_process.node_infos(workload.nodes, si_pb2.NodeInfo.CREATE)
        nodes_per_s = await core_process.report_nodes(stub, infos, workload.batch)
        await core_process.add_applications(
            stub, (core_process.application(f"app-{number}", f"root.q{number}") for number in range(workload.queues))
        )
        return await place(stub, workload, nodes_per_s, pid)


async def place(stub: si_pb2_grpc.SchedulerAsyncStub, workload: Workload, nodes_per_s: float, pid: int) -> Measurement:
    """Send the asks of *workload* to a core that has its nodes and applications, until all are placed."""
    sent: dict[str, float] = {}
    requests = _ask_messages(workload)
    latencies: list[float] = []
    sending_took = 0.0
    stream: Any = stub.UpdateAllocation()
    began = time.perf_counter()

    async def send() -> None:
        nonlocal sending_took
        for keys, request in requests:
            sent.update(dict.fromkeys(keys, time.perf_counter()))
            await stream.write(request)
        sending_took = time.perf_counter() - began

    sender = asyncio.create_task(send())
    while len(latencies) < workload.asks:
        response = await stream.read()
        now = time.perf_counter()
        latencies += [(now - sent[allocation.allocationKey]) * 1e3 for allocation in response.new]
    took = time.perf_counter() - began
    await sender
    await stream.done_writing()
    latencies.sort()
    return Measurement(
        nodes_per_s=nodes_per_s,
        asks_per_s=workload.asks / sending_took,
        allocations_per_s=len(latencies) / took,
        p50_ms=latencies[len(latencies) // 2],
        p99_ms=latencies[len(latencies) * 99 // 100],
        peak_mib=core_process.peak_mib(pid),
    )


def _ask_messages(workload: Workload) -> list[tuple[list[str], si_pb2.AllocationRequest]]:
    messages = []
    for number, keys in enumerate(_batches(workload)):
        asks = [
            si_pb2.Allocation(
                allocationKey=key,
                applicationID=f"app-{number % workload.queues}",
                resourcePerAlloc=make_resource(vcore=1_000, memory=1 << 30),
            )
            for key in keys
        ]
        messages.append((keys, si_pb2.AllocationRequest(rmID=RM, allocations=asks)))
    return messages


def run(workload: Workload, runs: int) -> list[Measurement]:
    """*runs* measurements, each with a fresh core."""
    return [asyncio.run(_measure(workload)) for _ in range(runs)]


def report(workload: Workload, runs: int, target: float, expected: str) -> bool:
    """Measure and print. Whether the median rate reaches *target* allocations/s."""
    measurements = run(workload, runs)
    asked = ""
    if workload.answer_s is not None:
        asked = f", every placement allowed by the shim after {workload.answer_s * 1e3:g} ms"
    title = (
        f"end to end over gRPC: {workload.nodes:,} nodes, {workload.asks:,} asks, {workload.queues} queues, "
        f"batches of {workload.batch}, {runs} runs, {os.cpu_count()} cores{asked}"
    )
    figures = [
        Figure("allocations", "/s", [m.allocations_per_s for m in measurements], target),
        Figure("nodes", "/s", [m.nodes_per_s for m in measurements]),
        Figure("asks sent", "/s", [m.asks_per_s for m in measurements]),
        Figure("ask to allocation p50", "ms", [m.p50_ms for m in measurements], each_s=0),
        Figure("ask to allocation p99", "ms", [m.p99_ms for m in measurements], each_s=0),
        Figure("peak memory of the core", "MiB", [m.peak_mib for m in measurements], each_s=0),
    ]
    return show(title, figures, expected)


if __name__ == "__main__":
    RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    report(Workload(), RUNS, 15_000, "40,000 allocations/s")
    report(Workload(answer_s=0.001), RUNS, 8_000, "half the plain rate: two more messages for each placement")
