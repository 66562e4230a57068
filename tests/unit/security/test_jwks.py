"""Signing keys over HTTP: cached, asked for again within bounds, and never from somewhere else."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from core.security.errors import SecurityError
from core.security.jwks import MOST_BYTES, KeySet, parse_keys
from core.service.clock import SECOND_NS, ManualClock
from core.service.logs import LogFormat, LogLevel, build_logger


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


def keys_of(address: str, clock: ManualClock) -> KeySet:
    return KeySet(address, clock=clock, logger=build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO()))


async def test_keys_are_kept_and_read_again_when_they_are_old(issuer: tuple[Issuer, str]) -> None:
    said, address = issuer
    clock = ManualClock()
    keys = keys_of(address, clock)
    said.publish("a")
    for _ in range(10):
        assert await keys.find("a", "ES256") is not None
    assert said.asked == 1
    clock.advance(300 * SECOND_NS)
    assert await keys.find("a", "ES256") is not None
    assert said.asked == 2


async def test_made_up_key_ids_cost_the_issuer_little(issuer: tuple[Issuer, str]) -> None:
    said, address = issuer
    clock = ManualClock()
    keys = keys_of(address, clock)
    said.publish("a")
    for number in range(50):
        assert await keys.find(f"made-up-{number}", "ES256") is None
    assert said.asked == 1
    said.publish("a", "b")
    clock.advance(10 * SECOND_NS)
    assert await keys.find("b", "ES256") is not None
    assert said.asked == 2


@pytest.mark.parametrize("broken", ["status", "redirect", "no JSON", "too long"])
async def test_an_issuer_that_answers_nonsense_leaves_the_former_keys(issuer: tuple[Issuer, str], broken: str) -> None:
    said, address = issuer
    clock = ManualClock()
    keys = keys_of(address, clock)
    said.publish("a")
    assert await keys.find("a", "ES256") is not None
    if broken == "status":
        said.status = 500
    elif broken == "redirect":
        said.status, said.location = 302, "http://127.0.0.1:1/keys"
    else:
        said.body = b"{" if broken == "no JSON" else b" " * (MOST_BYTES + 1)
    clock.advance(300 * SECOND_NS)
    assert await keys.find("a", "ES256") is not None
    assert said.asked == 2
    clock.advance(24 * 3600 * SECOND_NS)
    assert await keys.find("a", "ES256") is None, "for a day at most"


async def test_a_key_serves_its_own_algorithm_only(issuer: tuple[Issuer, str]) -> None:
    said, address = issuer
    keys = keys_of(address, ManualClock())
    said.body = json.dumps({"keys": [{**public_key("a"), "use": "enc"}, public_key("b")]}).encode()
    assert await keys.find("a", "ES256") is None, "for encryption"
    assert await keys.find("b", "RS256") is None
    assert await keys.find("b", "ES384") is None, "another curve"
    assert await keys.find(None, "ES256") is not None, "the only one that fits"


def test_shared_secrets_and_private_keys_are_no_keys() -> None:
    private = jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True)
    assert parse_keys(json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}, private, 7, {}]}).encode()) == []


@pytest.mark.parametrize("document", ["", "[]", "{}", '{"keys": {}}', "[" * 100_000])
def test_a_document_that_is_no_jwks_is_refused(document: str) -> None:
    with pytest.raises(SecurityError, match="not a JWKS"):
        parse_keys(document.encode())
