"""Bearer tokens over TLS: which ones are good, for how long, and what their end does to open calls."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kornel.core.security.static_tokens import digest_of, new_token
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from kornel.v1 import status_pb2
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import CONFIG, Conversation, create, node_request
from tests.e2e.security.site import ISSUER, Authority, Issuer, Pair, Site, bearer, secured
from tests.e2e.security.test_certificates import code_of
from tests.patience import PATIENCE_S
from tests.waiting import until

OK: Final = grpc.StatusCode.OK
UNKNOWN_CALLER: Final = grpc.StatusCode.UNAUTHENTICATED
DENIED: Final = grpc.StatusCode.PERMISSION_DENIED

POLICY: Final = f"""
tokens: tokens.yaml
oidc:
  issuer: {ISSUER}
  audiences: [kornel]
  jwks: keys.json
  algorithms: [ES256]
  revoked: [stolen]
rules:
  - who: ["oidc:ann", "oidc-group:staff", "token:ci"]
    permissions: [read]
  - who: ["oidc:shim", "token:shim"]
    managers: [rm-1]
    permissions: [configure]
limits:
  failures-per-second: 100
"""


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Static tokens by name; that of ``old`` has expired."""
    made = {name: new_token() for name in ("ci", "shim", "old")}
    write_tokens(tmp_path, made)
    return made


def write_tokens(folder: Path, tokens: dict[str, str]) -> None:
    lines = ["tokens:"]
    for name, token in tokens.items():
        lines += [f"  - name: {name}", f"    sha256: {digest_of(token)}"]
        if name == "old":
            lines.append("    expires: 2020-01-01T00:00:00Z")
    (folder / "tokens.yaml").write_text("\n".join(lines) + "\n")


@pytest.fixture
async def site(
    tmp_path: Path, ca: Authority, server_pair: Pair, issuer: Issuer, tokens: dict[str, str]
) -> AsyncIterator[Site]:
    async with secured(tmp_path, ca=ca.file, server=server_pair, policy=POLICY) as site:
        yield site


async def read_as(site: Site, token: str | None, *more: tuple[str, str]) -> grpc.StatusCode:
    async with site.channel() as channel:
        metadata = [*(bearer(token) if token is not None else []), *more]
        call = StatusServiceStub(channel).GetStatus(
            status_pb2.GetStatusRequest(), metadata=metadata, timeout=PATIENCE_S
        )
        return await code_of(call)


async def test_static_tokens(site: Site, tokens: dict[str, str]) -> None:
    assert await read_as(site, tokens["ci"]) is OK
    assert await read_as(site, tokens["shim"]) is DENIED
    assert await read_as(site, tokens["old"]) is UNKNOWN_CALLER
    assert await read_as(site, tokens["ci"][:-1]) is UNKNOWN_CALLER
    assert await read_as(site, digest_of(tokens["ci"])) is UNKNOWN_CALLER, "what the file says is no token"
    assert await read_as(site, new_token()) is UNKNOWN_CALLER
    assert await read_as(site, None) is UNKNOWN_CALLER


async def test_good_oidc_tokens(site: Site, issuer: Issuer) -> None:
    assert await read_as(site, issuer.token()) is OK
    assert await read_as(site, issuer.token(aud=["other", "kornel"], jti="1")) is OK
    assert await read_as(site, issuer.token("bob", groups=["staff"], jti="2")) is OK
    assert await read_as(site, issuer.token("bob", jti="3")) is DENIED
    assert await read_as(site, issuer.token("token:ci", jti="4")) is DENIED


def now() -> int:
    return int(time.time())


def part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def claims() -> dict[str, Any]:
    return {"iss": ISSUER, "aud": "kornel", "sub": "ann", "exp": now() + 600, "jti": "x"}


def unsigned(issuer: Issuer, algorithm: str) -> str:
    return f"{part({'alg': algorithm, 'typ': 'JWT', 'kid': issuer.key_id})}.{part(claims())}."


