"""The ceiling of every figure over gRPC: a server that answers at once and decides nothing.

The same messages of the same generated code over the same transport with the same options. What an ask says is read
field by field, and comes back as its allocation; a release comes back as released. A core that decides does so on top
of this, unless it reads and answers more cheaply.

``python -m tests.bench.echo READY_FILE`` serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from kornel.core.process.grpc_transport import OPTIONS
from kornel.shared.event_loop import loop_factory
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.bench import processes

NODE = "node-000000"


class Echo(si_pb2_grpc.SchedulerServicer):
    """Says yes to everything."""

    async def RegisterResourceManager(
        self, request: si.RegisterResourceManagerRequest, context: Any
    ) -> si.RegisterResourceManagerResponse:
        return si.RegisterResourceManagerResponse()

    async def UpdateNode(self, requests: Any, context: Any) -> AsyncIterator[si.NodeResponse]:
        async for request in requests:
            yield si.NodeResponse(accepted=[si.AcceptedNode(nodeID=node.nodeID) for node in request.nodes])

    async def UpdateApplication(self, requests: Any, context: Any) -> AsyncIterator[si.ApplicationResponse]:
        async for request in requests:
            accepted = [si.AcceptedApplication(applicationID=new.applicationID) for new in request.new]
            yield si.ApplicationResponse(accepted=accepted)

    async def UpdateAllocation(self, requests: Any, context: Any) -> AsyncIterator[si.AllocationResponse]:
        async for request in requests:
            new = [
                si.Allocation(allocationKey=key, applicationID=application, nodeID=NODE, resourcePerAlloc=amounts)
                for key, application, _, _, amounts in [_read(ask) for ask in request.allocations]
            ]
            yield si.AllocationResponse(new=new, released=request.releases.allocationsToRelease)


def _read(ask: si.Allocation) -> tuple[str, str, int, dict[str, int], si.Resource]:
    """What nobody can decide without: key, application, priority and amounts."""
    size = ask.resourcePerAlloc
    amounts = {name: quantity.value for name, quantity in size.resources.items()}
    return ask.allocationKey, ask.applicationID, ask.priority, amounts, size


async def serve(ready: Path) -> None:
    server = grpc.aio.server(options=OPTIONS)
    si_pb2_grpc.add_SchedulerServicer_to_server(Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    processes.write_whole(ready, f"127.0.0.1:{port}")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop(None)


@asynccontextmanager
async def running_echo() -> AsyncIterator[str]:
    """A server that echoes, in a process of its own: its address."""
    async with processes.serving("tests.bench.echo", "{scratch}/ready") as (address, _):
        yield address


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(Path(sys.argv[1])))
