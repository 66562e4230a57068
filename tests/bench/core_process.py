"""A core in a process of its own, and what every measurement over gRPC sends it first."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
from si.v1 import si_pb2, si_pb2_grpc

RM = "bench"
MIB64 = 64 << 20
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", MIB64), ("grpc.max_send_message_length", MIB64)]


@asynccontextmanager
async def running_core(rest_address: str = "off") -> AsyncIterator[tuple[str, int]]:
    """A core that serves: its address and process ID."""
    with tempfile.TemporaryDirectory() as scratch:
        ready = Path(scratch, "ready")
        core = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "core", "serve",
            "--grpc", "127.0.0.1:0", "--ready-file", str(ready), "--log-format", "json", "--rest-address", rest_address,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield await _address(core, ready), core.pid
        finally:
            if core.returncode is None:
                core.send_signal(signal.SIGTERM)
                await core.wait()


async def _address(core: asyncio.subprocess.Process, ready: Path) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if core.returncode is not None:
            raise RuntimeError(f"the core ended with status {core.returncode} before it served")
        if address := _written_to(ready):
            return address
        await asyncio.sleep(0.02)
    raise TimeoutError("the core did not get ready within 30 s")


def _written_to(ready: Path) -> str:
    """What the core wrote once it served; empty before."""
    return ready.read_text().strip() if ready.exists() else ""


@asynccontextmanager
async def connected(rest_address: str = "off") -> AsyncIterator[tuple[si_pb2_grpc.SchedulerStub, str, int]]:
    """A core, a connection to it, its address and process ID."""
    async with (
        running_core(rest_address) as (address, pid),
        grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel,
    ):
        yield si_pb2_grpc.SchedulerStub(channel), address, pid


def peak_mib(pid: int) -> float:
    """Peak resident memory of *pid*, where the system tells; else 0."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    kib = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(kib) / 1024


def flat_queues(queues: int) -> str:
    """A configuration with leaves ``root.q0`` and so on."""
    leaves = "\n".join(f"          - name: q{number}" for number in range(queues))
    root = f"      - name: root\n        submitacl: '*'\n        queues:\n{leaves}\n"
    return f"partitions:\n  - name: default\n    queues:\n{root}"


def resource(**amounts: int) -> si_pb2.Resource:
    return si_pb2.Resource(resources={name: si_pb2.Quantity(value=amount) for name, amount in amounts.items()})


async def register(stub: si_pb2_grpc.SchedulerStub, config: str) -> None:
    await stub.RegisterResourceManager(si_pb2.RegisterResourceManagerRequest(rmID=RM, config=config))


def node_infos(count: int, action: si_pb2.NodeInfo.ActionFromRM.ValueType) -> list[si_pb2.NodeInfo]:
    capacity = resource(vcore=16_000, memory=64 << 30, pods=110)
    return [
        si_pb2.NodeInfo(nodeID=f"node-{number:05}", action=action, schedulableResource=capacity)
        for number in range(count)
    ]


async def report_nodes(stub: si_pb2_grpc.SchedulerStub, infos: Sequence[si_pb2.NodeInfo], batch: int = 500) -> float:
    """New nodes, until all are accepted. Nodes per second."""
    began = time.perf_counter()
    stream = stub.UpdateNode()
    for start in range(0, len(infos), batch):
        await stream.write(si_pb2.NodeRequest(rmID=RM, nodes=infos[start : start + batch]))
    accepted = 0
    while accepted < len(infos):
        accepted += len((await stream.read()).accepted)
    took = time.perf_counter() - began
    await stream.done_writing()
    return len(infos) / took


async def add_applications(
    stub: si_pb2_grpc.SchedulerStub, applications: Iterable[si_pb2.AddApplicationRequest]
) -> None:
    """New applications, until all are accepted."""
    added = list(applications)
    stream = stub.UpdateApplication()
    await stream.write(si_pb2.ApplicationRequest(rmID=RM, new=added))
    accepted = 0
    while accepted < len(added):
        response = await stream.read()
        if response.rejected:
            raise AssertionError(f"an application was refused: {response.rejected[0].reason}")
        accepted += len(response.accepted)
    await stream.done_writing()


def application(application_id: str, queue: str, **fields: si_pb2.Resource) -> si_pb2.AddApplicationRequest:
    ugi = si_pb2.UserGroupInformation(user="bench")
    return si_pb2.AddApplicationRequest(applicationID=application_id, queueName=queue, ugi=ugi, **fields)
