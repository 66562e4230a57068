"""P18 over gRPC: the cluster of :mod:`tests.bench.ends`, served, and YuniKorn's core in a process of its own beside it.

A task ends every ten milliseconds, in a message of its own. Counted is the processor time of the whole core for each
end, with that of the applications that come for those which were served. YuniKorn's core is an unmodified dependency of
the program in ``go_core``, which hears it by its callback, in process; without Go its rows are left out.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kornel.shim_mock.load.sending import Sender
from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM, running_core
from tests.bench.ends import (
    ASKS_EACH,
    BETWEEN_NS,
    CORES,
    NODES,
    SEED,
    TASKS,
    USER_CORES,
    USERS,
    VARIANTS,
    WARM_ENDS,
    Case,
    configuration,
    measure_case,
)
from tests.bench.placing import connection, run, undisturbed
from tests.bench.processes import apart, processor_s
from tests.bench.table import Row

GO_CORE: Final = Path(__file__).with_name("go_core")
BUILD_S: Final = 900
RUN_S: Final = 300
PATIENCE_S: Final = 60.0
SETTLE_S: Final = 4.0
"""Longer than the delay after which room is saved for those who wait."""
BETWEEN_S: Final = BETWEEN_NS / 1e9
ENDS: Final = 300
MOST_OF_GO: Final[dict[str, dict[int, float]]] = {
    "engine alone": {1: 1.0, 1_000: 0.1, 5_000: 0.1},
    "over gRPC": {1: 1.2, 1_000: 0.25, 5_000: 0.25},
}


def p18_served(runs: int, *, quick: bool) -> Iterator[Row]:
    """Processor time of the served core for each end, beside that of YuniKorn's core."""
    ends = 100 if quick else ENDS
    for name in ("fifo",) if quick else ("fifo", "fair", "sizes", "limits"):
        for waiting in (1, 1_000) if quick else (1, 100, 1_000, 5_000):
            case = Case(waiting, **VARIANTS[name])
            what = f"{case.kind}: {waiting:,} wait"
            served = [run(measure_served(case, ends)) for _ in range(runs)]
            yield Row("P18", f"{what}: an end, over gRPC", "ms", served)
            theirs = [found for _ in range(runs) if (found := measure_go_core(case, ends)) is not None]
            if not theirs:
                continue
            yield Row("P18", f"{what}: an end, YuniKorn's core", "ms", theirs)
            if waiting in MOST_OF_GO["over gRPC"]:
                alone = [_engine_ms(case, ends) for _ in range(runs)]
                for how, mine in (("engine alone", alone), ("over gRPC", served)):
                    times = [one / other for one, other in zip(mine, theirs, strict=True)]
                    yield Row("P18", f"{what}: {how} to it", "x", times, MOST_OF_GO[how][waiting], at_most=True)


def _engine_ms(case: Case, ends: int) -> float:
    """Returns the processor time of the engine for an end, and what comes in its wake."""
    found = apart(measure_case, case, ends, 5.0)
    return found.median_ms + found.arrival_ms * found.placed / ASKS_EACH


