"""How HTTP is spoken: methods, paths, headers, compression (rest.md 11, cases 1 to 9)."""

from __future__ import annotations

import asyncio
import gzip
from http import HTTPStatus

import pytest

from tests.e2e.rest.shim import PREFIX, Cluster, P

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")


async def test_case_01_fresh_core_has_no_clusters(fresh: Cluster) -> None:
    assert await fresh.get(f"{PREFIX}/clusters") == []


async def test_case_02_cluster_tells_build_information(fresh: Cluster) -> None:
    await fresh.register(build_info={"v": "1"})
    (found,) = await fresh.get(f"{PREFIX}/clusters")
    assert found["partition"] == "default"
    assert found["clusterName"] == "kubernetes"
    assert found["rmBuildInformation"] == [{"v": "1", "rmId": "rm-1"}]
    assert found["startTime"] > 0


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "PATCH", "PROPFIND", "M-SEARCH"])
async def test_case_03_wrong_method(fresh: Cluster, method: str) -> None:
    answer = await fresh.http.request(method, f"{PREFIX}/clusters")
    assert answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    assert answer.headers["allow"] == "GET, OPTIONS"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == ("" if method == "HEAD" else "Method Not Allowed")


async def test_case_03_method_that_nobody_knows(fresh: Cluster) -> None:
    """To the parser that is no HTTP."""
    answer = await fresh.http.request("BREW", f"{PREFIX}/clusters")
    assert (answer.status_code, answer.text) == (HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
    assert answer.headers["connection"] == "close"


async def test_case_03_get_is_no_way_to_validate(fresh: Cluster) -> None:
    answer = await fresh.http.get(f"{PREFIX}/validate-conf")
    assert answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    assert answer.headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize(("path", "allowed"), [("validate-conf", "OPTIONS, POST"), ("clusters", "GET, OPTIONS")])
async def test_case_04_options(fresh: Cluster, path: str, allowed: str) -> None:
    answer = await fresh.http.options(f"{PREFIX}/{path}")
    assert (answer.status_code, answer.content) == (HTTPStatus.OK, b"")
    assert answer.headers["allow"] == allowed
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/clusters/", "/CLUSTERS", "//clusters", "/x/../clusters", "/./clusters"])
async def test_case_05_other_spellings_are_redirected(fresh: Cluster, path: str) -> None:
    answer = await raw_get(fresh, f"{PREFIX}{path}?a=1")
    assert answer.splitlines()[0] == b"HTTP/1.1 301 Moved Permanently"
    assert b"location: /ws/v1/clusters?a=1\r\n" in answer
    assert (await fresh.http.get(f"{PREFIX}/clusters?a=1")).status_code == HTTPStatus.OK


async def test_case_05_path_that_looks_like_a_host(fresh: Cluster) -> None:
    answer = await raw_get(fresh, "//ws/v1/clusters")
    assert b"location: /ws/v1/clusters\r\n" in answer


async def test_case_05_other_methods_keep_their_method(fresh: Cluster) -> None:
    answer = await fresh.http.post(f"{PREFIX}/Validate-Conf", content=b"")
    assert (answer.status_code, answer.headers["location"]) == (307, f"{PREFIX}/validate-conf")


@pytest.mark.parametrize(
    "path",
    [f"{PREFIX}/nope", "/nope", "/static", PREFIX, f"{P}/nope", f"{P}/queue/root/nope", f"{PREFIX}/clusters%0A"],
)
async def test_case_06_unknown_path(fresh: Cluster, path: str) -> None:
    answer = await fresh.http.get(path)
    assert (answer.status_code, answer.text) == (404, "404 page not found")
    assert answer.headers["content-type"].startswith("text/plain")


async def test_case_07_compressed_from_1400_bytes_on(cluster: Cluster) -> None:
    seen = set()
    await cluster.node("n", attributes={"pad": ""}, vcore=1)
    bare = len((await cluster.http.get(f"{P}/node/n")).content)
    for node_id, size in (("x", 1399), ("y", 1400)):
        await cluster.node(node_id, attributes={"pad": "x" * (size - bare)}, vcore=1)
        answer = await cluster.http.get(f"{P}/node/{node_id}", headers={"Accept-Encoding": "gzip"})
        assert len(answer.content) == size
        assert answer.json()["nodeID"] == node_id
        seen.add((size, answer.headers.get("content-encoding"), answer.headers.get("vary")))
    assert seen == {(1399, None, None), (1400, "gzip", "Accept-Encoding")}


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip;q=0", None),
        ("identity", None),
        ("", None),
        ("GZIP", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip;q=0.0", "gzip"),
        ("deflate, gzip", "gzip"),
    ],
)
async def test_case_08_what_accept_encoding_means(fresh: Cluster, accepted: str, encoding: str | None) -> None:
    answer = await fresh.http.get("/openapi.json", headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == encoding
    assert answer.json()["openapi"].startswith("3.1")


async def test_case_08_stream_is_never_compressed(cluster: Cluster) -> None:
    path = f"{PREFIX}/events/stream?count=1000"
    async with cluster.http.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert "content-encoding" not in answer.headers
        async for line in answer.aiter_lines():
            assert "InstanceUUID" in line
            break


async def test_case_09_metrics_are_compressed_once(fresh: Cluster) -> None:
    reader, writer = await connected(fresh)
    writer.write(
        b"GET /ws/v1/metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    )
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"content-encoding: gzip" in head
    assert b"access-control" not in head
    assert gzip.decompress(body).startswith(b"#")


async def connected(cluster: Cluster) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which nobody tidies up what is sent."""
    host, _, port = cluster.core.server.rest_address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def raw_get(cluster: Cluster, target: str) -> bytes:
    """The whole answer to a request for *target*, exactly as it is written."""
    reader, writer = await connected(cluster)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer
