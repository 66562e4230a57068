"""Who shows bad proofs is slowed, and nobody else: not from the same address, nor over the same unix socket."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jwt
import pytest

from kornel.core.security.guard import Guard
from kornel.core.security.static_tokens import digest_of, new_token
from kornel.core.service.connections.callers import address_block
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.wire.status_codes import NotAuthenticated, ServiceError, TooMany
from tests.unit.security.test_oidc import GOOD, HEADER, KEY, NOW_NS, OTHER, signed

ANN = new_token()
POLICY = """
tokens: tokens.yaml
oidc: {issuer: https://login, audiences: [kornel], jwks: keys.json, algorithms: [ES256]}
rules: [{who: [anyone], permissions: [read]}]
limits: {calls-per-second: 1000000, burst: 1000000}
"""


class Site:
    """A guard, its clock and its log."""

    def __init__(self, folder: Path, policy: str = POLICY) -> None:
        (folder / "security.yaml").write_text(policy)
        (folder / "tokens.yaml").write_text(f"tokens: [{{name: ann, sha256: {digest_of(ANN)}}}]")
        self.publish(folder, KEY)
        self.clock = ManualClock(NOW_NS)
        self.log = io.StringIO()
        logger = build_logger(LogFormat.JSON, LogLevel.DEBUG, self.log)
        self.guard = Guard(folder / "security.yaml", clock=self.clock, logger=logger)

    def publish(self, folder: Path, key: Any) -> None:
        said = {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "k0"}
        (folder / "keys.json").write_text(json.dumps({"keys": [said]}))

    async def enter(self, token: str, host: str = "10.0.0.1", connection: str = "ipv4:10.0.0.1:1") -> str:
        """Who was let in, or the name of the refusal."""
        try:
            admitted = await self.guard.admit_call(f"Bearer {token}", None, host, connection)
        except ServiceError as error:
            return type(error).__name__
        self.guard.end_call(admitted)
        return admitted.name


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def crafted(number: int) -> str:
    """Right but for its signature, and another one each time."""
    return signed(HEADER, json.dumps({**GOOD, "jti": str(number)}), OTHER)


def good(number: int) -> str:
    return signed(HEADER, json.dumps({**GOOD, "jti": str(number)}))


@pytest.mark.parametrize("host", ["10.0.0.1", "unix", ""])
async def test_good_proofs_are_let_in_beside_bad_ones(site: Site, host: str) -> None:
    """At once, from the same address: those known before, static ones, and callers with no proof at all."""
    known = good(0)
    assert await site.enter(known, host, "") == "oidc:ann"
    answers = [await site.enter(new_token(), host, "") for _ in range(1_000)]
    assert answers == ["NotAuthenticated"] * 10 + ["TooMany"] * 990
    assert await site.enter(ANN, host, "") == "token:ann"
    assert await site.enter(known, host, "") == "oidc:ann"
    assert await site.enter(good(1), host, "") == "oidc:ann", "one that was not seen before, too"
    site.guard.end_call(await site.guard.admit_call(None, None, host))


async def test_slowed_for_seconds_and_not_for_good(site: Site) -> None:
    for _ in range(50):
        await site.enter(new_token())
    assert await site.enter(new_token()) == "TooMany"
    site.clock.advance(SECOND_NS)
    assert [await site.enter(new_token()) for _ in range(2)] == ["NotAuthenticated", "TooMany"]


@pytest.mark.parametrize("by_s", [-864_000, 864_000])
async def test_setting_the_machines_clock_neither_lengthens_nor_ends_it(site: Site, by_s: int) -> None:
    """What lasts goes by the core's own time, what expires by the wall clock."""
    token = good(0)
    for _ in range(50):
        await site.enter(new_token())
    site.clock.set_wall(by_s * SECOND_NS)
    assert await site.enter(new_token()) == "TooMany"
    assert await site.enter(ANN) == "token:ann"
    site.clock.advance(SECOND_NS)
    assert await site.enter(new_token()) == "NotAuthenticated"
    site.clock.advance(SECOND_NS)
    assert await site.enter(token) == ("oidc:ann" if by_s < 0 else "NotAuthenticated")


async def test_crafted_signatures_are_checked_so_often(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection uses up its own share: another one from the same address is looked at, also for the first time."""
    checked = 0
    real = jwt.decode

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal checked
        checked += 1
        return real(*arguments, **named)

    monkeypatch.setattr(jwt, "decode", counted)
    for number in range(500):
        assert await site.enter(crafted(number)) in ("NotAuthenticated", "TooMany")
    assert checked == 5
    new = good(1)
    assert await site.enter(new, connection="ipv4:10.0.0.1:2") == "oidc:ann"
    assert await site.enter(new) == "oidc:ann", "known by now, over whatever connection"
    assert await site.enter(good(2)) == "TooMany", "its own connection has shown too many"
    site.clock.advance(SECOND_NS)
    assert await site.enter(good(2)) == "oidc:ann"


async def test_many_connections_cost_so_many_checks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one address, and of all together; what was proved before passes."""
    known = good(0)
    assert await site.enter(known) == "oidc:ann"
    checked = 0
    real = jwt.decode

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal checked
        checked += 1
        return real(*arguments, **named)

    monkeypatch.setattr(jwt, "decode", counted)
    for number in range(300):
        await site.enter(crafted(number), connection=f"ipv4:10.0.0.1:{number}")
    assert checked == 100
    for number in range(600):
        await site.enter(crafted(number), f"10.0.1.{number % 250}", f"ipv4:10.0.1.{number % 250}:{number}")
    assert checked == 400
    assert await site.enter(known, connection="ipv4:10.0.0.1:9") == "oidc:ann"
    assert await site.enter(ANN) == "token:ann"


async def test_log_and_memory_of_a_flood_are_bounded(site: Site) -> None:
    """A line a minute for each address that is slowed; buckets for so many addresses."""
    for number in range(12_000):
        host = f"10.{number // 65_536}.{number // 256 % 256}.{number % 256}"
        await site.enter("x" * 60, host, f"ipv4:{host}:1")
    assert len(site.guard._failures) == 10_000
    before = site.log.getvalue().count("\n")
    for _ in range(3_000):
        await site.enter("x" * 60)
    lines = site.log.getvalue().splitlines()[before:]
    assert len(lines) == 11
    assert sum("only valid proofs are admitted" in line for line in lines) == 1


def test_ipv6_addresses_count_by_their_network() -> None:
    """Whoever has one has 2 to the 64 of them."""
    assert address_block("2001:db8::1") == address_block("2001:db8:0:0:ffff::2") == "2001:db8::/64"
    assert address_block("2001:db8:0:1::1") != address_block("2001:db8::1")
    assert address_block("::ffff:10.0.0.1") == "10.0.0.1"
    assert [address_block(each) for each in ("10.0.0.1", "unix", "", "fe80::1%eth0", "::zz")] == [
        "10.0.0.1", "unix", "", "fe80::/64", "::zz",
    ]  # fmt: skip


async def test_reading_the_security_file_again_forgets_no_proof(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it asks for something else of tokens."""
    known = good(0)
    assert await site.enter(known) == "oidc:ann"
    verifier = site.guard._oidc
    site.guard.reload()
    assert site.guard._oidc is verifier
    path = site.guard.paths[0]
    path.write_text(POLICY.replace("audiences: [kornel]", "audiences: [other]"))
    site.guard.reload()
    with pytest.raises(NotAuthenticated):
        await site.guard.admit_call(f"Bearer {known}", None, "10.0.0.1")
    path.write_text(POLICY.replace("oidc: {", "#"))
    site.guard.reload()
    with pytest.raises((NotAuthenticated, TooMany)):
        await site.guard.admit_call(f"Bearer {known}", None, "10.0.0.1")