def confused(issuer: Issuer) -> str:
    """Signed with what everybody knows, in the hope that it is taken for a shared secret."""
    import hmac  # noqa: PLC0415

    public = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': issuer.key_id})}.{part(claims())}"
    digest = hmac.new(public, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def changed(issuer: Issuer) -> str:
    header, body, signature = issuer.token("bob", jti="x").split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return f"{header}.{part({**said, 'sub': 'ann'})}.{signature}"


def deep() -> str:
    return base64.urlsafe_b64encode(b"[" * 3_000).rstrip(b"=").decode()


BAD: Final[dict[str, Callable[[Issuer], str]]] = {
    "expired": lambda issuer: issuer.token(exp=now() - 60),
    "without expiry": lambda issuer: issuer.token(exp=None),
    "expiry that is no number": lambda issuer: issuer.token(exp="tomorrow"),
    "not yet valid": lambda issuer: issuer.token(nbf=now() + 120),
    "issued in the future": lambda issuer: issuer.token(iat=now() + 120),
    "wrong audience": lambda issuer: issuer.token(aud="other"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "wrong issuer": lambda issuer: issuer.token(iss="https://evil.example.org"),
    "revoked": lambda issuer: issuer.token(jti="stolen"),
    "without an ID where some are revoked": lambda issuer: issuer.token(jti=None),
    "no user": lambda issuer: issuer.token(sub=None),
    "unknown key": lambda issuer: issuer.token(headers={"kid": "other"}),
    "key of somebody else": lambda issuer: issuer.token(key=ec.generate_private_key(ec.SECP256R1())),
    "critical header": lambda issuer: issuer.token(headers={"crit": ["exp"]}),
    "alg none": lambda issuer: unsigned(issuer, "none"),
    "alg NONE": lambda issuer: unsigned(issuer, "NoNe"),
    "alg none with the old signature": lambda issuer: unsigned(issuer, "none") + issuer.token().rpartition(".")[2],
    "public key as HMAC secret": confused,
    "changed claims": changed,
    "expiry without end": lambda issuer: issuer.token(exp=1e300),
    "expiry of many digits": lambda issuer: issuer.token(exp=10**400),
    "expiry that is infinite": lambda issuer: issuer.token(exp=float("inf")),
    "deep headers": lambda issuer: f"{deep()}.{part(claims())}.AAAA",
    "deep claims": lambda issuer: f"{part({'alg': 'ES256', 'kid': issuer.key_id})}.{deep()}.AAAA",
    "no JWT": lambda issuer: "a.b.c",
    "empty": lambda issuer: "",
}


@pytest.mark.parametrize("kind", BAD)
async def test_bad_tokens_are_refused(site: Site, issuer: Issuer, kind: str) -> None:
    assert await read_as(site, BAD[kind](issuer)) is UNKNOWN_CALLER


async def test_two_tokens_are_none(site: Site, issuer: Issuer, tokens: dict[str, str]) -> None:
    assert await read_as(site, tokens["ci"], *bearer(issuer.token(jti="1"))) is UNKNOWN_CALLER


async def test_a_bad_token_is_refused_although_the_certificate_is_good(
    tmp_path: Path, ca: Authority, server_pair: Pair
) -> None:
    policy = 'rules: [{who: ["cn:ann"], permissions: [read]}]'
    pair = ca.issue("ann")
    async with (
        secured(tmp_path, ca=ca.file, server=server_pair, client_ca=ca.file, policy=policy) as site,
        site.channel(pair) as channel,
    ):
        stub = StatusServiceStub(channel)
        assert await code_of(stub.GetStatus(status_pb2.GetStatusRequest())) is OK
        assert await code_of(stub.GetStatus(status_pb2.GetStatusRequest(), metadata=bearer("x" * 60))) is UNKNOWN_CALLER


async def test_a_token_bound_to_a_certificate_is_worth_nothing_to_others(
    tmp_path: Path, ca: Authority, server_pair: Pair, issuer: Issuer, tokens: dict[str, str]
) -> None:
    mine, thiefs = ca.issue("mine"), ca.issue("thief")
    der = x509.load_pem_x509_certificate(mine.certificate.read_bytes()).public_bytes(Encoding.DER)
    print_of = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()
    token = issuer.token(jti="1", cnf={"x5t#S256": print_of})
    async with secured(tmp_path, ca=ca.file, server=server_pair, client_ca=ca.file, policy=POLICY) as site:
        for pair, expected in ((mine, OK), (thiefs, UNKNOWN_CALLER)):
            async with site.channel(pair) as channel:
                call = StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest(), metadata=bearer(token))
                assert await code_of(call) is expected


async def test_keys_that_the_issuer_rotates_are_read_again(site: Site, issuer: Issuer) -> None:
    assert await read_as(site, issuer.token(jti="1")) is OK
    former = issuer.token(jti="2")
    issuer.rotate("second")
    assert await read_as(site, issuer.token(jti="3")) is UNKNOWN_CALLER, "read a moment ago, not again so soon"
    site.clock.advance(11 * SECOND_NS)
    assert await read_as(site, issuer.token(jti="4")) is OK
    assert await read_as(site, former) is UNKNOWN_CALLER, "the key it was signed with is gone"


async def test_keys_hold_while_the_issuer_does_not_answer(site: Site, issuer: Issuer) -> None:
    assert await read_as(site, issuer.token(jti="1")) is OK
    issuer.file.unlink()
    site.clock.advance(301 * SECOND_NS)
    assert await read_as(site, issuer.token(jti="2", exp=now() + 3600)) is OK
    await until(lambda: "signing keys cannot be read" in site.log.read_text(), "the issuer to be asked again")


async def open_nodes(channel: grpc.aio.Channel, token: str, config: str = CONFIG) -> Any:
    from kornel.si.v1 import si_pb2 as si  # noqa: PLC0415

    stub = SchedulerStub(channel)
    await stub.RegisterResourceManager(
        si.RegisterResourceManagerRequest(rmID="rm-1", config=config), metadata=bearer(token), timeout=PATIENCE_S
    )
    return stub.UpdateNode(metadata=bearer(token))


async def test_a_stream_ends_with_its_token_and_may_come_back_with_a_new_one(site: Site, issuer: Issuer) -> None:
    first, second = issuer.token("shim", jti="1"), issuer.token("shim", jti="2", exp=now() + 7200)
    async with site.channel() as channel:
        async with Conversation.open(await open_nodes(channel, first)) as nodes:
            await nodes.send(node_request(create("n-1")))
            await nodes.receive()
            site.clock.advance(900 * SECOND_NS)
            code, said = await nodes.end()
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "expired" in said
        async with Conversation.open(SchedulerStub(channel).UpdateNode(metadata=bearer(first))) as nodes:
            await nodes.send(node_request())
            assert (await nodes.end())[0] is UNKNOWN_CALLER
        async with Conversation.open(SchedulerStub(channel).UpdateNode(metadata=bearer(second))) as nodes:
            await nodes.send(node_request(create("n-2")))
            assert (await nodes.receive()).accepted[0].nodeID == "n-2"
    await until(lambda: site.security.guard is not None and site.security.guard.live_calls == 0, "passes given back")


async def test_a_token_that_is_taken_out_of_the_file_ends_its_streams(
    site: Site, tokens: dict[str, str], tmp_path: Path
) -> None:
    async with site.channel() as channel, Conversation.open(await open_nodes(channel, tokens["shim"])) as nodes:
        await nodes.send(node_request(create("n-1")))
        await nodes.receive()
        write_tokens(tmp_path, {"ci": tokens["ci"]})
        code, said = await nodes.end()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "withdrawn" in said
        assert await read_as(site, tokens["shim"]) is UNKNOWN_CALLER
        assert await read_as(site, tokens["ci"]) is OK


async def test_a_revoked_oidc_token_ends_its_streams(site: Site, issuer: Issuer, tmp_path: Path) -> None:
    token = issuer.token("shim", jti="lost")
    async with site.channel() as channel, Conversation.open(await open_nodes(channel, token)) as nodes:
        await nodes.send(node_request(create("n-1")))
        await nodes.receive()
        (tmp_path / "security.yaml").write_text(POLICY.replace("[stolen]", "[stolen, lost]"))
        assert (await nodes.end())[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_of_events_ends_with_its_right(site: Site, tokens: dict[str, str], tmp_path: Path) -> None:
    from kornel.v1 import events_pb2, events_pb2_grpc  # noqa: PLC0415

    async with site.channel() as channel:
        stub = events_pb2_grpc.EventServiceStub(channel)
        refused = stub.WatchEvents(events_pb2.WatchEventsRequest(), metadata=bearer(tokens["shim"]))
        assert await refused.code() is DENIED
        async with Conversation.open(
            stub.WatchEvents(events_pb2.WatchEventsRequest(), metadata=bearer(tokens["ci"]))
        ) as events:
            assert (await events.receive()).HasField("opened")
            (tmp_path / "security.yaml").write_text(POLICY.replace(', "token:ci"', ""))
            assert (await events.end())[0] is DENIED


async def test_administrators_of_a_queue_may_see_it_without_a_grant(site: Site, issuer: Issuer) -> None:
    """By user and by group of the token; another queue, and one that is not there, they may not."""
    async with site.channel() as channel:
        config = CONFIG.replace("- name: a", "- name: a\n            adminacl: 'olga ops'\n          - name: b")
        assert await open_nodes(channel, issuer.token("shim"), config)
        for token in (issuer.token("olga"), issuer.token("otto", groups=["ops"])):
            for path, expected in (("root.a", OK), ("root.b", DENIED), ("root.nowhere", DENIED)):
                call = StatusServiceStub(channel).ExplainQueue(
                    status_pb2.ExplainQueueRequest(path=path), metadata=bearer(token)
                )
                assert await code_of(call) is expected


async def test_a_grant_that_is_taken_back_ends_the_streams_it_let_in(
    site: Site, tokens: dict[str, str], tmp_path: Path
) -> None:
    async with site.channel() as channel, Conversation.open(await open_nodes(channel, tokens["shim"])) as nodes:
        await nodes.send(node_request(create("n-1")))
        await nodes.receive()
        (tmp_path / "security.yaml").write_text(POLICY.replace("managers: [rm-1]", "managers: [rm-9]"))
        assert (await nodes.end())[0] is DENIED


async def test_a_security_file_with_errors_changes_nothing(site: Site, tokens: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "security.yaml").write_text("rules:\n  - who: [everybody]\n    permissions: [read]\n")
    site.security.reload()
    said = site.log.read_text()
    assert "line 2" in said
    assert "'everybody' names nobody" in said
    assert await read_as(site, tokens["ci"]) is OK
    assert await read_as(site, None) is UNKNOWN_CALLER


async def test_no_secret_is_ever_logged(site: Site, tokens: dict[str, str], issuer: Issuer) -> None:
    """Good ones, bad ones, and one that somebody put in the wrong place."""
    secrets = [*tokens.values(), issuer.token(jti="1"), issuer.token(exp=now() - 100), new_token()]
    for secret in secrets:
        await read_as(site, secret)
        async with site.channel() as channel:
            wrong = StatusServiceStub(channel).ExplainUser(
                status_pb2.ExplainUserRequest(user=secret), metadata=bearer(tokens["ci"])
            )
            assert await code_of(wrong) is grpc.StatusCode.NOT_FOUND
    said = site.log.read_text()
    assert "caller refused" in said
    for secret in secrets:
        assert secret not in said
        assert secret.rpartition(".")[2] not in said
