"""Requests over HTTP of which nobody can say where they end, and answers that nobody takes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final

import pytest

from kornel.si.v1 import si_pb2 as si
from tests.hostile.attacked import AttackedCore, attacked_core

BLOCKED_S: Final = 1.0
"""Who may not send for so long is not read any more."""

CONNECT_S: Final = 10.0
"""A connection that found the queue full is tried again by the system after a second or more."""

GET: Final = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n"
POST: Final = b"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: localhost\r\n"


def connected(core: AttackedCore, source: str = "127.0.0.1", *, room: int = 0) -> socket.socket:
    """A connection. *room*: the bytes that the system may keep of answers that are not read, about."""
    host, _, port = core.http.rpartition(":")
    connection = socket.socket()
    if room:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    connection.settimeout(CONNECT_S)
    connection.bind((source, 0))
    connection.connect((host, int(port)))
    connection.settimeout(BLOCKED_S)
    return connection


def answer(connection: socket.socket, request: bytes = b"", patience_s: float = 15.0) -> bytes:
    """All that comes until the core closes the connection, or says nothing for a while."""
    connection.settimeout(patience_s)
    found = b""
    with suppress(OSError):
        connection.sendall(request)
        while piece := connection.recv(65536):
            found += piece
    return found


SMUGGLED: Final = b"GET /debug/stack HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        POST + b"Content-Length: +0\r\n\r\n",
        POST + b"Content-Length: 0, 0\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
        POST + b"X: y\r\n Transfer-Encoding: chunked\r\n\x00\r\n\r\n",
        GET + b"X: \x00\r\n\r\n",
        GET.replace(b"\r\n", b"\n") + b"\n",
    ],
)
def test_one_request_is_not_two(core: AttackedCore, request_: bytes) -> None:
    """Whatever one side might take for the end of a request: the rest is answered by nobody."""
    with core.attack(), connected(core) as connection:
        found = answer(connection, request_ + SMUGGLED)
    assert found.count(b"HTTP/1.1 ") <= 1
    assert not found.startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core with lists of many megabytes."""
    with attacked_core(tmp_path_factory.mktemp("large")) as attacked:
        fill(attacked, nodes=6_000)
        yield attacked


def fill(core: AttackedCore, nodes: int) -> None:
    """*nodes* with a KiB of attributes each."""
    assert core.bystander is not None
    created = [
        si.NodeInfo(
            nodeID=f"large-{number}",
            action=si.NodeInfo.CREATE,
            attributes={"pad": "x" * 1_000, "ready": "true"},
            schedulableResource=si.Resource(resources={"vcore": si.Quantity(value=1)}),
        )
        for number in range(nodes)
    ]
    for start in range(0, nodes, 500):
        answered = len(
            core.bystander.nodes.ask(si.NodeRequest(rmID="rm-1", nodes=created[start : start + 500])).accepted
        )
        while answered < 500:
            answered += len(core.bystander.nodes.hear().accepted)


LIST: Final = b"GET /ws/v1/partition/default/nodes HTTP/1.1\r\nHost: localhost\r\n"


def test_long_answers_that_nobody_reads(large: AttackedCore) -> None:
    """Thirty at once, of eight megabytes each."""
    with large.attack(processor_s=30, health_s=0.6), ExitStack() as open_:
        for _ in range(30):
            open_.enter_context(connected(large, room=4096)).sendall(LIST + b"\r\n")
        with connected(large) as connection:
            assert answer(connection, GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_reader_who_keeps_up_gets_all_of_it_beside_them(large: AttackedCore) -> None:
    with large.attack(processor_s=30), ExitStack() as open_:
        for _ in range(10):
            open_.enter_context(connected(large, room=4096)).sendall(LIST + b"\r\n")
        with connected(large) as connection:
            found = answer(connection, LIST + b"Connection: close\r\n\r\n", patience_s=30)
    assert found.startswith(b"HTTP/1.1 200")
    assert len(found) > 6_000 * 1_000