class ServedCluster:
    """The shim of a full cluster of *case*, on one connection."""

    def __init__(self, case: Case, sender: Sender) -> None:
        self._case = case
        self.sender = sender
        self._dice = random.Random(SEED)
        self._left: dict[str, int] = {}
        self._made = self._asked = 0
        self._running: list[tuple[str, str]] = []
        self._applications: Any = sender.stub.UpdateApplication()
        """One stream for all applications: a connection has room for a hundred."""

    async def fill(self) -> None:
        """Registers, and has all nodes full."""
        sender = self.sender
        await sender.register(configuration(self._case))
        capacity = make_resource(vcore=CORES * 1_000, memory=1 << 50)
        await sender.report_nodes(
            [
                si.NodeInfo(nodeID=f"n{at}", action=si.NodeInfo.CREATE, schedulableResource=capacity)
                for at in range(NODES)
            ]
        )
        owners = [self._application(f"run-{number}") for number in range(USERS)]
        await self._add(owners)
        self._running = [(owners[at % USERS].applicationID, f"task-{at}") for at in range(TASKS)]
        tasks = [
            si.Allocation(
                allocationKey=key, applicationID=name, resourcePerAlloc=self._size(0), nodeID=f"n{at // CORES}"
            )
            for at, (name, key) in enumerate(self._running)
        ]
        await sender.place_asks([si.AllocationRequest(rmID=RM, allocations=tasks)])

    def _application(self, name: str) -> si.AddApplicationRequest:
        number = self._made
        self._made += 1
        ugi = si.UserGroupInformation(user=f"u{number % USERS}", groups=["bench"])
        return si.AddApplicationRequest(applicationID=name, queueName=f"root.q{number % self._case.leaves}", ugi=ugi)

    def _size(self, number: int) -> si.Resource:
        return make_resource(vcore=1_000, memory=(1 + number % self._case.sizes) << 20)

    async def _add(self, requests: list[si.AddApplicationRequest]) -> None:
        await self._applications.write(si.ApplicationRequest(rmID=RM, new=requests))
        accepted = 0
        async with asyncio.timeout(PATIENCE_S):
            while accepted < len(requests):
                accepted += len((await self._applications.read()).accepted)

    async def wait(self, stream: Any, count: int) -> None:
        """Adds so many applications that wait."""
        for start in range(0, count, 1_000):
            added = [self._application(f"app-{self._made}") for _ in range(min(1_000, count - start))]
            await self._add(added)
            asks = []
            for request in added:
                self._left[request.applicationID] = ASKS_EACH
                for _ in range(ASKS_EACH):
                    self._asked += 1
                    asks.append(
                        si.Allocation(
                            allocationKey=f"ask-{self._asked}",
                            applicationID=request.applicationID,
                            resourcePerAlloc=self._size(self._asked),
                        )
                    )
            await stream.write(si.AllocationRequest(rmID=RM, allocations=asks))

    async def end_one(self, stream: Any) -> None:
        """Ends one task, and waits until its room is used; applications that have been served are followed by new
        ones."""
        at = self._dice.randrange(len(self._running))
        self._running[at], self._running[-1] = self._running[-1], self._running[at]
        name, key = self._running.pop()
        ended = si.AllocationRelease(allocationKey=key, applicationID=name, terminationType=si.STOPPED_BY_RM)
        request = si.AllocationReleasesRequest(allocationsToRelease=[ended])
        await stream.write(si.AllocationRequest(rmID=RM, releases=request))
        served = 0
        async with asyncio.timeout(PATIENCE_S):
            response = await stream.read()
            while not response.new:
                response = await stream.read()
        for allocation in response.new:
            self._running.append((allocation.applicationID, allocation.allocationKey))
            self._left[allocation.applicationID] -= 1
            if not self._left[allocation.applicationID]:
                del self._left[allocation.applicationID]
                served += 1
        if served:
            await self.wait(stream, served)


async def measure_served(case: Case, ends: int) -> float:
    """Returns the milliseconds of processor time of a served core for each end."""
    async with running_core() as (address, pid), connection(address) as channel:
        cluster = ServedCluster(case, Sender(channel, RM))
        await cluster.fill()
        async with cluster.sender.allocations() as stream:
            await cluster.wait(stream, case.waiting)
            await asyncio.sleep(SETTLE_S)
            for _ in range(WARM_ENDS):
                await cluster.end_one(stream)
            with undisturbed():
                used_s, next_s = processor_s(pid), time.perf_counter()
                for _ in range(ends):
                    await cluster.end_one(stream)
                    next_s += BETWEEN_S
                    await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
                return (processor_s(pid) - used_s) / ends * 1e3


def measure_go_core(case: Case, ends: int) -> float | None:
    """Returns the same of YuniKorn's core in process; ``None``: there is no Go here, or no module of the core."""
    program = _build_go_core()
    if program is None:
        return None
    options = {
        "waiting": case.waiting,
        "leaves": case.leaves,
        "order": case.order,
        "sizes": case.sizes,
        "limit": USER_CORES if case.limited else 0,
        "ends": ends,
        "settle": f"{SETTLE_S}s",
    }
    done = subprocess.run(
        [program, *(word for name, value in options.items() for word in (f"-{name}", str(value)))],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found["end_ms"]


@functools.cache
def _build_go_core() -> Path | None:
    go = shutil.which("go")
    if go is None:
        return None
    program = Path(tempfile.mkdtemp(), "go_core")
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(
        [go, "build", "-o", program, "."],
        cwd=GO_CORE,
        env=environment,
        timeout=BUILD_S,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    return program if done.returncode == 0 else None
