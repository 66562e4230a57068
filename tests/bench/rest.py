"""Long lists over REST while asks are placed: 5,000 nodes, 1,000 queues, 10,000 applications, 100,000 allocations.

A core in its own process, a shim in this one that keeps it busy (P1: equal asks in two queues, each allocation released
as soon as it is seen, so that the state keeps its size), and a client in a third one that asks for one list after the
other, a call every second, compressed as browsers want it. The shim's rate is taken with and without that
client in turns; latencies are those of whole answers.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import core_process
from tests.bench.core_process import RM
from tests.bench.report import Figure, show
from tests.ports import reserve_port

NODES, LEAVES, APPLICATIONS, ALLOCATIONS = 5_000, 999, 10_000, 100_000
MOST_MS, MOST_SCRAPE_MS, LEAST_PERCENT = 300, 50, 80
EVERY_S = 1.0
WINDOW_S, WINDOWS = 14.0, 2
BATCH, OPEN = 500, 4_000
SETTLE_S = 0.5
IDLE_S = 5.0
"""What comes between the start of a cluster and its first reader."""

LISTS = {
    "nodes": "/ws/v1/partition/default/nodes",
    "applications": "/ws/v1/partition/default/applications/active",
    "users": "/ws/v1/partition/default/usage/users",
    "groups": "/ws/v1/partition/default/usage/groups",
    "queues": "/ws/v1/partition/default/queues",
    "node use": "/ws/v1/scheduler/node-utilizations",
    "metrics": "/ws/v1/metrics",
}


class _Busy:
    """A shim that has :data:`OPEN` asks open at any time, and counts what is placed."""

    def __init__(self, stub: si_pb2_grpc.SchedulerAsyncStub) -> None:
        self._stub = stub
        self._number = 0
        self.placed = 0

    async def run(self) -> None:
        stream: Any = self._stub.UpdateAllocation()
        for _ in range(OPEN // BATCH):
            await stream.write(self._asks([]))
        released: list[tuple[str, str]] = []
        while True:
            response = await stream.read()
            self.placed += len(response.new)
            released += [(each.applicationID, each.allocationKey) for each in response.new]
            while len(released) >= BATCH:
                await stream.write(self._asks(released[:BATCH]))
                del released[:BATCH]

    async def rate(self, seconds: float) -> float:
        """Allocations per second in the next *seconds*."""
        before, began = self.placed, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self.placed - before) / (time.perf_counter() - began)

    def _asks(self, released: Iterable[tuple[str, str]]) -> si_pb2.AllocationRequest:
        keys = range(self._number, self._number + BATCH)
        self._number += BATCH
        size = make_resource(vcore=10, memory=1 << 20)
        return si_pb2.AllocationRequest(
            rmID=RM,
            allocations=[
                si_pb2.Allocation(allocationKey=f"ask-{key}", applicationID=f"busy-{key % 2}", resourcePerAlloc=size)
                for key in keys
            ],
            releases=si_pb2.AllocationReleasesRequest(
                allocationsToRelease=[
                    si_pb2.AllocationRelease(
                        partitionName="default",
                        applicationID=application,
                        allocationKey=key,
                        terminationType=si_pb2.TerminationType.STOPPED_BY_RM,
                    )
                    for application, key in released
                ]
            ),
        )


async def _fill(stub: si_pb2_grpc.SchedulerAsyncStub) -> None:
    await core_process.register(stub, core_process.flat_queues(LEAVES))
    await core_process.report_nodes(stub, core_process.node_infos(NODES, si_pb2.NodeInfo.CREATE))
    added = [_application(f"app-{number}", number) for number in range(APPLICATIONS)]
    await core_process.add_applications(stub, [*added, _application("busy-0", 0), _application("busy-1", 1)])
    stream: Any = stub.UpdateAllocation()

    async def send() -> None:
        for start in range(0, ALLOCATIONS, BATCH):
            asks = [_ask(number) for number in range(start, start + BATCH)]
            await stream.write(si_pb2.AllocationRequest(rmID=RM, allocations=asks))

    sender, placed = asyncio.create_task(send()), 0
    while placed < ALLOCATIONS:
        placed += len((await stream.read()).new)
    await sender
    await stream.done_writing()


def _application(name: str, number: int) -> si_pb2.AddApplicationRequest:
    ugi = si_pb2.UserGroupInformation(user=f"user-{number % 50}", groups=["all"])
    return si_pb2.AddApplicationRequest(applicationID=name, queueName=f"root.q{number % LEAVES}", ugi=ugi)


def _ask(number: int) -> si_pb2.Allocation:
    return si_pb2.Allocation(
        allocationKey=f"task-{number:06}",
        applicationID=f"app-{number % APPLICATIONS}",
        resourcePerAlloc=make_resource(vcore=100, memory=1 << 28),
        allocationTags={"kubernetes.io/meta/namespace": "work", "kubernetes.io/meta/podName": f"pod-{number}"},
    )


async def _measure() -> tuple[list[float], list[float], dict[str, list[float]]]:
    """Rates without and with the reader, and what its calls took in ms."""
    address = f"127.0.0.1:{reserve_port()}"
    async with AsyncExitStack() as stack:
        stub, _, _ = await stack.enter_async_context(core_process.connected(rest=address))
        await _fill(stub)
        await asyncio.sleep(IDLE_S)
        busy = _Busy(stub)
        running = asyncio.create_task(busy.run())
        await busy.rate(2.0)
        alone, beside, took = [], [], {name: [] for name in LISTS}
        for _ in range(WINDOWS):
            alone.append(await busy.rate(WINDOW_S / 2))
            reader = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.bench.rest", address, str(WINDOW_S)), stdout=asyncio.subprocess.PIPE
            )
            await asyncio.sleep(SETTLE_S)
            beside.append(await busy.rate(WINDOW_S - 2 * SETTLE_S))
            output, _ = await reader.communicate()
            for name, times in json.loads(output).items():
                took[name] += times
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return alone, beside, took


def report(runs: int) -> bool:
    """Measure and print. Whether every list is in time, and the shim fast enough beside them."""
    alone, beside, took = [], [], {name: [] for name in LISTS}
    for _ in range(runs):
        without, with_reader, times = asyncio.run(_measure())
        alone, beside = alone + without, beside + with_reader
        for name in LISTS:
            took[name] += times[name]
    figures = [
        Figure("allocations without a reader", "/s", alone),
        Figure("with one, part of that", "%", list(_parts(alone, beside)), LEAST_PERCENT, each_s=0),
    ]
    for name, times in took.items():
        figures.append(Figure(f"{name}, median of {len(times)}", "ms", [statistics.median(times)], each_s=0))
        most = MOST_SCRAPE_MS if name == "metrics" else MOST_MS
        figures.append(Figure(f"{name}, p99", "ms", [_p99(times)], most, at_most=True, each_s=0))
    held = f"{NODES:,} nodes, {LEAVES + 1:,} queues, {APPLICATIONS:,} applications, {ALLOCATIONS:,} allocations"
    return show(f"REST while asks are placed: {held}", figures, "each in time, and the engine hardly slower")


def _parts(alone: list[float], beside: list[float]) -> Iterator[float]:
    return (100 * slower / rate for rate, slower in zip(alone, beside, strict=True))


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def _read(address: str, seconds: float) -> None:
    """The reader's process: one list after the other, and at the end what each call took, as JSON."""
    took: dict[str, list[float]] = {name: [] for name in LISTS}
    connection = http.client.HTTPConnection(address)
    began = time.perf_counter()
    number = 0
    while time.perf_counter() - began < seconds:
        name = list(LISTS)[number % len(LISTS)]
        asked = time.perf_counter()
        connection.request("GET", LISTS[name], headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        body = response.read()
        took[name].append((time.perf_counter() - asked) * 1e3)
        if response.status != 200 or not body:
            raise AssertionError(f"{name}: status {response.status}, {len(body)} bytes")
        number += 1
        time.sleep(max(0.0, began + number * EVERY_S - time.perf_counter()))
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    _read(sys.argv[1], float(sys.argv[2]))
