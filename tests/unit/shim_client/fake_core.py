"""A core that does what a test tells it, on a real loopback server: the client's other side without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.patience import PATIENCE_S


@dataclass(frozen=True)
class End:
    """How a stream is to be ended."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    reason: str = ""
    trailing: tuple[tuple[str, bytes], ...] = ()


class FakeCore(si_pb2_grpc.SchedulerServicer):
    """Keeps every request and accepts every node and application; *decide* answers allocation requests."""

    def __init__(self) -> None:
        self.registrations: list[si.RegisterResourceManagerRequest] = []
        self.refusal: End | None = None
        self.refusals: list[End] = []
        """The ends of the next registrations, before the ones that follow."""
        self.requests: dict[str, list[Any]] = {"node": [], "application": [], "allocation": []}
        self.opened: dict[str, int] = {"node": 0, "application": 0, "allocation": 0}
        self.decide: Callable[[si.AllocationRequest], si.AllocationResponse | None] = lambda request: None
        self.answer_applications = True
        self._outgoing: dict[str, asyncio.Queue[Any]] = {}
        self._changed = asyncio.Condition()

    @property
    def asks(self) -> list[si.Allocation | si.AllocationAsk]:
        """All asks heard, of both generations."""
        return [ask for request in self.requests["allocation"] for ask in (*request.allocations, *request.asks)]

    @property
    def releases(self) -> list[si.AllocationRelease]:
        """All releases of allocations heard."""
        return [r for request in self.requests["allocation"] for r in request.releases.allocationsToRelease]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* holds after some request."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(condition)

    async def say(self, kind: str, message: Any) -> None:
        """Send *message* on the newest stream of *kind*; an End ends it."""
        await self.until(lambda: kind in self._outgoing)
        self._outgoing[kind].put_nowait(message)

    async def RegisterResourceManager(self, request: Any, context: Any) -> si.RegisterResourceManagerResponse:
        self.registrations.append(request)
        if self.refusals:
            refusal = self.refusals.pop(0)
            await context.abort(refusal.code, refusal.reason, refusal.trailing)
        if self.refusal is not None:
            await context.abort(self.refusal.code, self.refusal.reason)
        return si.RegisterResourceManagerResponse()

    async def UpdateNode(self, request_iterator: Any, context: Any) -> None:
        await self._stream("node", request_iterator, context, self._answer_nodes)

    async def UpdateApplication(self, request_iterator: Any, context: Any) -> None:
        await self._stream("application", request_iterator, context, self._answer_applications)

    async def UpdateAllocation(self, request_iterator: Any, context: Any) -> None:
        await self._stream("allocation", request_iterator, context, self._decide)

    async def _stream(self, kind: str, requests: Any, context: Any, answer: Callable[[Any], Any]) -> None:
        outgoing: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            async for request in requests:
                async with self._changed:
                    if outgoing is not self._outgoing.get(kind):
                        self._outgoing[kind] = outgoing
                        self.opened[kind] += 1
                    self.requests[kind].append(request)
                    if (response := answer(request)) is not None:
                        outgoing.put_nowait(response)
                    self._changed.notify_all()
            outgoing.put_nowait(End())

        reader = asyncio.create_task(read())
        try:
            while not isinstance(message := await outgoing.get(), End):
                await context.write(message)
            if message.code is not grpc.StatusCode.OK:
                await context.abort(message.code, message.reason, message.trailing)
        finally:
            reader.cancel()

    def _decide(self, request: si.AllocationRequest) -> si.AllocationResponse | None:
        return self.decide(request)

    @staticmethod
    def _answer_nodes(request: si.NodeRequest) -> si.NodeResponse | None:
        created = [node.nodeID for node in request.nodes if node.action == si.NodeInfo.CREATE]
        return si.NodeResponse(accepted=[si.AcceptedNode(nodeID=node) for node in created]) if created else None

    def _answer_applications(self, request: si.ApplicationRequest) -> si.ApplicationResponse | None:
        if not request.new or not self.answer_applications:
            return None
        added = [si.AcceptedApplication(applicationID=entry.applicationID) for entry in request.new]
        return si.ApplicationResponse(accepted=added)


@asynccontextmanager
async def serving(core: FakeCore) -> AsyncIterator[str]:
    """The address *core* listens on."""
    server = grpc.aio.server()
    si_pb2_grpc.add_SchedulerServicer_to_server(core, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
