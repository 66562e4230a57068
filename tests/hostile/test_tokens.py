"""Wrong tokens of every kind, and floods of guesses: refused as what they are, and valid callers notice nothing."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from kornel.core.security.static_tokens import digest_of, new_token
from kornel.v1 import status_pb2
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.security.site import ISSUER, Issuer
from tests.e2e.security.test_tokens import BAD
from tests.hostile.attacked import HEALTH_S, AttackedCore, attacked_core
from tests.ports import reserve_port
from tests.unit.security.test_jwks import Dripping
from tests.unit.security.test_oidc import BAD_HEADERS, ODD, ODD_FORMS, changed, signed, text

OK: Final = grpc.StatusCode.OK
REFUSALS: Final = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
GUESSES: Final = 4_000
THREADS: Final = 4
GUESS_S: Final = 0.0015
"""Processor time for a call that is refused for its token, on whatever machine this runs: a call is most of it."""
SHIM, OPS = new_token(), new_token()

POLICY: Final = """
tokens: tokens.yaml
oidc: {{issuer: {issuer}, audiences: [kornel], jwks: {jwks}, algorithms: [ES256], revoked: [stolen]}}
rules:
  - {{who: ["token:shim"], managers: ["*"], permissions: [read, configure, administer]}}
  - {{who: ["token:ops", "oidc:ann"], permissions: [read]}}
limits: {{calls-per-second: 100000, burst: 100000}}
"""


@dataclass
class Site:
    """A core that asks who calls, the address that callers use, and who signs their tokens."""

    core: AttackedCore
    address: str
    issuer: Issuer


class _WithToken(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc,type-arg]  # the stubs have no types for these
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc,type-arg]
):
    """Calls as the shim."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(_authorized(details), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(_authorized(details), requests)


def _authorized(details: Any) -> Any:
    return details._replace(metadata=[*(details.metadata or ()), ("authorization", f"Bearer {SHIM}")])


@contextmanager
def guarded(folder: Path, address: str, issuer: Issuer, jwks: str = "keys.json") -> Iterator[Site]:
    (folder / "security.yaml").write_text(POLICY.format(issuer=ISSUER, jwks=jwks))
    (folder / "tokens.yaml").write_text(
        json.dumps({"tokens": [{"name": n, "sha256": digest_of(t)} for n, t in (("shim", SHIM), ("ops", OPS))]})
    )
    channel = grpc.intercept_channel(grpc.insecure_channel(address), _WithToken())
    arguments = ("--grpc", address, "--security", str(folder / "security.yaml"))
    with attacked_core(folder, *arguments, channel=channel) as core:
        yield Site(core, address, issuer)


