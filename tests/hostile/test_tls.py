"""Floods over TLS, and what it agrees to. The core demands no certificate: anybody gets as far as they may."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.security.site import HOST, Authority
from tests.hostile.attacked import HEALTH_S, MEMORY_MIB, AttackedCore, attacked_core
from tests.hostile.test_http_floods import CHUNKED, GET, NOBODY_READS, answer, connected, pour

LARGE: Final = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AttackedCore, ssl.SSLContext]]:
    """A core over TLS, and a client's side of it."""
    folder = tmp_path_factory.mktemp("tls")
    ca = Authority(folder)
    pair = ca.issue("core", file="server")
    with attacked_core(
        folder, "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), open_=False
    ) as attacked:
        yield attacked, ssl.create_default_context(cafile=ca.file)


@contextmanager
def attack(core: AttackedCore, client: ssl.SSLContext, memory_mib: float = MEMORY_MIB) -> Iterator[None]:
    """Judge memory, and the longest of the answers about health that a thread of this process asks for."""
    Path(f"/proc/{core.pid}/clear_refs").write_text("5", encoding="ascii")
    before, longest, over = core.memory_mib(), [0.0], threading.Event()

    def ask() -> None:
        while not over.is_set():
            with over_tls(core, client) as line:  # A handshake takes its time, and this process is busy itself.
                began = time.monotonic()
                answer(line, GET + b"Connection: close\r\n\r\n")
                longest.append(time.monotonic() - began)
            over.wait(0.1)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
    status = Path(f"/proc/{core.pid}/status").read_text(encoding="ascii")
    highest = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024
    print(f"\n{highest - before:.1f} MiB, {max(longest):.3f} s")
    assert highest - before <= memory_mib
    assert max(longest) <= HEALTH_S * 2
    assert core.process.poll() is None


def over_tls(core: AttackedCore, client: ssl.SSLContext, room: int = 0) -> ssl.SSLSocket:
    return client.wrap_socket(connected(core, room=room), server_hostname=HOST)


@pytest.mark.parametrize("beginning", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n"])
def test_handshakes_that_do_not_go_on(secured: tuple[AttackedCore, ssl.SSLContext], beginning: bytes) -> None:
    core, client = secured
    with attack(core, client), ExitStack() as open_:
        for _ in range(600):
            connection = open_.enter_context(connected(core))
            with suppress(OSError):
                connection.send(beginning)


def test_many_handshakes(secured: tuple[AttackedCore, ssl.SSLContext]) -> None:
    """Of TLS 1.2, whose sessions a server may remember."""
    core, client = secured
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        with attack(core, client):
            for _ in range(300):
                over_tls(core, client).close()
    finally:
        client.maximum_version = ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (CHUNKED + b"0\r\n", b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
        (GET, b"x: y\r\n"),
        (b"", GET + b"\r\n"),
        (NOBODY_READS, b"2000\r\n" + b"x" * 0x2000 + b"\r\n"),
    ],
    ids=["trailers", "headers", "requests ahead", "a body that nobody reads"],
)
def test_what_never_ends(secured: tuple[AttackedCore, ssl.SSLContext], beginning: bytes, piece: bytes) -> None:
    core, client = secured
    with attack(core, client), ExitStack() as open_:
        for _ in range(8):
            line = open_.enter_context(over_tls(core, client, room=4096))
            assert pour(line, beginning, piece, most=24 * 2**20) < 16 * 2**20


def test_answers_that_nobody_reads(secured: tuple[AttackedCore, ssl.SSLContext]) -> None:
    """A connection over TLS costs half a MiB while it takes nothing, most of it in buffers."""
    core, client = secured
    with attack(core, client), ExitStack() as open_:
        for _ in range(64):
            line = open_.enter_context(over_tls(core, client, room=4096))
            with suppress(OSError):
                line.sendall(LARGE * 50)
        time.sleep(2)


@pytest.mark.parametrize("port", ["HTTP", "gRPC"])
@pytest.mark.parametrize("suites", ["AES128-SHA256:AES256-SHA", "ECDHE-RSA-AES128-SHA256:ECDHE-RSA-AES256-SHA", "kRSA"])
def test_suites_that_are_not_good_enough(secured: tuple[AttackedCore, ssl.SSLContext], port: str, suites: str) -> None:
    """With CBC, or without forward secrecy."""
    core, good = secured
    client = ssl.create_default_context()
    client.load_verify_locations(cadata="".join(ssl.DER_cert_to_PEM_cert(der) for der in good.get_ca_certs(True)))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(f"{suites}:@SECLEVEL=0")
    client.set_alpn_protocols(["h2"] if port == "gRPC" else ["http/1.1"])
    host, _, number = (core.address if port == "gRPC" else core.http).rpartition(":")
    with socket.create_connection((host, int(number)), timeout=5) as plain, pytest.raises((ssl.SSLError, OSError)):
        client.wrap_socket(plain, server_hostname=HOST)
