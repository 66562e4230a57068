"""How long others wait while the core schedules a burst: a health check, and a stream with little to say.

Whoever waits runs in a process of its own, so that the burst's client does not make it wait.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from si.v1 import si_pb2, si_pb2_grpc

from tests.bench import core_process
from tests.bench.core_process import RM
from tests.bench.report import Figure, show

ASKS = 50_000
BATCH = 500
PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Measurement:
    """Milliseconds of each call while the burst lasted, and its rate of allocations per second.

    *late_ms*: how much later than asked for the caller itself got the processor back; no fault of the core.
    """

    late_ms: list[float]
    health_ms: list[float]
    stream_ms: list[float]
    allocations_per_s: float


async def _measure() -> Measurement:
    async with core_process.connected() as (stub, address, _):
        await core_process.register(stub, core_process.flat_queues(2))
        await core_process.report_nodes(stub, core_process.node_infos(5_000, si_pb2.NodeInfo.CREATE))
        await core_process.add_applications(
            stub, (core_process.application(f"app-{number}", f"root.q{number}") for number in range(2))
        )
        prober = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.responsiveness", address,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert prober.stdin is not None, "the prober was started with a pipe"
        assert prober.stdout is not None, "the prober was started with a pipe"
        await prober.stdout.readline()
        rate = await _burst(stub)
        prober.stdin.close()
        found = json.loads(await prober.stdout.readline())
        await prober.wait()
        return Measurement(found["late"], found["health"], found["stream"], rate)


async def _burst(stub: si_pb2_grpc.SchedulerStub) -> float:
    size = core_process.resource(vcore=1_000, memory=1 << 30)
    asks = [
        si_pb2.Allocation(allocationKey=f"ask-{number}", applicationID=f"app-{number % 2}", resourcePerAlloc=size)
        for number in range(ASKS)
    ]
    messages = [
        si_pb2.AllocationRequest(rmID=RM, allocations=asks[start : start + BATCH]) for start in range(0, ASKS, BATCH)
    ]
    stream = stub.UpdateAllocation()
    began = time.perf_counter()

    async def send() -> None:
        for message in messages:
            await stream.write(message)

    sender = asyncio.create_task(send())
    placed = 0
    while placed < ASKS:
        placed += len((await stream.read()).new)
    took = time.perf_counter() - began
    await sender
    await stream.done_writing()
    return ASKS / took


def probe(address: str) -> None:
    """Call again and again until stdin ends; then print what each call took."""
    late_ms: list[float] = []
    health_ms: list[float] = []
    stream_ms: list[float] = []

    async def calls() -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            nodes = si_pb2_grpc.SchedulerStub(channel).UpdateNode()
            await health.Check(health_pb2.HealthCheckRequest())
            print("ready", flush=True)
            ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            while not ended.done():
                began = time.perf_counter()
                await health.Check(health_pb2.HealthCheckRequest())
                health_ms.append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                name = f"probe-{len(stream_ms)}"
                info = si_pb2.NodeInfo(nodeID=name, action=si_pb2.NodeInfo.CREATE_DRAIN)
                await nodes.write(si_pb2.NodeRequest(rmID=RM, nodes=[info]))
                await nodes.read()
                stream_ms.append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                await asyncio.sleep(PAUSE_S)
                late_ms.append((time.perf_counter() - began - PAUSE_S) * 1e3)
            await nodes.done_writing()

    asyncio.run(calls())
    print(json.dumps({"late": late_ms, "health": health_ms, "stream": stream_ms}), flush=True)


def report(runs: int) -> bool:
    results = [asyncio.run(_measure()) for _ in range(runs)]

    def figure(label: str, latencies: list[list[float]], share: float, most: float | None = None) -> Figure:
        values = [sorted(run)[min(len(run) - 1, int(len(run) * share))] for run in latencies]
        return Figure(label, "ms", values, most, at_most=most is not None, each_s=0)

    health, stream = [r.health_ms for r in results], [r.stream_ms for r in results]
    figures = [
        figure("the caller's own pauses, too long by, p99", [r.late_ms for r in results], 0.99),
        figure("health check p50", health, 0.5),
        figure("health check p99", health, 0.99, 50),
        figure("one node on its own stream p50", stream, 0.5),
        figure("one node on its own stream p99", stream, 0.99, 50),
        Figure("allocations meanwhile", "/s", [r.allocations_per_s for r in results], 15_000),
    ]
    title = f"responsiveness over gRPC: others call while {ASKS:,} asks are taken in and placed"
    return show(title, figures, "a slice is 5 ms and a turn of the intake 20 ms: no more than one of each ahead")


if __name__ == "__main__":
    probe(sys.argv[1])
