"""What a client of HTTP may send, and how many may be connected."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from kornel.core.config.text.yaml_reader import MOST_BYTES
from kornel.core.rest.http.http_protocol import ConnectionProtocol
from tests.e2e.rest.shim import Cluster, rest_cluster
from tests.patience import PATIENCE_S
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")

GET = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: localhost\r\n"


@asynccontextmanager
async def line(cluster: Cluster) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = cluster.core.server.rest_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def told(cluster: Cluster, request: bytes) -> bytes:
    """All that is answered to *request*, until the core closes the connection."""
    async with line(cluster) as (reader, writer):
        writer.write(request)
        return await asyncio.wait_for(reader.read(), PATIENCE_S)


async def test_trailers_and_small_chunks_that_somebody_means(fresh: Cluster) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b"partitions: []") + b"0\r\nExpires: never\r\n\r\n"
    answer = await told(fresh, POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"allowed":false' in answer


async def test_requests_sent_ahead_are_answered_in_order(fresh: Cluster) -> None:
    ways = [b"/healthz/live", b"/ws/v1/clusters", b"/nowhere"] * 400
    requests = b"".join(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % way for way in ways)
    answer = await told(fresh, requests + GET + b"Connection: close\r\n\r\n")
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"404"] * 400 + [b"200"]


async def test_a_body_with_more_behind_it(fresh: Cluster) -> None:
    """A small body that nobody wants is passed over, in whatever pieces it comes."""
    asked = GET + b"Content-Length: 300\r\n\r\n" + b"x" * 300
    async with line(fresh) as (reader, writer):
        for start in range(0, len(asked), 37):
            writer.write(asked[start : start + 37])
            await asyncio.sleep(0)
        writer.write(asked + GET + b"Connection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    assert answer.count(b"HTTP/1.1 200") == 3


async def test_who_sends_too_much_reads_why(fresh: Cluster) -> None:
    """The rest is thrown away, and the connection goes on."""
    chunks = (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 9 + b"0\r\n\r\n"
    announced = POST + b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1) + b"x" * (MOST_BYTES + 1)
    async with line(fresh) as (reader, writer):
        writer.write(announced + POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        writer.write(GET + b"Connection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"413", b"413", b"200"]


async def test_requests_beyond_the_limit_of_connections_are_refused() -> None:
    """Who is connected is served on, and so are newcomers once there is room."""
    async with rest_cluster(rest_connections=2) as cluster, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(line(cluster)) for _ in range(2)]
        for reader, writer in streams:
            writer.write(b"GET /ws/v1/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        request = b"GET /ws/v1/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await told(cluster, request)).startswith(b"HTTP/1.1 503")
        assert (await told(cluster, GET + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200"), "a probe"
        streams[0][1].close()

        async def answers() -> bool:
            return (await told(cluster, request)).startswith(b"HTTP/1.1 200")

        await until(answers, "room for a newcomer")


@pytest.mark.parametrize("request_", [b"", GET + b"\r\n"], ids=["before its first request", "after one"])
async def test_who_asks_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, request_: bytes) -> None:
    monkeypatch.setattr("kornel.core.rest.http.server.IDLE_S", 0.2)
    async with rest_cluster() as cluster:
        answer = await told(cluster, request_)
        assert answer.count(b"HTTP/1.1 200") == bool(request_)


@pytest.mark.parametrize(
    "request_",
    [
        GET + b"Connection: close\r\n\r\n",
        (GET + b"\r\n") * 3 + GET + b"Connection: close\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        POST + b"Content-Length: 3\r\nConnection: close\r\n\r\na: ",
        b"\x01\r\n\r\n",
    ],
    ids=["a request", "four requests", "an unknown path", "a body", "no HTTP"],
)
async def test_a_connection_that_has_ended_leaves_nothing(fresh: Cluster, request_: bytes) -> None:
    """All of it is freed at once. What only the collector finds may be out of its sight by then, and stay for hours."""

    def count_remains() -> int:
        return sum(type(each) in (ConnectionProtocol, RequestResponseCycle) for each in gc.get_objects())

    gc.collect()
    before = count_remains()
    gc.disable()
    try:
        for _ in range(3):
            assert (await told(fresh, request_)).startswith(b"HTTP/1.1 ")
        async with line(fresh) as (reader, writer):
            writer.write(GET + b"\r\n")
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        await until(lambda: count_remains() == before, "the connections to be freed")
    finally:
        gc.enable()
