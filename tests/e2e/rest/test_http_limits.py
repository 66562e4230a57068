"""What a client of HTTP may send, leave unread and keep open. The floods themselves are in ``tests/hostile``."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from kornel.core.config.text.yaml_reader import MOST_BYTES
from kornel.core.rest import http_protocol
from kornel.core.rest.connections import _Connection
from kornel.core.rest.http_protocol import PatientProtocol
from tests.e2e.rest.shim import Cluster, P, rest_cluster
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


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET + b"x: y\r\n" * 200 + b"\r\n", b"431"),
        (GET + b"x: " + b"y" * 70_000 + b"\r\n\r\n", b"431"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 6_000, b"400"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"e" * 40_000, b"400"),
        (POST + b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1), b"413"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 9, b"413"),
    ],
    ids=["headers", "a header", "trailers", "a chunk extension", "an announced body", "a body"],
)
async def test_too_much(fresh: Cluster, request_: bytes, status: bytes) -> None:
    """The refusal says which, and the connection ends."""
    answer = await told(fresh, request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer.lower()
    assert answer.count(b"HTTP/1.1") == 1


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


async def test_who_is_refused_may_read_why_although_it_still_sends(fresh: Cluster) -> None:
    async with line(fresh) as (reader, writer):
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1) + b"x" * 1_000_000)
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    assert answer.startswith(b"HTTP/1.1 413")


async def test_who_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rest_cluster() as cluster:
        await cluster.register()
        for number in range(24):
            await cluster.node(f"n{number}", attributes={"pad": "x" * 250_000}, vcore=1)
        async with AsyncExitStack() as stack:
            # Whoever asks for as much below does read, but maybe not so quickly.
            hurried = stack.enter_context(monkeypatch.context())
            hurried.setattr(http_protocol, "READER_PATIENCE_S", 0.5)
            unread = [await stack.enter_async_context(line(cluster)) for _ in range(3)]
            for reader, writer in unread:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                del reader
                writer.write(f"GET {P}/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connections = cluster.core.server._http._server._connections  # type: ignore[union-attr]
            assert connections is not None
            await until(lambda: connections.count >= 3, "the connections to be open")
            await until(lambda: connections.count == 0, "those who do not read to be gone")
        assert (await cluster.http.get(f"{P}/nodes")).status_code == 200


async def test_the_oldest_idle_connection_makes_room() -> None:
    async with rest_cluster(rest_connections=8) as cluster, AsyncExitStack() as stack:
        await cluster.register()
        busy, idle = [await stack.enter_async_context(line(cluster)) for _ in range(2)]
        busy[1].write(b"GET /ws/v1/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await busy[0].readline()).startswith(b"HTTP/1.1 200")
        newcomer = await stack.enter_async_context(line(cluster))
        assert await asyncio.wait_for(idle[0].read(), PATIENCE_S) == b"", "of one address there may be two"
        newcomer[1].write(b"GET /ws/v1/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await newcomer[0].readline()).startswith(b"HTTP/1.1 200")
        assert (await told(cluster, b"")).startswith(b"HTTP/1.1 503"), "none can be spared"


@pytest.mark.parametrize(
    "request_",
    [
        GET + b"Connection: close\r\n\r\n",
        (GET + b"\r\n") * 3 + GET + b"Connection: close\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        GET + b"x: y\r\n" * 200 + b"\r\n",
        POST + b"Content-Length: 3\r\nConnection: close\r\n\r\na: ",
        b"\x01\r\n\r\n",
    ],
    ids=["a request", "four requests", "an unknown path", "too many headers", "a body", "no HTTP"],
)
async def test_a_connection_that_has_ended_leaves_nothing(fresh: Cluster, request_: bytes) -> None:
    """All of it is freed at once. What only the collector finds may be out of its sight by then, and stay for hours."""

    def count_remains() -> int:
        return sum(type(each) in (_Connection, PatientProtocol, RequestResponseCycle) for each in gc.get_objects())

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
