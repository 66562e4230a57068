"""HTTPS: the same identities and rules as gRPC, and what hostile clients try."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import jsonschema_rs
import pytest

from kornel.core.domain.commands import RegisterManager
from kornel.core.security.static_tokens import digest_of, new_token
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from tests.e2e.security.site import HOST, ISSUER, Authority, Issuer, Pair, Site, bearer, secured
from tests.e2e.security.test_tokens import BAD
from tests.patience import PATIENCE_S
from tests.waiting import until

READER, SHIM, ADMIN, QUEUE_ADMIN = (new_token() for _ in range(4))

POLICY: Final = f"""
tokens: tokens.yaml
oidc: {{issuer: {ISSUER}, audiences: [kornel], jwks: keys.json, algorithms: [ES256]}}
rules:
  - who: ["token:reader", "oidc:ann", "cn:ann"]
    permissions: [read]
  - who: ["token:admin"]
    permissions: [read, administer]
  - who: ["token:shim"]
    managers: [rm-1]
    permissions: [configure]
limits:
  calls-per-second: 1
  burst: 30
  failures-per-second: 100
"""

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            adminacl: "olga"
          - name: b
"""

NAMES: Final = ("partition", "queue", "application", "node", "user", "group")
CLUSTERS: Final = "/ws/v1/clusters"


@pytest.fixture
async def site(tmp_path: Path, ca: Authority, server_pair: Pair, issuer: Issuer) -> AsyncIterator[Site]:
    named = {"reader": READER, "shim": SHIM, "admin": ADMIN, "olga": QUEUE_ADMIN}
    (tmp_path / "tokens.yaml").write_text(
        json.dumps({"tokens": [{"name": name, "sha256": digest_of(token)} for name, token in named.items()]})
    )
    async with secured(tmp_path, ca=ca.file, server=server_pair, policy=POLICY, rest_address="127.0.0.1:0") as site:
        async with site.channel() as channel:
            await SchedulerStub(channel).RegisterResourceManager(
                si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), metadata=bearer(SHIM)
            )
        yield site


async def get(site: Site, path: str, token: str | None = None, **options: Any) -> httpx.Response:
    assert site.ca is not None
    context = ssl.create_default_context(cafile=site.ca)
    port = site.server.rest_address.rpartition(":")[2]
    headers = options.pop("headers", []) + ([("Authorization", f"Bearer {token}")] if token else [])
    async with httpx.AsyncClient(verify=context, timeout=PATIENCE_S, trust_env=False) as client:
        method = options.pop("method", "GET")
        return await client.request(method, f"https://{HOST}:{port}{path}", headers=headers, **options)


async def test_who_may_read(site: Site, issuer: Issuer) -> None:
    assert (await get(site, CLUSTERS)).status_code == 401
    assert (await get(site, CLUSTERS, READER)).status_code == 200
    assert (await get(site, CLUSTERS, issuer.token())).status_code == 200
    assert (await get(site, CLUSTERS, issuer.token("bob"))).status_code == 403
    assert (await get(site, CLUSTERS, SHIM)).status_code == 403
    for bad in (new_token(), issuer.token(exp=1), issuer.token(aud="other"), "x"):
        refused = await get(site, CLUSTERS, bad)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.json()["status_code"] == 401
    two = [("Authorization", f"Bearer {READER}"), ("Authorization", f"Bearer {ADMIN}")]
    assert (await get(site, CLUSTERS, headers=two)).status_code == 401
    assert (await get(site, CLUSTERS, headers=[("Authorization", f"Basic {READER}")])).status_code == 401


async def test_document_tells_what_each_route_asks_for(tmp_path: Path, ca: Authority, server_pair: Pair) -> None:
    """Whoever shows nothing, or was granted nothing, is refused as described, and exactly where that is described."""
    named = {"shim": SHIM, "admin": ADMIN}
    (tmp_path / "tokens.yaml").write_text(
        json.dumps({"tokens": [{"name": name, "sha256": digest_of(token)} for name, token in named.items()]})
    )
    policy = "\n".join(line for line in POLICY.splitlines() if not line.startswith("oidc:")).replace(
        "burst: 30", "burst: 300"
    )
    async with secured(tmp_path, ca=ca.file, server=server_pair, policy=policy, rest_address="127.0.0.1:0") as site:
        document = (await get(site, "/openapi.json")).json()
        error = {**document["components"]["schemas"]["Error"], "components": document["components"]}
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                filled = path.format(**dict.fromkeys(NAMES, "x"), state="active")
                for token, refusal in ((None, 401), (SHIM, 403)):
                    if token == SHIM and operation["security"] == [{"bearer": ["configure"]}]:
                        continue  # That is what it may do.
                    answer = await get(site, filled, token, method=method.upper())
                    assert (answer.status_code == refusal) is bool(operation["security"]), (path, token)
                    if operation["security"]:
                        described = operation["responses"][str(refusal)]
                        assert {name.lower() for name in described.get("headers", {})} <= set(answer.headers)
                        jsonschema_rs.Draft202012Validator(error).validate(answer.json())
        assert document["paths"]["/debug/stack"]["get"]["security"] == [{"bearer": ["administer"]}]