@pytest.fixture(scope="module", params=["tcp", "unix"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    address = f"127.0.0.1:{reserve_port()}" if request.param == "tcp" else f"unix:{folder}/core.sock"
    with guarded(folder, address, Issuer(folder)) as found:
        yield found


def connect(address: str) -> grpc.Channel:
    """A connection of its own."""
    return grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


def call(channel: grpc.Channel, token: str) -> grpc.StatusCode:
    try:
        StatusServiceStub(channel).GetStatus(
            status_pb2.GetStatusRequest(), metadata=[("authorization", f"Bearer {token}")], timeout=10
        )
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return OK


def ask_http(core: AttackedCore, token: str) -> int:
    connection = http.client.HTTPConnection(core.http, timeout=10)
    try:
        connection.request("GET", "/ws/v1/clusters", headers={"authorization": f"Bearer {token}".strip()})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


class ValidCaller:
    """Calls again and again with good tokens while an attack goes on, and notes what comes of it."""

    def __init__(self, address: str, tokens: Sequence[str]) -> None:
        self.refused: list[grpc.StatusCode] = []
        self.longest_s = 0.0
        self.calls = 0
        self._address, self._tokens = address, tokens
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def __enter__(self) -> ValidCaller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _call(self) -> None:
        with connect(self._address) as channel:
            call(channel, self._tokens[0])  # Connecting takes as long as the machine takes.
            while not self._ended.wait(0.02):
                for token in self._tokens:
                    began = time.monotonic()
                    code = call(channel, token)
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    self.calls += 1
                    if code is not OK:
                        self.refused.append(code)


def guess(address: str, tokens: Callable[[int], str], number: int) -> set[grpc.StatusCode]:
    """Show *number* tokens over a few connections at once. Returns the answers."""
    answers: set[grpc.StatusCode] = set()

    def attack(first: int) -> None:
        with connect(address) as channel:
            for each in range(first, number, THREADS):
                answers.add(call(channel, tokens(each)))

    threads = [threading.Thread(target=attack, args=(first,)) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def wrong_tokens(issuer: Issuer) -> list[str]:
    """All of them as text that fits into a header."""
    good = json.dumps({"iss": ISSUER, "aud": "kornel", "sub": "ann", "exp": int(time.time()) + 600, "jti": "1"})
    header = json.dumps({"alg": "ES256", "kid": issuer.key_id})
    tokens = [make(issuer) for make in BAD.values()]
    tokens += [signed(headers, good, issuer.key) for headers in BAD_HEADERS.values()]
    tokens += [changed(form) for form in ODD_FORMS.values()]
    for value in ODD:
        for name in ("exp", "cnf"):
            said = f'{good[:-1]}, "{name}": {value}}}'
            tokens.append(signed(header, said, issuer.key))
            tokens.append(f"{text(header)}.{text(said)}.{'A' * 86}")
    tokens += [f"a.{'.' * 5_000}b", "e" * 7_000, "eyJ" * 2_300, "krn_" + "A" * 7_000, "krn_" + "A" * 43]
    return [token for token in tokens if len(token) < 7_500 and token.isprintable()]


def test_each_wrong_token_is_unauthenticated(site: Site) -> None:
    tokens = wrong_tokens(site.issuer)
    assert len(tokens) > 100
    with (
        site.core.attack(processor_s=1.0 + 2 * len(tokens) * 0.005),
        connect(site.address) as channel,
        ValidCaller(site.address, [OPS, site.issuer.token()]) as valid,
    ):
        for token in tokens:
            assert call(channel, token) in REFUSALS, token[:80]
            assert ask_http(site.core, token) in (401, 429), token[:80]
    assert not valid.refused


def test_guesses_slow_nobody_else(site: Site) -> None:
    """Valid callers come from the same address, or over the same unix socket; one of them is new each time."""
    known = site.issuer.token()
    with (
        site.core.attack(processor_s=1.0 + 2 * GUESSES * GUESS_S),
        ValidCaller(site.address, [OPS, known]) as valid,
    ):
        answers = guess(site.address, lambda _: f"krn_{os.urandom(32).hex()}", GUESSES)
        with connect(site.address) as channel:
            assert call(channel, site.issuer.token(jti="new")) is OK
    assert answers <= REFUSALS
    assert not valid.refused
    assert valid.calls > 20
    assert valid.longest_s < HEALTH_S


def test_signatures_that_do_not_hold_slow_nobody_else(site: Site) -> None:
    """Tokens that are right but for their signature, each another one."""
    known = site.issuer.token()
    with connect(site.address) as channel:
        assert call(channel, known) is OK
    header, claims, _ = site.issuer.token(jti="crafted").split(".")
    with (
        site.core.attack(processor_s=1.0 + 2 * GUESSES * GUESS_S),
        ValidCaller(site.address, [OPS, known]) as valid,
    ):
        answers = guess(site.address, lambda n: f"{header}.{claims}.{text(n.to_bytes(64, 'big'))}", GUESSES)
        if not site.address.startswith("unix:"):
            with connect(site.address) as channel:
                assert call(channel, site.issuer.token(jti="other")) is OK, "over a connection of its own"
    assert answers <= REFUSALS
    assert not valid.refused
    assert valid.longest_s < HEALTH_S


def test_issuer_that_drips_holds_up_nobody_it_knows(tmp_path: Path) -> None:
    """Made-up key IDs make it be asked again, and each waits a moment; a token with a known key waits for nobody."""
    issuer = Issuer(tmp_path)
    document = issuer.file.read_bytes()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(document), document)
    server = Dripping(head, b"", 0.02)
    try:
        with guarded(tmp_path, f"127.0.0.1:{reserve_port()}", issuer, server.address) as site:
            known = issuer.token()
            with connect(site.address) as channel:
                assert call(channel, known) is OK
            server.say(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", 0.02)
            unknown = issuer.token(headers={"kid": "made-up"})
            with site.core.attack(processor_s=20.0), ValidCaller(site.address, [OPS, known]) as valid:
                deadline = time.monotonic() + 30
                while server.asked < 2:
                    assert time.monotonic() < deadline, "the issuer was not asked again"
                    guess(site.address, lambda _: unknown, THREADS)
                began = time.monotonic()
                assert guess(site.address, lambda _: unknown, THREADS) <= REFUSALS
                assert time.monotonic() - began < 5
            assert not valid.refused
            assert valid.longest_s < HEALTH_S
    finally:
        server.close()
