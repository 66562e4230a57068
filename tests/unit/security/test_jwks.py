"""Signing keys over HTTP: cached, asked for again within bounds, and never from somewhere else."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.typing import FilteringBoundLogger

from kornel.core.security import jwks
from kornel.core.security.errors import SecurityError
from kornel.core.security.jwks import KEY_TYPES, MOST_BYTES, KeySet, parse_keys, read_source
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from tests.e2e.security.site import Authority
from tests.patience import PATIENCE_S


class Issuer:
    """What it answers, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.status = 200
        self.body = b""
        self.location = ""

    def publish(self, *key_ids: str) -> None:
        self.body = json.dumps({"keys": [public_key(key_id) for key_id in key_ids]}).encode()


def public_key(key_id: str) -> dict[str, str]:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return {**jwt.algorithms.ECAlgorithm.to_jwk(key, as_dict=True), "kid": key_id}


@pytest.fixture
def issuer() -> Iterator[tuple[Issuer, str]]:
    said = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.asked += 1
            self.send_response(said.status)
            if said.location:
                self.send_header("location", said.location)
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield said, f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def quiet() -> FilteringBoundLogger:
    return build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO())


def keys_of(address: str, clock: ManualClock) -> KeySet:
    return KeySet(address, clock=clock, logger=quiet())


async def test_keys_are_kept_and_read_again_when_they_are_old(issuer: tuple[Issuer, str]) -> None:
    said, address = issuer
    clock = ManualClock()
    keys = keys_of(address, clock)
    said.publish("a")
    for _ in range(10):
        assert await keys.find_key("a", "ES256") is not None
    assert said.asked == 1
    clock.advance(300 * SECOND_NS)
    assert await keys.find_key("a", "ES256") is not None
    await settled(keys)
    assert said.asked == 2


async def test_made_up_key_ids_cost_the_issuer_little(issuer: tuple[Issuer, str]) -> None:
    said, address = issuer
    clock = ManualClock()
    keys = keys_of(address, clock)
    said.publish("a")
    for number in range(50):
        assert await keys.find_key(f"made-up-{number}", "ES256") is None
    assert said.asked == 1
    said.publish("a", "b")
    clock.advance(10 * SECOND_NS)
    assert await keys.find_key("b", "ES256") is not None
    assert said.asked == 2


async def settled(keys: KeySet) -> None:
    """Wait until nothing is being read any more."""
    if keys._reading is not None:
        await keys._reading


@pytest.mark.parametrize("broken", ["status", "redirect", "no JSON", "too long"])
async def test_an_issuer_that_answers_nonsense_leaves_the_former_keys(issuer: tuple[Issuer, str], broken: str) -> None:
    said, address = issuer
    clock = ManualClock()
    keys = keys_of(address, clock)
    said.publish("a")
    assert await keys.find_key("a", "ES256") is not None
    if broken == "status":
        said.status = 500
    elif broken == "redirect":
        said.status, said.location = 302, "http://127.0.0.1:1/keys"
    else:
        said.body = b"{" if broken == "no JSON" else b" " * (MOST_BYTES + 1)
    clock.advance(300 * SECOND_NS)
    assert await keys.find_key("a", "ES256") is not None
    await settled(keys)
    assert said.asked == 2
    clock.advance(24 * 3600 * SECOND_NS)
    assert await keys.find_key("a", "ES256") is None, "for a day at most"


async def test_a_key_serves_its_own_algorithm_only(issuer: tuple[Issuer, str]) -> None:
    said, address = issuer
    keys = keys_of(address, ManualClock())
    said.body = json.dumps({"keys": [{**public_key("a"), "use": "enc"}, public_key("b")]}).encode()
    assert await keys.find_key("a", "ES256") is None, "for encryption"
    assert await keys.find_key("b", "RS256") is None
    assert await keys.find_key("b", "ES384") is None, "another curve"
    assert await keys.find_key(None, "ES256") is not None, "the only one that fits"


def test_shared_secrets_and_private_keys_are_no_keys() -> None:
    private = jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True)
    assert parse_keys(json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}, private, 7, {}]}).encode()) == []


@pytest.mark.parametrize(
    "document", ['{"keys": [' + ",".join(["{}"] * 1_001) + "]}", "", "[]", "{}", '{"keys": {}}', "[" * 100_000]
)
def test_a_document_that_is_no_jwks_is_refused(document: str) -> None:
    with pytest.raises(SecurityError, match=r"not a JWKS|more than 1000 keys"):
        parse_keys(document.encode())


