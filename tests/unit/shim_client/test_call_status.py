"""A stream that the core ends while the shim writes has the status of the core, whatever gRPC makes of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.shim_client import StreamRefused
from kornel.shim_client.call_status import CallStatus, StatusKeeper
from kornel.shim_client.outbox import Outbox
from kornel.shim_client.stream import DuplexStream
from kornel.si.v1 import si_pb2 as si
from tests.patience import PATIENCE_S

METHOD = "/si.v1.Scheduler/UpdateNode"


class RefusingCore:
    """A core in threads of its own, which refuses a stream when the test says so, and meanwhile reads nothing.

    Each stream hears two responses first.
    """

    def __init__(self) -> None:
        self.refuse = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        _, service, name = METHOD.split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _serve(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.send_initial_metadata(())
        yield b"first"
        yield b"second"
        self.refuse.wait(PATIENCE_S)
        context.set_trailing_metadata((("kornel-leader", "elsewhere:1"),))
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not yours")

    def stop(self) -> None:
        self.refuse.set()
        self._server.stop(0).wait()

    def end_unseen(self, block_s: float) -> None:
        """Refuses the open stream while the event loop stands still, so that the client has not seen it yet when it
        writes next."""
        self.refuse.set()
        time.sleep(block_s)


@pytest.fixture
async def core() -> AsyncIterator[RefusingCore]:
    refusing = RefusingCore()
    try:
        yield refusing
    finally:
        await asyncio.to_thread(refusing.stop)


def blocks(longest_s: float) -> Iterator[float]:
    """Yields longer and longer times for which a loop stands still: on a loaded machine a refusal takes a while."""
    block_s = 0.002
    while block_s < longest_s:
        yield block_s
        block_s *= 2


async def test_the_status_of_the_core_outlives_a_write(core: RefusingCore) -> None:
    """gRPC alone says INTERNAL, and nothing of the leader."""
    seen = set()
    async with grpc.aio.insecure_channel(core.address) as channel:
        for block_s in blocks(PATIENCE_S):
            core.refuse.clear()
            call: Any = channel.stream_stream(METHOD)()
            keeper = StatusKeeper(call)
            await call.initial_metadata()
            core.end_unseen(block_s)
            try:
                await call.write(b"")
            except grpc.aio.AioRpcError as error:
                seen.add(error.code())
            heard: list[bytes] = []
            with suppress(grpc.aio.AioRpcError):
                async for response in call:
                    heard += [response]
            assert heard == [b"first", b"second"]
            status = await asyncio.wait_for(keeper.wait_for_status(), PATIENCE_S)
            assert status[:2] == (grpc.StatusCode.PERMISSION_DENIED, "not yours")
            assert dict(status.trailing) == {"kornel-leader": "elsewhere:1"}
            if grpc.StatusCode.INTERNAL in seen:
                break
    assert grpc.StatusCode.INTERNAL in seen, "gRPC has mended what this guards against: the keeper is not needed"


async def test_an_error_of_grpc_is_the_status_if_the_core_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a status that does not come."""
    monkeypatch.setattr("kornel.shim_client.call_status.STATUS_S", 0.01)
    call = EndedByWrite()
    keeper = StatusKeeper(call)  # type: ignore[arg-type]
    call.end()
    assert await keeper.wait_for_status() == CallStatus(grpc.StatusCode.INTERNAL, "Internal error from Core", ())


async def test_the_status_may_come_after_the_write_failed() -> None:
    """Then gRPC first says INTERNAL, and the core's status a moment later."""
    call = EndedByWrite()
    keeper = StatusKeeper(call)  # type: ignore[arg-type]
    call.end()
    waiting = asyncio.create_task(keeper.wait_for_status())
    await asyncio.sleep(0)
    call.status = CallStatus(grpc.StatusCode.ABORTED, "superseded", ())
    call.end()
    assert await asyncio.wait_for(waiting, PATIENCE_S) == call.status


async def test_a_refused_stream_says_why_although_it_was_writing(core: RefusingCore) -> None:
    """The shim is told the core's reason at once; it does not open the stream again as after a fault."""
    for block_s in blocks(0.2):
        core.refuse.clear()
        outbox: Outbox[si.NodeInfo] = Outbox(capacity=10, batch=10, rank=lambda _: 0)
        opened = 0
        async with grpc.aio.insecure_channel(core.address) as channel:

            def start(channel: grpc.aio.Channel = channel) -> Any:
                nonlocal opened
                opened += 1
                return channel.stream_stream(METHOD, request_serializer=si.NodeRequest.SerializeToString)()

            def encode(batch: Sequence[si.NodeInfo], block_s: float = block_s) -> si.NodeRequest:
                core.end_unseen(block_s)
                return si.NodeRequest(nodes=batch)

            async def nothing(*_: Any) -> None:
                return

            stream: DuplexStream[si.NodeInfo, si.NodeRequest, Any] = DuplexStream(
                "node",
                start=start,
                bind=si.NodeRequest(rmID="rm-1"),
                encode=encode,
                outbox=outbox,
                deliver=nothing,
                reopened=nothing,
                connected=nothing,
            )
            await outbox.put([si.NodeInfo(nodeID="n1")])
            with pytest.raises(StreamRefused, match="not yours") as refusal:
                await asyncio.wait_for(stream.run(), PATIENCE_S)
        assert (refusal.value.code, opened) == (grpc.StatusCode.PERMISSION_DENIED, 1)


async def test_a_connection_that_is_cut_as_the_shim_ends_its_requests_is_no_bug() -> None:
    """gRPC then raises an error that is neither a status nor about the state of the call."""
    outbox: Outbox[si.NodeInfo] = Outbox(capacity=10, batch=10, rank=lambda _: 0)
    await outbox.close()

    async def nothing(*_: Any) -> None:
        return

    stream: DuplexStream[si.NodeInfo, si.NodeRequest, Any] = DuplexStream(
        "node",
        start=CutCall,  # type: ignore[arg-type]
        bind=si.NodeRequest(rmID="rm-1"),
        encode=lambda batch: si.NodeRequest(nodes=batch),
        outbox=outbox,
        deliver=nothing,
        reopened=nothing,
        connected=nothing,
    )
    await asyncio.wait_for(stream.run(), PATIENCE_S)


class EndedByWrite:
    """A call that gRPC has ended with an error of its own."""

    def __init__(self) -> None:
        self.status = CallStatus(grpc.StatusCode.INTERNAL, "Internal error from Core", ())
        self._callbacks: list[Any] = []

    def add_done_callback(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)

    async def code(self) -> grpc.StatusCode:
        return self.status.code

    async def details(self) -> str:
        return self.status.details

    async def trailing_metadata(self) -> Any:
        return self.status.trailing


class CutCall(EndedByWrite):
    """A call whose connection is cut as the requests end."""

    def __init__(self) -> None:
        super().__init__()
        self.status = CallStatus(grpc.StatusCode.UNAVAILABLE, "the connection was cut", ())
        self._cut = asyncio.Event()

    async def write(self, _: Any) -> None:
        return

    async def done_writing(self) -> None:
        self._cut.set()
        self.end()
        raise grpc.aio.InternalError("Failed")

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        await self._cut.wait()
        raise StopAsyncIteration

    def cancel(self) -> None:
        return
