"""Pages of other sites in a browser on this machine: DNS rebinding, and what they may read."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.rest.shim import PREFIX, Cluster, rest_cluster
from tests.patience import PATIENCE_S

CLUSTERS = f"{PREFIX}/clusters"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9080", "localhost.evil.example", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", [CLUSTERS, "/", "/healthz/live", "/nowhere", "/debug/fullstatedump"])
async def test_another_name_of_this_machine_is_refused(fresh: Cluster, host: str, path: str) -> None:
    answer = await fresh.http.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert "--rest-host" in answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9080", "localhost.", "core.localhost", "127.0.0.1:1", "[::1]:9080", "10.0.0.1"]
)
async def test_names_of_its_own_and_addresses_are_good(fresh: Cluster, host: str) -> None:
    assert (await fresh.http.get(CLUSTERS, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "hosts",
    [
        b"Host:\r\n",
        b"Host: \r\n",
        b"",
        b"Host: localhost\r\nHost: evil.example\r\n",
        b"Host: localhost\r\nhost: localhost\r\n",
        b"Host:\r\nHost: localhost\r\n",
    ],
    ids=["empty", "blank", "none", "two", "the same twice", "empty and another"],
)
async def test_a_request_names_one_host(fresh: Cluster, hosts: bytes) -> None:
    """Whoever stands between might go by another one of them than the core does."""
    answer = await told(fresh, b"GET /ws/v1/clusters HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_before_http_1_1_nobody_had_to_name_a_host(fresh: Cluster) -> None:
    """No browser speaks it, but simple probes do."""
    assert (await told(fresh, b"GET /healthz/live HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def told(cluster: Cluster, request: bytes) -> bytes:
    """All that is answered to *request*, exactly as it is written, until the core closes the connection."""
    host, _, port = cluster.core.server.rest_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    return answer


async def test_more_names() -> None:
    async with rest_cluster(rest_hosts=("Core.Example.org",)) as cluster:
        assert (await cluster.http.get(CLUSTERS, headers={"Host": "core.example.org:80"})).status_code == 200
        assert (await cluster.http.get(CLUSTERS, headers={"Host": "core.example.com"})).status_code == 421


PAGE = "http://localhost:9889"


@pytest.mark.parametrize("path", [CLUSTERS, f"{PREFIX}/partition/nope/nodes", f"{PREFIX}/events/batch"])
async def test_the_page_of_yunikorn_on_another_port(path: str) -> None:
    async with rest_cluster(rest_origins=(PAGE,)) as cluster:
        asked = await cluster.http.options(CLUSTERS, headers={"Origin": PAGE})
        assert asked.headers["access-control-allow-origin"] == PAGE
        assert asked.headers["access-control-allow-methods"] == "GET, OPTIONS"
        assert asked.headers["access-control-allow-headers"] == "X-Requested-With,Content-Type,Accept,Origin"
        answer = await cluster.http.get(path, headers={"Origin": PAGE})
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "Origin" in answer.headers["vary"]
        for other in ("http://evil.example", "http://localhost:9888", "null", ""):
            answer = await cluster.http.get(path, headers={"Origin": other})
            assert "access-control-allow-origin" not in answer.headers
            assert "Origin" in answer.headers["vary"]


async def test_pages_of_all_origins() -> None:
    async with rest_cluster(rest_origins=("*",)) as cluster:
        for headers in ({}, {"Origin": "http://elsewhere.example"}):
            answer = await cluster.http.get(CLUSTERS, headers=headers)
            assert answer.headers["access-control-allow-origin"] == "*"
        async with cluster.http.stream("GET", f"{PREFIX}/events/stream") as stream:
            assert stream.headers["access-control-allow-origin"] == "*"
