"""What one peer may take: calls, streams, bytes, failed attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from kornel.core.security.static_tokens import digest_of, new_token
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from kornel.v1 import configuration_pb2, status_pb2
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import Conversation, node_request
from tests.e2e.security.site import Site, bearer, secured
from tests.e2e.security.test_certificates import code_of
from tests.patience import PATIENCE_S

OK: Final = grpc.StatusCode.OK
TOO_MANY: Final = grpc.StatusCode.RESOURCE_EXHAUSTED
UNKNOWN: Final = grpc.StatusCode.UNAUTHENTICATED

ANN, BOB = new_token(), new_token()

POLICY: Final = """
tokens: tokens.yaml
rules:
  - who: ["token:ann", "token:bob"]
    managers: ["*"]
    permissions: [read]
limits:
  calls-per-second: 1
  burst: 5
  failures-per-second: 0.5
  message-bytes: 100000
  streams: 3
"""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """In plain text, because only this machine reaches it."""
    (tmp_path / "tokens.yaml").write_text(
        f"tokens: [{{name: ann, sha256: {digest_of(ANN)}}}, {{name: bob, sha256: {digest_of(BOB)}}}]"
    )
    async with secured(tmp_path, policy=POLICY) as site:
        yield site


async def read_as(channel: grpc.aio.Channel, token: str) -> grpc.StatusCode:
    return await code_of(
        StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest(), metadata=bearer(token), timeout=PATIENCE_S)
    )


async def test_a_peer_has_its_burst_and_then_its_rate(site: Site) -> None:
    async with site.channel() as channel:
        assert [await read_as(channel, ANN) for _ in range(6)] == [OK] * 5 + [TOO_MANY]
        assert await read_as(channel, BOB) is OK, "others are not concerned"
        site.clock.advance(SECOND_NS)
        assert [await read_as(channel, ANN) for _ in range(2)] == [OK, TOO_MANY]


async def test_failed_attempts_of_a_host_are_limited(site: Site) -> None:
    """Good tokens from there are let in at once, whatever others do."""
    async with site.channel() as channel:
        assert [await read_as(channel, new_token()) for _ in range(8)] == [UNKNOWN] * 5 + [TOO_MANY] * 3
        assert await read_as(channel, ANN) is OK
        assert await read_as(channel, new_token()) is TOO_MANY
        site.clock.advance(2 * SECOND_NS)
        assert await read_as(channel, new_token()) is UNKNOWN
    said = site.log.read_text()
    assert said.count("caller refused") == 6
    assert said.count("only valid proofs are admitted") == 1


async def test_requests_beyond_the_limit_are_not_read(site: Site) -> None:
    async with site.channel() as channel:
        call = ConfigurationServiceStub(channel).ValidateConfiguration(
            configuration_pb2.ValidateConfigurationRequest(config="#" * 200_000), metadata=bearer(ANN)
        )
        assert await code_of(call) is TOO_MANY
        async with Conversation.open(SchedulerStub(channel).UpdateNode(metadata=bearer(ANN))) as nodes:
            await nodes.send(node_request(rm_id="x" * 200_000))
            assert (await nodes.end())[0] is TOO_MANY
        assert await read_as(channel, ANN) is OK


async def test_a_connection_has_so_many_streams_at_once(site: Site) -> None:
    """Further ones wait at the client until one ends: gRPC obeys what HTTP/2 says."""
    async with site.channel() as channel:
        streams = [SchedulerStub(channel).UpdateNode(metadata=bearer(ANN)) for _ in range(3)]
        for stream in streams:
            await stream.wait_for_connection()
        further = asyncio.ensure_future(read_as(channel, BOB))
        await asyncio.sleep(0.05)
        assert not further.done()
        streams[0].cancel()
        assert await asyncio.wait_for(further, PATIENCE_S) is OK
        for stream in streams:
            stream.cancel()
