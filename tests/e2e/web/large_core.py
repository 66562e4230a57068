"""A core in a process of its own with 5,000 nodes, 1,000 queues and 20,000 allocations, served over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kornel.shim_mock.load.workload import make_resource
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import core_process
from tests.ports import reserve_port

NODES: Final = 5_000
PARENTS: Final = 20
LEAVES: Final = 49
APPLICATIONS: Final = 2_000
ALLOCATIONS: Final = 20_000
_BATCH: Final = 500
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class LargeCore:
    """``url``: of its page."""

    url: str
    pid: int

    def processor_s(self) -> float:
        """Returns the processor time that the core has used since it began, in user and system mode."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@asynccontextmanager
async def large_core() -> AsyncIterator[LargeCore]:
    """Serves the cluster; all asks are placed, and nothing more happens."""
    address = f"127.0.0.1:{reserve_port()}"
    async with core_process.connected(rest=address) as (stub, _, pid):
        await core_process.register(stub, _queues())
        await core_process.report_nodes(stub, core_process.node_infos(NODES, si_pb2.NodeInfo.CREATE))
        await core_process.add_applications(stub, [_application(number) for number in range(APPLICATIONS)])
        await _place(stub)
        yield LargeCore(f"http://{address}/", pid)


def _queues() -> str:
    lines = ["partitions:", "  - name: default", "    queues:", "      - name: root", "        submitacl: '*'"]
    lines.append("        queues:")
    for parent in range(PARENTS):
        lines += [f"          - name: dept-{parent:02}", "            queues:"]
        for leaf in range(LEAVES):
            lines.append(f"              - name: team-{leaf:02}")
            lines.append("                resources: {guaranteed: {vcore: 40, memory: 160Gi}, max: {vcore: 400}}")
    return "\n".join(lines)


def _application(number: int) -> si_pb2.AddApplicationRequest:
    queue = f"root.dept-{number % PARENTS:02}.team-{number // PARENTS % LEAVES:02}"
    ugi = si_pb2.UserGroupInformation(user=f"user-{number % 50}", groups=["all"])
    return si_pb2.AddApplicationRequest(applicationID=f"app-{number:04}", queueName=queue, ugi=ugi)


async def _place(stub: si_pb2_grpc.SchedulerAsyncStub) -> None:
    stream: Any = stub.UpdateAllocation()
    size = make_resource(vcore=1_000, memory=1 << 30)

    async def send() -> None:
        for start in range(0, ALLOCATIONS, _BATCH):
            asks = [
                si_pb2.Allocation(
                    allocationKey=f"task-{number:05}",
                    applicationID=f"app-{number % APPLICATIONS:04}",
                    resourcePerAlloc=size,
                )
                for number in range(start, start + _BATCH)
            ]
            await stream.write(si_pb2.AllocationRequest(rmID=core_process.RM, allocations=asks))

    sender, placed = asyncio.create_task(send()), 0
    while placed < ALLOCATIONS:
        placed += len((await stream.read()).new)
    await sender
    await stream.done_writing()
