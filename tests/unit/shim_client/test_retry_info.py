"""How long a core asks to wait before another try, and that the client does."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from kornel.shim_client import CallFailed, NodeAccepted, ShimClient, StreamKind, StreamRefused, StreamReopened
from kornel.shim_client.retry_info import DETAILS_KEY, read_retry_delay
from kornel.si.v1 import si_pb2 as si
from tests.unit.shim_client.fake_core import End, FakeCore, serving

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def told(*details: object) -> tuple[tuple[str, bytes], ...]:
    """Returns trailing metadata with these details, made with Google's own classes."""
    status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="busy")
    for detail in details:
        status.details.add().Pack(detail)
    return ((DETAILS_KEY, status.SerializeToString()),)


def wait(seconds: float) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromMilliseconds(round(1000 * seconds))
    return error_details_pb2.RetryInfo(retry_delay=delay)


@pytest.mark.parametrize(
    ("trailing", "delay_s"),
    [
        (told(wait(1.5)), 1.5),
        (told(error_details_pb2.DebugInfo(detail="x"), wait(0)), 0.0),
        (told(error_details_pb2.DebugInfo(detail="x")), None),
        (told(), None),
        ((), None),
        (None, None),
        (((DETAILS_KEY, b"\xff\xff"),), None),
        ((("grpc-status-details", b"x"), ("other", "text")), None),
    ],
    ids=range(8),
)
def test_the_delay_is_read_from_the_details(trailing: object, delay_s: float | None) -> None:
    assert read_retry_delay(EXHAUSTED, trailing) == delay_s
    assert read_retry_delay(grpc.StatusCode.INTERNAL, trailing) is None


async def test_a_stream_that_is_refused_for_now_is_opened_after_the_delay_that_the_core_names() -> None:
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm") as client:
        await client.register()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await core.say("node", End(EXHAUSTED, "busy", told(wait(0.3))))
        async for update in client.updates():
            if update == StreamReopened(StreamKind.NODE):
                break
        assert loop.time() - began >= 0.3
        assert await client.create_nodes([si.NodeInfo(nodeID="n", action=si.NodeInfo.CREATE)]) == [NodeAccepted("n")]


async def test_a_stream_that_is_refused_without_a_delay_is_the_end() -> None:
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm") as client:
        await client.register()
        await core.say("node", End(EXHAUSTED, "a message of 65 MiB"))
        with pytest.raises(StreamRefused, match="65 MiB"):
            async for _ in client.updates():
                pass


async def test_a_call_is_made_again_until_the_core_has_time_for_it() -> None:
    core = FakeCore()
    core.refusals = [End(EXHAUSTED, "busy", told(wait(0.05)))] * 2
    async with serving(core) as address, ShimClient(address, "rm") as client:
        await client.register()
        assert len(core.registrations) == 3
        core.refusals = [End(EXHAUSTED, "a request of 65 MiB")]
        with pytest.raises(CallFailed, match="65 MiB"):
            await client.register()
        assert len(core.registrations) == 4