ODD_KEYS: list[Any] = [
    {"kty": ["EC"]},
    {"kty": {}},
    {"kty": None},
    {"kty": "EC"},
    {"kty": "EC", "crv": [], "kid": {}},
    {"kty": "EC", "crv": "P-256", "x": 7, "y": None},
    {"kty": "EC", "crv": "P-256", "x": "\ud800", "y": "!"},
    {"kty": "RSA", "n": 1e300, "e": "AQAB"},
    {"kty": "RSA", "n": "A" * 100_000, "e": "AQAB"},
    {"kty": "RSA", "n": "AQ", "e": ""},
    {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
    {"kty": "EC", "alg": [], "use": {}},
    [],
    None,
]


@pytest.mark.parametrize("odd", ODD_KEYS)
async def test_malformed_key_spoils_no_other(odd: Any) -> None:
    document = json.dumps({"keys": [odd, public_key("a")]}).encode()
    keys = KeySet("keys", clock=ManualClock(), logger=quiet(), fetch=lambda _: document)
    assert await keys.find_key("a", "ES256") is not None
    for algorithm in KEY_TYPES:
        assert await keys.find_key("b", algorithm) is None
        await keys.find_key(None, algorithm)


class Dripping:
    """A server whose answers never end. ``piece``: what it sends for ever; ``status``: what comes before."""

    def __init__(self, status: bytes, piece: bytes, pause_s: float, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.asked = 0
        self.dripping = True
        self.say(status, piece, pause_s)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}/keys"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def say(self, status: bytes, piece: bytes, pause_s: float) -> None:
        """Answer so from now on."""
        self._said = (status, piece, pause_s)

    def close(self) -> None:
        self.dripping = False
        self._socket.close()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", int(self.address.split(":")[2].split("/")[0])), 0.1).close()
        self._thread.join(5)

    def _serve(self) -> None:
        while self.dripping:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.asked += 1
            threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self._context is None:
            return connection
        try:
            return self._context.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()
            raise

    def _drip(self, connection: socket.socket) -> None:
        status, piece, pause_s = self._said
        with suppress(OSError), self._secured(connection) as opened:
            opened.recv(65_536)
            opened.sendall(status)
            while self.dripping:
                opened.sendall(piece)
                time.sleep(pause_s)


DRIPS = {
    "status line": (b"HTTP/1.1 200 O", b"K", 0.02),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"a", 0.02),
    "many headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", 0.05),
    "informational": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
    "body": (b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b" ", 0.02),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.02),
    "nothing": (b"", b"", 0.02),
    "endless": (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536, 0.0),
    "endless line": (b"HTTP/1.1 200 OK\r\na: ", b"b" * 65_536, 0.0),
    "no HTTP": (b"\x16\x03\x01\x00", b"\x00", 0.02),
}


@pytest.mark.parametrize("kind", DRIPS)
async def test_answer_that_never_ends_is_given_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little comes at a time, and however much."""
    server = Dripping(*DRIPS[kind])
    try:
        if kind.startswith("endless"):
            with pytest.raises((ValueError, HTTPException)):
                read_source(server.address)
            return
        monkeypatch.setattr(jwks, "FETCH_TIMEOUT_S", 0.3)
        monkeypatch.setattr(jwks, "UNKNOWN_WAIT_S", PATIENCE_S)
        keys = KeySet(server.address, clock=ManualClock(), logger=quiet())
        assert await keys.find_key("a", "ES256") is None
        assert keys._reading is None
        assert server.asked == 1
    finally:
        server.close()


def find_at_once(keys: KeySet, key_id: str) -> object:
    """Returns the key that is found without any wait."""
    with pytest.raises(StopIteration) as found:
        keys.find_key(key_id, "ES256").send(None)
    return found.value.value


async def test_known_key_waits_for_no_issuer_and_unknown_one_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it drips: one reading at a time, and whoever waits for it has a bound."""
    monkeypatch.setattr(jwks, "UNKNOWN_WAIT_S", 0.2)
    document = json.dumps({"keys": [public_key("a")]}).encode()
    hangs, answers = threading.Event(), threading.Event()
    fetched = 0

    def fetch(_: str) -> bytes:
        nonlocal fetched
        fetched += 1
        if hangs.is_set():
            answers.wait(PATIENCE_S)
        return document

    clock = ManualClock()
    keys = KeySet("keys", clock=clock, logger=quiet(), fetch=fetch)
    known = await keys.find_key("a", "ES256")
    assert known is not None
    hangs.set()
    clock.advance(301 * SECOND_NS)
    for _ in range(100):
        assert find_at_once(keys, "a") is known
        assert keys.holds_key(known)
    asked = [asyncio.create_task(keys.find_key(f"made-up-{n}", "ES256")) for n in range(500)]
    await asyncio.sleep(0)
    assert sum(task.done() for task in asked) == len(asked) - jwks.MOST_WAITING
    assert not any(await asyncio.gather(*asked))
    clock.advance(60 * SECOND_NS)
    assert await keys.find_key("a", "ES256") is known
    assert fetched == 2, "one at a time"
    answers.set()
    await settled(keys)
    assert await keys.find_key("a", "ES256") is known, "the same key is the same object"


async def test_key_that_is_gone_holds_no_more() -> None:
    documents = [json.dumps({"keys": [public_key(name)]}).encode() for name in ("a", "b")]
    clock = ManualClock()
    keys = KeySet("keys", clock=clock, logger=quiet(), fetch=lambda _: documents.pop(0))
    former = await keys.find_key("a", "ES256")
    assert former is not None
    clock.advance(301 * SECOND_NS)
    assert keys.holds_key(former), "as far as anybody knows"
    await settled(keys)
    assert not keys.holds_key(former)
    assert await keys.find_key("b", "ES256") is not None


def test_the_certificate_of_the_issuer_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the machine's authorities."""
    authority = Authority(tmp_path)
    pair = authority.issue("issuer")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    server = Dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nkeys", b"", 0.02, context)
    address = server.address.replace("http://127.0.0.1", "https://localhost")
    try:
        with pytest.raises(OSError, match="certificate verify failed"):
            read_source(address)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert read_source(address) == b"keys"
    finally:
        server.close()
