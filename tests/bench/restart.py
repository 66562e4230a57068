"""A core with a journal that is killed and started again, with no message from its shim: the time until it decides.

Before that, what the core's event loop notices of the snapshot that it will start from, which another process makes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from kornel.core.journal.snapshots.snapshot_store import SnapshotFiles
from kornel.shim_mock.load.sending import CHANNEL_OPTIONS
from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import core_process, processes
from tests.bench.core_process import RM
from tests.bench.report import Figure, show
from tests.unit.journal.made import open_store

MOST_S = 5.0
MOST_STALL_MS = 20.0
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Workload:
    """*per_node* allocations run on each of *nodes* nodes."""

    nodes: int = 5_000
    per_node: int = 28
    applications: int = 1_000
    batch: int = 1_000


@dataclass(frozen=True, slots=True)
class Restart:
    """``restart_s``: from the start of the process to the first new decision; ``processor_s``: the core's processor
    time until then.

    ``stall_ms``: the most processor time between two beats of the event loop while the snapshot was made; ``wall_ms``:
    the most time. ``tail``: records that were played behind the snapshot, which has so many *snapshot_bytes*.
    """

    restart_s: float
    processor_s: float
    stall_ms: float
    wall_ms: float
    tail: int
    snapshot_bytes: int


async def _fill(stub: si_pb2_grpc.SchedulerAsyncStub, workload: Workload) -> None:
    capacity = make_resource(vcore=32_000, memory=128 << 30, pods=110)
    nodes = [
        si_pb2.NodeInfo(nodeID=f"node-{n:05}", action=si_pb2.NodeInfo.CREATE, schedulableResource=capacity)
        for n in range(workload.nodes)
    ]
    await core_process.register(stub, core_process.flat_queues(10))
    await core_process.report_nodes(stub, nodes)
    await core_process.add_applications(
        stub, (core_process.application(f"app-{n}", f"root.q{n % 10}") for n in range(workload.applications))
    )
    stream: Any = stub.UpdateAllocation()

    async def send() -> None:
        for request in _list_reports(workload):
            await stream.write(request)

    sender = asyncio.create_task(send())
    echoed = 0
    while echoed < workload.nodes * workload.per_node:
        echoed += len((await stream.read()).new)
    await sender
    await stream.done_writing()


def _list_reports(workload: Workload) -> list[si_pb2.AllocationRequest]:
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


async def _wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)


async def _place_one(stub: si_pb2_grpc.SchedulerAsyncStub, key: str) -> None:
    stream: Any = stub.UpdateAllocation()
    ask = si_pb2.Allocation(allocationKey=key, applicationID="app-0", resourcePerAlloc=make_resource(vcore=1_000))
    await stream.write(si_pb2.AllocationRequest(rmID=RM, allocations=[ask]))
    while key not in [allocation.allocationKey for allocation in (await stream.read()).new]:
        pass
    stream.cancel()


async def _run(workload: Workload, scratch: Path) -> Restart:
    journal, stalls = scratch / "journal.db", scratch / "stalls"
    snapshots = SnapshotFiles(Path(f"{journal}.snapshots"))
    options = ["serve", "--grpc", "127.0.0.1:0", "--ready-file", "{scratch}/ready", "--history", "off"]
    options += ["--rest-address", "127.0.0.1:0", "--journal", str(journal)]
    async with (
        processes.serving("tests.bench.watched_core", str(stalls), *options) as (address, pid),
        grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel,
    ):
        stub: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
        await _fill(stub, workload)
        filled = _end_of(journal)
        os.kill(pid, signal.SIGUSR1)
        number = 0
        async with asyncio.timeout(PATIENCE_S):
            while not (found := snapshots.list_snapshots()) or found[0].sequence < filled:
                await _place_one(stub, f"meanwhile-{number}")
                number += 1
                await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGUSR2)
        await _wait_for(stalls.exists)
        seen = json.loads(stalls.read_text())
        os.kill(pid, signal.SIGKILL)
    tail = _end_of(journal) - found[0].sequence
    began = time.perf_counter()
    async with (
        processes.serving("kornel", *options) as (address, pid),
        grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel,
    ):
        stub = si_pb2_grpc.SchedulerStub(channel)
        await _place_one(stub, "fresh")
        took, computed = time.perf_counter() - began, processes.processor_s(pid)
    return Restart(took, computed, max(seen["processor"]), max(seen["wall"]), tail, found[0].size)


def _end_of(journal: Path) -> int:
    with closing(open_store(journal)) as store:
        return store.find_end().sequence


def report(runs: int, workload: Workload | None = None) -> bool:
    """Measure and print. Returns whether the core is back soon enough, and its loop was not held up."""
    workload = workload or Workload()
    results = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as scratch:
            results.append(asyncio.run(_run(workload, Path(scratch))))
    title = f"restart from a snapshot: {workload.nodes:,} nodes, {workload.nodes * workload.per_node:,} allocations"
    figures = [
        Figure(
            "until the first new decision", "s", [each.restart_s for each in results], MOST_S, at_most=True, each_s=0
        ),
        Figure("processor time until then", "s", [each.processor_s for each in results], each_s=0),
        Figure(
            "longest stall, processor time",
            "ms",
            [each.stall_ms for each in results],
            MOST_STALL_MS,
            at_most=True,
            each_s=0,
        ),
        Figure("longest stall, wall time", "ms", [each.wall_ms for each in results], each_s=0),
        Figure("records behind the snapshot", "", [float(each.tail) for each in results], each_s=0),
        Figure("snapshot", "MiB", [each.snapshot_bytes / 2**20 for each in results], each_s=0),
    ]
    return show(title, figures, "no message from the shim but the ask")


if __name__ == "__main__":
    report(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