async def test_debugging_is_for_administrators_and_probes_for_everybody(site: Site) -> None:
    for path in ("/debug/stack", "/debug/fullstatedump"):
        assert (await get(site, path, READER)).status_code == 403
    assert (await get(site, "/debug/stack", ADMIN)).status_code == 200
    assert (await get(site, "/healthz/live")).status_code == 200
    assert (await get(site, CLUSTERS, method="OPTIONS")).status_code == 200, "browsers ask before they know a token"


async def test_pages_of_other_origins_may_send_a_token_if_they_may_read(
    tmp_path: Path, ca: Authority, server_pair: Pair
) -> None:
    (tmp_path / "tokens.yaml").write_text(json.dumps({"tokens": [{"name": "reader", "sha256": digest_of(READER)}]}))
    policy = "\n".join(line for line in POLICY.splitlines() if not line.startswith("oidc:"))
    async with secured(
        tmp_path, ca=ca.file, server=server_pair, policy=policy, rest_address="127.0.0.1:0", rest_origins=("*",)
    ) as site:
        await _ask_from_elsewhere(site)


async def _ask_from_elsewhere(site: Site) -> None:
    asked = [
        ("Origin", "https://elsewhere.example"),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "authorization"),
    ]
    answer = await get(site, CLUSTERS, method="OPTIONS", headers=asked)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-methods"] == "GET, OPTIONS"
    assert "Authorization" in answer.headers["access-control-allow-headers"].split(",")
    assert (await get(site, CLUSTERS, READER)).headers["access-control-allow-origin"] == "*"


async def test_administrators_of_a_queue_see_it_and_no_other(site: Site) -> None:
    queues = "/ws/v1/partition/default/queue"
    assert (await get(site, f"{queues}/root.a", QUEUE_ADMIN)).status_code == 200
    assert (await get(site, f"{queues}/root.a/applications", QUEUE_ADMIN)).status_code == 200
    for other in (f"{queues}/root.b", f"{queues}/root", f"{queues}/root.nowhere", CLUSTERS):
        assert (await get(site, other, QUEUE_ADMIN)).status_code == 403


async def test_administrators_of_one_managers_queue_see_no_other_managers(site: Site) -> None:
    """A bare name goes on to mean the partition of the manager that came first, and the full one that of the other."""
    others = CONFIG.replace('            adminacl: "olga"\n', "").replace(
        "name: b", 'name: b\n            adminacl: "olga"'
    )
    await site.server.managers.register(RegisterManager("rm-2", others))
    first, second = (f"/ws/v1/partition/{name}/queue" for name in ("default", "%5Brm-2%5Ddefault"))
    for path, expected in (
        (f"{first}/root.a", 200),
        (f"{first}/root.b", 403),
        (f"{second}/root.a", 403),
        (f"{second}/root.b", 200),
    ):
        assert (await get(site, path, QUEUE_ADMIN)).status_code == expected, path


async def test_client_certificates_are_identities(tmp_path: Path, ca: Authority, server_pair: Pair) -> None:
    policy = 'rules: [{who: ["cn:ann"], permissions: [read]}]'
    async with secured(
        tmp_path, ca=ca.file, server=server_pair, client_ca=ca.file, policy=policy, rest_address="127.0.0.1:0"
    ) as site:
        port = site.server.rest_address.rpartition(":")[2]
        for name, status in (("ann", 200), ("bob", 403)):
            pair = ca.issue(name)
            context = ssl.create_default_context(cafile=ca.file)
            context.load_cert_chain(pair.certificate, pair.key)
            async with httpx.AsyncClient(verify=context, trust_env=False, timeout=PATIENCE_S) as client:
                assert (await client.get(f"https://{HOST}:{port}{CLUSTERS}")).status_code == status
        with pytest.raises(httpx.TransportError):
            await get(site, CLUSTERS)


async def test_calls_are_limited_as_on_grpc(site: Site) -> None:
    codes = [(await get(site, CLUSTERS, READER)).status_code for _ in range(31)]
    assert codes == [200] * 30 + [429]


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/ws/v1/%2e%2e/%2e%2e/etc/passwd",
        "/ws/v1/partition/..%2f..%2fetc%2fpasswd/queues",
        "/ws/v1/partition/default/queue/..%2f..%2f",
        "/ws/v1/partition/default/node/%00",
        "/docs/../../../etc/passwd",
        "//etc/passwd",
        "/static/..\\..\\etc\\passwd",
    ],
)
async def test_paths_lead_nowhere_else(site: Site, path: str) -> None:
    status, body = await raw(site, f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READER}\r\n\r\n".encode())
    assert status in (301, 400, 404)
    assert b"root:" not in body


