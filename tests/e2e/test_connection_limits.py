"""What callers may have open and send, with limits small enough to reach."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.core.service.calls.admission import Refusal
from kornel.core.service.connections.limits import CONFIGURATION_LIMIT, NAME_LIMIT, QUESTION_LIMIT
from tests.e2e.harness import Core, running_core
from tests.e2e.test_transport import refused
from tests.patience import PATIENCE_S
from tests.waiting import until

Code = grpc.StatusCode


async def healthy(core: Core) -> bool:
    health: Any = HealthStub(core.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def test_calls_beyond_the_limit_are_refused_but_probes_are_answered() -> None:
    async with running_core(calls=3) as core, AsyncExitStack() as open_:
        calls = [core.channel.stream_stream("/si.v1.Scheduler/UpdateNode")() for _ in range(3)]
        for call in calls:
            open_.callback(call.cancel)
        await until(lambda: core.server.admission.open == 3, "all of them to be open")
        code, details = await refused(core.channel.unary_unary("/kornel.v1.StatusService/GetStatus")(b""))
        assert (code, details) == (Code.RESOURCE_EXHAUSTED, "3 calls are open")
        assert await healthy(core)
        assert core.server.admission.refused == {Refusal.CALLS: 1}


async def test_connections_beyond_the_limit_are_refused() -> None:
    """gRPC closes them at once; those that are open go on."""
    async with running_core(connections=1) as core:
        assert await healthy(core)
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(core.address, options=options) as another:
            health: Any = HealthStub(another)
            code, _ = await refused(health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S))
            assert code is Code.UNAVAILABLE
        assert await healthy(core)


@pytest.mark.parametrize(
    ("method", "most"),
    [
        ("/grpc.health.v1.Health/Check", NAME_LIMIT),
        ("/kornel.v1.StatusService/GetStatus", QUESTION_LIMIT),
        ("/kornel.v1.ConfigurationService/ValidateConfiguration", CONFIGURATION_LIMIT),
    ],
)
async def test_requests_of_one_message_are_bounded(method: str, most: int) -> None:
    """By what they are for: a question is short, a configuration is not."""
    async with running_core() as core:
        call: Any = core.channel.unary_unary(method)
        code, details = await refused(call(bytes(most + 1), timeout=PATIENCE_S))
        assert (code, f"at most {most:,}" in details) == (Code.RESOURCE_EXHAUSTED, True)
        assert await healthy(core)


async def test_headers_within_the_limit_are_taken_every_time() -> None:
    """A token of a user with many groups has 12 KB. gRPC refuses such headers by chance unless it is told not to."""
    async with running_core() as core:
        for number in range(40):
            token = f"Bearer {number}" + "x" * 12_000
            request = health_pb2.HealthCheckRequest()
            check: Any = HealthStub(core.channel).Check  # type: ignore[attr-defined]
            await check(request, metadata=(("authorization", token),), timeout=PATIENCE_S)


async def test_a_service_that_is_not_ours_refuses_too_long_requests_as_ours_do() -> None:
    """Reflection is gRPC's own, which answers an error that it does not know with UNKNOWN and its text."""
    async with running_core() as core:
        ask: Any = core.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        call = ask(iter([bytes(QUESTION_LIMIT + 1)]), timeout=PATIENCE_S)
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "takes at most" in await call.details()


async def test_what_was_refused_is_counted() -> None:
    async with running_core() as core:
        ask: Any = core.channel.unary_unary("/kornel.v1.StatusService/GetStatus")
        await refused(ask(bytes(QUESTION_LIMIT + 1), timeout=PATIENCE_S))
        await refused(ask(b"\xff", timeout=PATIENCE_S))
        await until(lambda: core.server.admission.open == 0, "the calls to end")
        assert core.server.admission.refused == {Refusal.TOO_MUCH: 1, Refusal.INVALID: 1}
        text = b"".join(core.server.metrics.render_pieces()).decode()
        assert 'kornel_calls_refused_total{reason="too-much"} 1.0' in text


async def test_compressed_requests_are_refused() -> None:
    """A few bytes could stand for many megabytes, which nobody has counted yet."""
    async with (
        running_core() as core,
        grpc.aio.insecure_channel(core.address, compression=grpc.Compression.Gzip) as squeezing,
    ):
        code, details = await refused(
            squeezing.unary_unary("/kornel.v1.StatusService/GetStatus")(bytes(1_000), timeout=PATIENCE_S)
        )
        assert (code, "disabled" in details) == (Code.UNIMPLEMENTED, True)
        assert await healthy(core)
