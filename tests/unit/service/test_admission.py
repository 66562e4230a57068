"""How many calls may be open: of everybody, and of whoever counts as one address."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from kornel.core.service.calls.admission import AdmissionInterceptor, CallLimits
from kornel.core.service.connections.connections import ConnectionKeeper, ConnectionLimits
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger


class OpenCall:
    """The server's side of a call from *peer* that stays open until the test ends it."""

    def __init__(self, interceptor: AdmissionInterceptor, peer: str) -> None:
        self.refused: Any = None
        self._peer = peer
        self.task = asyncio.ensure_future(self._serve(interceptor))

    def peer(self) -> str:
        return self._peer

    def code(self) -> Any:
        return self.refused

    async def abort(self, code: Any, details: str, trailing: Any) -> None:
        self.refused = code
        raise asyncio.CancelledError

    async def _serve(self, interceptor: AdmissionInterceptor) -> None:
        async def stay(requests: Any, context: Any) -> None:
            await asyncio.Event().wait()

        async def continuation(details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(stay)

        class Details:
            invocation_metadata = ()
            method = "/si.v1.Scheduler/UpdateNode"

        async def nothing() -> Any:
            await asyncio.Event().wait()
            yield b""

        handler = await interceptor.intercept_service(continuation, Details)
        await handler.stream_stream(nothing(), self)


async def count_refused(peers: list[str]) -> int:
    """How many of the calls from *peers* are refused, where six of one address may be open and four of a connection."""
    logger = build_logger(LogFormat.CONSOLE, LogLevel.ERROR)
    keeper = ConnectionKeeper(ConnectionLimits(), logger)
    interceptor = AdmissionInterceptor(CallLimits(calls=100, host_calls=6), keeper, logger)
    calls = []
    for peer in peers:
        calls.append(OpenCall(interceptor, peer))
        for _ in range(3):
            await asyncio.sleep(0)
    for call in calls:
        call.task.cancel()
    await asyncio.gather(*(call.task for call in calls), return_exceptions=True)
    return sum(call.refused is grpc.StatusCode.RESOURCE_EXHAUSTED for call in calls)


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        ("ipv6:%5B2001:db8::2%5D:1", 1),
        ("ipv6:%5B2001:db8:0:1::1%5D:1", 0),
    ],
)
async def test_a_block_of_ipv6_has_the_calls_of_one_address(other: str, refused: int) -> None:
    assert await count_refused(["ipv6:%5B2001:db8::1%5D:1"] * 5 + [other] * 5) == refused


async def test_an_address_of_ipv4_within_ipv6_is_that_address() -> None:
    assert await count_refused(["ipv4:10.0.0.1:1"] * 5 + ["ipv6:%5B::ffff:10.0.0.1%5D:2"] * 5) == 1