@pytest.mark.parametrize(
    "path", ["/ws/v1/../ws/v1/clusters", "/WS/V1/clusters", "/ws/v1//clusters", "/ws/v1/clusters/"]
)
async def test_a_path_written_otherwise_does_not_get_around_the_rules(site: Site, path: str) -> None:
    status, body = await raw(site, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert status in (301, 401, 404)
    assert b"partition" not in body.lower()


async def raw(site: Site, request: bytes) -> tuple[int, bytes]:
    """The status of the answer to *request*, and its first bytes; 0 when there is none."""
    assert site.ca is not None
    port = int(site.server.rest_address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=ssl.create_default_context(cafile=site.ca), server_hostname=HOST
    )
    try:
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(65536), PATIENCE_S)
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    return int(answer.split(b" ")[1]) if answer else 0, answer


async def test_a_request_names_at_most_one_host(site: Site) -> None:
    """Whatever names are good here."""
    for hosts, wanted in (("Host: a\r\nHost: b\r\n", 400), ("Host:\r\n", 200)):
        assert (await raw(site, f"GET /healthz/live HTTP/1.1\r\n{hosts}\r\n".encode()))[0] == wanted


async def test_who_calls_is_asked_before_a_body_is_read(site: Site) -> None:
    """The refusal comes although nothing of the body was sent."""
    post = "POST /ws/v1/validate-conf HTTP/1.1\r\nHost: x\r\n"
    for length in ("Content-Length: 4000000", "Transfer-Encoding: chunked"):
        for proof, refusal in (("", 401), (f"Authorization: Bearer {SHIM}\r\n", 403)):
            status, _ = await raw(site, f"{post}{proof}{length}\r\nExpect: 100-continue\r\n\r\n".encode())
            assert status == refusal


@pytest.mark.parametrize("proof", ["", f"Authorization: Bearer {'x' * 43}\r\n"], ids=["anonymous", "a bad token"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_who_sends_all_of_a_body_first_reads_the_refusal(site: Site, proof: str, chunked: bool) -> None:
    """As most libraries do: a connection that is reset meanwhile takes the answer with it."""
    size = 8 << 20
    head = f"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: x\r\n{proof}"
    if chunked:
        piece = b"10000\r\n" + b"#" * 0x10000 + b"\r\n"
        request = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + piece * (size // 0x10000) + b"0\r\n\r\n"
    else:
        request = f"{head}Content-Length: {size}\r\n\r\n".encode() + b"#" * size
    last = b"GET /healthz/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await asyncio.to_thread(send_all_then_read, site, request + last)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"401", b"200"]


def send_all_then_read(site: Site, request: bytes) -> bytes:
    """Returns all that is answered. Raises ConnectionError if the connection does not end in order."""
    port = int(site.server.rest_address.rpartition(":")[2])
    context = ssl.create_default_context(cafile=site.ca)
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


async def test_oversized_bodies_and_tokens_are_refused(site: Site) -> None:
    post = f"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READER}\r\n"
    status, _ = await raw(site, post.encode() + b"Content-Length: 6000000\r\n\r\n" + b"#" * 6_000_000)
    assert status == 413
    status, _ = await raw(site, f"{post.replace(READER, 'x' * 30_000)}Content-Length: 0\r\n\r\n".encode())
    assert status == 401
    assert (await get(site, CLUSTERS, READER)).status_code == 200


async def test_an_event_stream_is_cut_off_when_its_token_is_withdrawn(site: Site, tmp_path: Path) -> None:
    assert site.ca is not None
    port = site.server.rest_address.rpartition(":")[2]
    context = ssl.create_default_context(cafile=site.ca)
    headers = {"Authorization": f"Bearer {READER}"}
    async with (
        httpx.AsyncClient(verify=context, trust_env=False, timeout=PATIENCE_S) as client,
        client.stream("GET", f"https://{HOST}:{port}/ws/v1/events/stream", headers=headers) as stream,
    ):
        assert stream.status_code == 200
        (tmp_path / "tokens.yaml").write_text("tokens: []\n")
        with pytest.raises(httpx.TransportError):
            async for _ in stream.aiter_raw():
                pass
    guard = site.security.guard
    assert guard is not None
    await until(lambda: guard.live_calls == 0, "the pass to be given back")


async def test_names_cannot_write_log_lines(site: Site) -> None:
    """Control characters in paths, queue names and rmIDs are written out."""
    await get(site, "/ws/v1/partition/x%0A%7B%22event%22%3A%22forged%22%7D/queues", READER)
    async with site.channel() as channel:
        call = SchedulerStub(channel).RegisterResourceManager(
            si.RegisterResourceManagerRequest(rmID='rm-1\n{"event":"forged"}'), metadata=bearer(SHIM)
        )
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            await call
    lines = [json.loads(line) for line in site.log.read_text().splitlines()]
    assert not [line for line in lines if line["event"] == "forged"]
    assert [line for line in lines if "rm-1\\\\n" in json.dumps(line)]


@pytest.mark.parametrize("kind", BAD)
async def test_bad_tokens_are_401(site: Site, issuer: Issuer, kind: str) -> None:
    """Never an error of the core, whatever is wrong with them."""
    token = BAD[kind](issuer)
    if "ID where some are revoked" in kind or kind == "revoked":
        pytest.skip("no token is revoked here")
    header = f"Bearer {token}".strip()
    assert (await get(site, CLUSTERS, headers=[("Authorization", header)])).status_code == 401
    assert (await get(site, CLUSTERS, READER)).status_code == 200
