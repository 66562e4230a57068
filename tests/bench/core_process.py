"""A core in a process of its own, and what every measurement over gRPC sends it first."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from kornel.shim_mock.load.sending import CHANNEL_OPTIONS
from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import processes

RM = "bench"
peak_mib = processes.peak_mib


def serve(*, history: bool = True, rest: str = "127.0.0.1:0", journal: str = "", sync: str = "full") -> list[str]:
    """The command line of a core with everything on, as anybody would run it; its files vanish with it.

    *journal*: where it keeps one; empty: nowhere. *sync*: what its decisions wait for.
    """
    kept = "{scratch}/history.db" if history else "off"
    return [
        "serve", "--grpc", "127.0.0.1:0", "--ready-file", "{scratch}/ready", "--log-format", "json",
        "--rest-address", rest, "--history", kept, "--journal", journal or "off", "--journal-sync", sync,
    ]  # fmt: skip


@asynccontextmanager
async def running_core(
    *, history: bool = True, rest: str = "127.0.0.1:0", journal: str = "", sync: str = "full"
) -> AsyncIterator[tuple[str, int]]:
    """A core that serves, with a durable history or without: its address and process ID."""
    async with processes.serving("kornel", *serve(history=history, rest=rest, journal=journal, sync=sync)) as served:
        yield served


@asynccontextmanager
async def connected(
    *, history: bool = True, rest: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[si_pb2_grpc.SchedulerAsyncStub, str, int]]:
    """A core, a connection to it, its address and process ID. *rest*: where it listens for HTTP."""
    async with (
        running_core(history=history, rest=rest) as (address, pid),
        grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel,
    ):
        yield si_pb2_grpc.SchedulerStub(channel), address, pid


def flat_queues(queues: int) -> str:
    """A configuration with leaves ``root.q0`` and so on."""
    leaves = "\n".join(f"          - name: q{number}" for number in range(queues))
    root = f"      - name: root\n        submitacl: '*'\n        queues:\n{leaves}\n"
    return f"partitions:\n  - name: default\n    queues:\n{root}"


async def register(stub: si_pb2_grpc.SchedulerAsyncStub, config: str) -> None:
    await stub.RegisterResourceManager(si_pb2.RegisterResourceManagerRequest(rmID=RM, config=config))


def node_infos(count: int, action: si_pb2.NodeInfo.ActionFromRM.ValueType) -> list[si_pb2.NodeInfo]:
    capacity = make_resource(vcore=16_000, memory=64 << 30, pods=110)
    return [
        si_pb2.NodeInfo(nodeID=f"node-{number:05}", action=action, schedulableResource=capacity)
        for number in range(count)
    ]


async def report_nodes(
    stub: si_pb2_grpc.SchedulerAsyncStub, infos: Sequence[si_pb2.NodeInfo], batch: int = 500
) -> float:
    """New nodes, until all are accepted. Nodes per second."""
    began = time.perf_counter()
    stream: Any = stub.UpdateNode()
    for start in range(0, len(infos), batch):
        await stream.write(si_pb2.NodeRequest(rmID=RM, nodes=infos[start : start + batch]))
    accepted = 0
    while accepted < len(infos):
        accepted += len((await stream.read()).accepted)
    took = time.perf_counter() - began
    await stream.done_writing()
    return len(infos) / took


async def add_applications(
    stub: si_pb2_grpc.SchedulerAsyncStub, applications: Iterable[si_pb2.AddApplicationRequest]
) -> None:
    """New applications, until all are accepted."""
    added = list(applications)
    stream: Any = stub.UpdateApplication()
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
