"""Floods over HTTP: more than a request may have, more requests than answers, and answers that nobody takes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path
from typing import Final

import pytest

from kornel.si.v1 import si_pb2 as si
from tests.hostile.attacked import AttackedCore, attacked_core

MOST_SENT: Final = 48 * 2**20
BLOCKED_S: Final = 1.0
"""Who may not send for so long is not read any more."""

CONNECT_S: Final = 10.0
"""A connection that found the queue full is tried again by the system after a second or more."""

GET: Final = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n"
POST: Final = b"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED: Final = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NOBODY_READS: Final = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


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


def pour(connection: socket.socket, beginning: bytes, piece: bytes, most: int = MOST_SENT) -> int:
    """Send *beginning*, then *piece* again and again. How many bytes the core took."""
    block = piece * (65536 // len(piece) + 1)
    sent = 0
    with suppress(OSError):
        connection.sendall(beginning)
        for part in repeat(block):
            sent += connection.send(part)
            if sent > most:
                break
    return sent


def answer(connection: socket.socket, request: bytes = b"", patience_s: float = 15.0) -> bytes:
    """All that comes until the core closes the connection, or says nothing for a while."""
    connection.settimeout(patience_s)
    found = b""
    with suppress(OSError):
        connection.sendall(request)
        while piece := connection.recv(65536):
            found += piece
    return found


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (CHUNKED + b"0\r\n", b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
        (CHUNKED + b"0\r\nx: ", b"y"),
        (CHUNKED, b"1;" + b"e" * 1000 + b"\r\nx\r\n"),
        (CHUNKED + b"1;", b"e"),
        (GET, b"x: y\r\n"),
        (GET + b"x: ", b"y"),
        (GET, b"x" * 60 + b": y\r\n"),
        (b"GET /", b"x"),
        (b"", b"\r\n"),
        (b"", b"x"),
        (NOBODY_READS, b"2000\r\n" + b"x" * 0x2000 + b"\r\n"),
        (GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"x"),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"x"),
    ],
    ids=[
        "trailers",
        "a trailer",
        "chunk extensions",
        "a chunk extension",
        "headers",
        "a header",
        "header names",
        "a path",
        "empty lines",
        "no HTTP",
        "a body that nobody reads",
        "an upgrade",
        "a tunnel",
    ],
)
def test_what_never_ends(core: AttackedCore, beginning: bytes, piece: bytes) -> None:
    """The core hangs up long before all of it was sent."""
    with core.attack(refused_bytes=1 << 20), ExitStack() as open_:
        for _ in range(8):
            connection = open_.enter_context(connected(core))
            assert pour(connection, beginning, piece) < 16 * 2**20


def test_requests_sent_ahead_of_answers_that_nobody_reads(core: AttackedCore) -> None:
    requests = GET + b"\r\n"
    with core.attack(processor_s=20), ExitStack() as open_:
        for _ in range(16):
            connection = open_.enter_context(connected(core, room=4096))
            pour(connection, b"", requests)


def test_requests_sent_ahead_of_a_body(core: AttackedCore) -> None:
    """Where one request ends in the middle of what was read, as many as fit follow."""
    requests = NOBODY_READS + b"1\r\nx\r\n0\r\n\r\n" + (GET + b"\r\n") * 2_000
    with core.attack(processor_s=20), ExitStack() as open_:
        for _ in range(32):
            connection = open_.enter_context(connected(core))
            pour(connection, b"", requests, most=1)


def test_connections_that_say_nothing_or_little(core: AttackedCore) -> None:
    """Many more than there may be, from one address: others and newcomers still get theirs."""
    with core.attack(processor_s=10), ExitStack() as open_:
        for number in range(900):
            connection = open_.enter_context(connected(core))
            with suppress(OSError):
                connection.send(GET if number % 2 else b"")


def test_connections_from_many_addresses(core: AttackedCore) -> None:
    """All there may be, some hundred descriptors, whose owners wait."""
    with core.attack(processor_s=10), ExitStack() as open_:
        for number in range(900):
            connection = open_.enter_context(connected(core, f"127.0.1.{number % 200 + 1}"))
            with suppress(OSError):
                connection.send(GET)


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


def test_an_answer_is_not_mixed_with_a_refusal(core: AttackedCore) -> None:
    """Garbage behind a good request: the answer comes whole, and after it at most a refusal."""
    with core.attack(), connected(core) as connection:
        found = answer(connection, GET.replace(b"/healthz/live", b"/openapi.json") + b"\r\n" + b"\x01garbage\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(next(line for line in head.split(b"\r\n") if line.startswith(b"content-length")).split(b":")[1])
    assert head.startswith(b"HTTP/1.1 200")
    assert len(body) == length
    assert body.rstrip().endswith(b"}")


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
    """Thirty at once, of eight megabytes each, for longer than anybody may wait to read."""
    with large.attack(processor_s=30), ExitStack() as open_:
        unread = []
        for _ in range(30):
            connection = open_.enter_context(connected(large, room=4096))
            connection.sendall(LIST + b"\r\n")
            unread.append(connection)
        deadline = time.monotonic() + 50
        # The probe's own connections are among them.
        while established(large) > 8 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert established(large) <= 8, "they are hung up on"


def established(core: AttackedCore) -> int:
    """Connections to the core's HTTP that are open on its side."""
    port = f"{int(core.http.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return sum(row[1].endswith(f":{port}") and row[3] == "01" for row in rows)


def test_a_reader_who_keeps_up_gets_all_of_it_beside_them(large: AttackedCore) -> None:
    with large.attack(processor_s=30), ExitStack() as open_:
        for _ in range(10):
            open_.enter_context(connected(large, room=4096)).sendall(LIST + b"\r\n")
        with connected(large) as connection:
            found = answer(connection, LIST + b"Connection: close\r\n\r\n", patience_s=30)
    assert found.startswith(b"HTTP/1.1 200")
    assert len(found) > 6_000 * 1_000
