"""First ask sent to last allocation received, over a real connection to a core in its own process.

The shape of upstream's own benchmark: many equal nodes, many equal asks, two queues. Latency is taken per ask, from
the moment its batch was handed to the connection until its allocation was read. Figures are medians over the runs;
the spread is printed because the machines that run this are shared.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from si.v1 import si_pb2, si_pb2_grpc

from shim_client import CallbackHandler, PredicatesQuestion, ShimClient

RM = "bench"
MIB64 = 64 << 20


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
    """Allows every placement, after a while."""

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str]:
        await asyncio.sleep(self._answer_s)
        return {}


def _configuration(workload: Workload) -> str:
    leaves = "\n".join(f"          - name: q{number}" for number in range(workload.queues))
    root = f"      - name: root\n        submitacl: '*'\n        queues:\n{leaves}\n"
    return f"partitions:\n  - name: default\n    queues:\n{root}"


def _resource(**amounts: int) -> si_pb2.Resource:
    return si_pb2.Resource(resources={name: si_pb2.Quantity(value=amount) for name, amount in amounts.items()})


def _batches(workload: Workload) -> Iterator[list[str]]:
    keys = [f"ask-{number}" for number in range(workload.asks)]
    for start in range(0, workload.asks, workload.batch):
        yield keys[start : start + workload.batch]


async def _measure(address: str, workload: Workload, pid: int) -> Measurement:
    options = [("grpc.max_receive_message_length", MIB64), ("grpc.max_send_message_length", MIB64)]
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
        stub = si_pb2_grpc.SchedulerStub(channel)
        await stub.RegisterResourceManager(
            si_pb2.RegisterResourceManagerRequest(rmID=RM, config=_configuration(workload))
        )
        if workload.answer_s is not None:
            client = await stack.enter_async_context(ShimClient(address, RM))
            await client.attach_callbacks(Pondering(workload.answer_s))
        nodes_per_s = await _report_nodes(stub, workload)
        await _add_applications(stub, workload)
        sent: dict[str, float] = {}
        requests = _ask_messages(workload)
        latencies: list[float] = []
        sending_took = 0.0
        stream = stub.UpdateAllocation()
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
        allocations_per_s=workload.asks / took,
        p50_ms=latencies[len(latencies) // 2],
        p99_ms=latencies[len(latencies) * 99 // 100],
        peak_mib=_peak_mib(pid),
    )


def _ask_messages(workload: Workload) -> list[tuple[list[str], si_pb2.AllocationRequest]]:
    messages = []
    for number, keys in enumerate(_batches(workload)):
        asks = [
            si_pb2.Allocation(
                allocationKey=key,
                applicationID=f"app-{number % workload.queues}",
                resourcePerAlloc=_resource(vcore=1_000, memory=1 << 30),
            )
            for key in keys
        ]
        messages.append((keys, si_pb2.AllocationRequest(rmID=RM, allocations=asks)))
    return messages


async def _report_nodes(stub: si_pb2_grpc.SchedulerStub, workload: Workload) -> float:
    capacity = _resource(vcore=16_000, memory=64 << 30, pods=110)
    infos = [
        si_pb2.NodeInfo(nodeID=f"node-{n:05}", action=si_pb2.NodeInfo.CREATE, schedulableResource=capacity)
        for n in range(workload.nodes)
    ]
    began = time.perf_counter()
    stream = stub.UpdateNode()
    for start in range(0, workload.nodes, workload.batch):
        await stream.write(si_pb2.NodeRequest(rmID=RM, nodes=infos[start : start + workload.batch]))
    accepted = 0
    while accepted < workload.nodes:
        accepted += len((await stream.read()).accepted)
    took = time.perf_counter() - began
    await stream.done_writing()
    return workload.nodes / took


async def _add_applications(stub: si_pb2_grpc.SchedulerStub, workload: Workload) -> None:
    added = [
        si_pb2.AddApplicationRequest(
            applicationID=f"app-{number}",
            queueName=f"root.q{number}",
            ugi=si_pb2.UserGroupInformation(user="bench"),
        )
        for number in range(workload.queues)
    ]
    stream = stub.UpdateApplication()
    await stream.write(si_pb2.ApplicationRequest(rmID=RM, new=added))
    accepted = 0
    while accepted < workload.queues:
        accepted += len((await stream.read()).accepted)
    await stream.done_writing()


def _peak_mib(pid: int) -> float:
    """Peak resident memory of *pid*, where the system tells; else 0."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    kib = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(kib) / 1024


async def _with_core(workload: Workload) -> Measurement:
    with tempfile.TemporaryDirectory() as scratch:
        ready = Path(scratch, "ready")
        core = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "core", "serve",
            "--grpc", "127.0.0.1:0", "--ready-file", str(ready), "--log-format", "json",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async for _ in _ticks():
                if core.returncode is not None:
                    raise RuntimeError(f"the core ended with status {core.returncode} before it served")
                if address := _address_in(ready):
                    break
            return await _measure(address, workload, core.pid)
        finally:
            if core.returncode is None:
                core.send_signal(signal.SIGTERM)
                await core.wait()


def _address_in(ready: Path) -> str:
    """What the core wrote once it served; empty before."""
    return ready.read_text().strip() if ready.exists() else ""


async def _ticks() -> AsyncIterator[None]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        yield
        await asyncio.sleep(0.02)
    raise TimeoutError("the core did not get ready within 30 s")


def run(workload: Workload, runs: int) -> list[Measurement]:
    """*runs* measurements, each with a fresh core."""
    return [asyncio.run(_with_core(workload)) for _ in range(runs)]


def report(workload: Workload, measurements: list[Measurement], target: float) -> bool:
    """Print medians with their spread. Whether the median rate reaches *target* allocations/s."""
    asked = (
        ""
        if workload.answer_s is None
        else f", every placement allowed by the shim after {workload.answer_s * 1e3:g} ms"
    )
    print(
        f"end to end over gRPC: {workload.nodes:,} nodes, {workload.asks:,} asks, {workload.queues} queues, "
        f"batches of {workload.batch}, {len(measurements)} runs, {os.cpu_count()} cores{asked}"
    )
    rows = [
        ("nodes/s", "nodes_per_s"),
        ("asks/s sent", "asks_per_s"),
        ("allocations/s", "allocations_per_s"),
        ("ask to allocation p50 ms", "p50_ms"),
        ("ask to allocation p99 ms", "p99_ms"),
        ("peak memory of the core MiB", "peak_mib"),
    ]
    for label, field in rows:
        values = [getattr(measurement, field) for measurement in measurements]
        print(f"  {label:<30}{statistics.median(values):>12,.1f}   ({min(values):,.1f} to {max(values):,.1f})")
    rate = statistics.median(measurement.allocations_per_s for measurement in measurements)
    print(f"  target {target:,.0f} allocations/s: {'reached' if rate >= target else 'MISSED'} ({rate / target:.2f}x)")
    return rate >= target
