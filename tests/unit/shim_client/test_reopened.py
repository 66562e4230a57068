"""A stream counts as open again once the core has greeted it, and not while cores refuse it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.shim_client.outbox import Outbox
from kornel.shim_client.progress import RESUME_KEY, Progress
from kornel.shim_client.stream import DuplexStream
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.patience import PATIENCE_S
from tests.unit.shim_client.fake_core import FakeCore


class GreetingCore(FakeCore):
    """A core that greets and ends the first stream, refuses the next ones, and then keeps one open."""

    def __init__(self, refusals: int, happened: list[str], *, greets: bool) -> None:
        super().__init__()
        self._refusals = refusals
        self._happened = happened
        self._greets = greets
        self._opened = 0

    async def UpdateNode(self, request_iterator: Any, context: Any) -> None:
        self._opened += 1
        await anext(aiter(request_iterator))
        if 1 < self._opened <= 1 + self._refusals:
            self._happened.append("refused")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this core stands by")
        self._happened.append("greeted")
        if self._greets:
            await context.send_initial_metadata(((RESUME_KEY, "epoch/0"),))
        await context.write(si.NodeResponse(accepted=[si.AcceptedNode(nodeID=f"n{self._opened}")]))
        if self._opened == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this core ends")
        async for _ in request_iterator:
            pass


async def run_stream(core: GreetingCore, happened: list[str], *, greets: bool) -> None:
    """Runs a stream until the core has ended it."""
    server = grpc.aio.server()
    si_pb2_grpc.add_SchedulerServicer_to_server(core, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    outbox: Outbox[si.NodeInfo] = Outbox(capacity=10, batch=10, rank=lambda _: 0)
    progress = Progress("node", outbox, lambda: None)
    progress.begin_counting("epoch" if greets else "")

    async def deliver(response: si.NodeResponse) -> None:
        happened.append(response.accepted[0].nodeID)
        if response.accepted[0].nodeID != "n1":
            await outbox.close()

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        stream: DuplexStream[si.NodeInfo, si.NodeRequest, si.NodeResponse] = DuplexStream(
            "node",
            start=stub.UpdateNode,
            bind=si.NodeRequest(rmID="rm-1"),
            encode=lambda batch: si.NodeRequest(nodes=batch),
            outbox=outbox,
            deliver=deliver,
            reopened=noting(happened, "reopened"),
            connected=noting([], ""),
            progress=progress,
        )
        await asyncio.wait_for(stream.run(), PATIENCE_S)
    await server.stop(0)


def noting(happened: list[str], what: str) -> Callable[[], Any]:
    async def note() -> None:
        happened.append(what)

    return note


@pytest.mark.parametrize("refusals", [0, 3])
async def test_a_refused_stream_is_not_open_again(refusals: int) -> None:
    """The shim hears of it once, after the greeting and before what the core sends next."""
    happened: list[str] = []
    await run_stream(GreetingCore(refusals, happened, greets=True), happened, greets=True)
    assert happened == ["greeted", "n1", *["refused"] * refusals, "greeted", "reopened", "n5" if refusals else "n2"]


async def test_without_greetings_it_is_open_again_before_the_first_response() -> None:
    """A core that does not let streams continue exactly greets none."""
    happened: list[str] = []
    await run_stream(GreetingCore(0, happened, greets=False), happened, greets=False)
    assert [each for each in happened if each != "greeted"] == ["n1", "reopened", "n2"]
