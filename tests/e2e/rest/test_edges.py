"""What is not in the table of cases: hostile connections, the door, the page, and the command that serves it all."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from kornel.core.rest.handlers.debug import stack
from kornel.core.rest.http.access import Access
from kornel.core.rest.http.errors import RestError
from kornel.core.rest.serving.answers import json_answer, text_answer
from kornel.core.rest.serving.routing import Router
from kornel.core.rest.serving.rows import Row
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from tests.e2e.harness import create, node_request
from tests.e2e.rest.shim import PREFIX, Cluster
from tests.e2e.rest.test_protocol import connected
from tests.e2e.test_command import kornel, serving
from tests.patience import PATIENCE_S
from tests.ports import reserve_port


@pytest.mark.parametrize(
    "request_line",
    [b"nonsense", b"GET \xff\xfe HTTP/1.1", b"OPTIONS * HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"\x16\x03\x01"],
)
async def test_what_is_no_request(fresh: Cluster, request_line: bytes) -> None:
    """Ends with an answer, and disturbs nobody."""
    reader, writer = await connected(fresh)
    writer.write(request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))
    writer.close()
    assert await fresh.get(f"{PREFIX}/clusters") == []


@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding: nonsense\r\n\r\nhello",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: five\r\n\r\nhello",
    ],
)
async def test_bodies_of_which_nobody_can_say_where_they_end(fresh: Cluster, rest: bytes) -> None:
    """Refused, and the connection is closed: what follows might be taken for a request."""
    reader, writer = await connected(fresh)
    writer.write(b"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: localhost\r\n" + rest)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "path", ["/ws/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/ws/v1/%00", "/%0d%0aX-A:%20b"]
)
async def test_paths_lead_nowhere_else(fresh: Cluster, path: str) -> None:
    reader, writer = await connected(fresh)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"\r\nx-a:" not in answer.lower()


class Bouncer:
    """Lets readers in and nobody else."""

    async def admit_request(self, request: Request, access: Access) -> None:
        if access not in (Access.OPEN, Access.READ):
            raise RestError(401, "say who you are", [("WWW-Authenticate", "Bearer")])

    def end_request(self, scope: Scope) -> None:
        """Nothing was noted."""


async def _hello(_request: Request) -> ASGIApp:
    return json_answer({"hello": "world"})


async def _page(scope: Scope, receive: Receive, send: Send) -> None:
    await text_answer(f"page {scope['path']}")(scope, receive, send)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [("/read", 200, "world"), ("/admin", 401, "say who you are"), ("/", 200, "page /"), ("/x/y", 200, "page /x/y")],
)
async def test_door_and_page(path: str, status: int, text: str) -> None:
    rows = [(Row("/read"), _hello), (Row("/admin", access=Access.ADMIN), stack)]
    logger = build_logger(LogFormat.CONSOLE, LogLevel.ERROR)
    app = Router(rows, logger=logger, door=Bouncer(), otherwise=_page)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://core") as client:
        answer = await client.get(path)
        assert (await client.options("/admin")).status_code == HTTPStatus.OK
    assert answer.status_code == status
    assert text in answer.text
    if status == HTTPStatus.UNAUTHORIZED:
        assert answer.headers["www-authenticate"] == "Bearer"


def test_command_serves_http(tmp_path: Path) -> None:
    address = f"127.0.0.1:{reserve_port()}"
    with serving(tmp_path, "--rest-address", address) as (process, _):
        assert httpx.get(f"http://{address}{PREFIX}/clusters", timeout=PATIENCE_S).json() == []
        taken = kornel("serve", "--grpc", "127.0.0.1:0", "--rest-address", address)
        assert taken.returncode == 1
        assert address in taken.stderr
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    served = [json.loads(line) for line in said.splitlines() if '"serving"' in line]
    assert [line["rest"] for line in served] == [address]


@pytest.mark.parametrize("address", ["127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_command_refuses_what_is_no_address(address: str) -> None:
    refused = kornel("serve", "--grpc", "127.0.0.1:0", "--rest-address", address)
    assert refused.returncode == 1
    assert "wanted is HOST:PORT" in refused.stderr


async def test_answers_do_not_hold_up_others(cluster: Cluster) -> None:
    """While a long list is made, other requests are answered."""
    for number in range(300):
        await cluster.nodes.send(node_request(create(f"n{number}")))
    await cluster.nodes.entries(300)
    long = [asyncio.create_task(cluster.http.get(f"{PREFIX}/partition/default/nodes")) for _ in range(5)]
    short = await asyncio.wait_for(cluster.http.get("/healthz/live"), PATIENCE_S)
    assert short.status_code == HTTPStatus.OK
    assert {len((await answer).json()) for answer in long} == {300}
