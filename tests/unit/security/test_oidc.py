"""Tokens of an issuer, as wrong as anybody can make them: refused, never an error of another kind, and cheaply."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kornel.core.security.identity import Identity
from kornel.core.security.jwks import KeySet
from kornel.core.security.oidc import MOST_PROVED, OidcSettings, OidcVerifier
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.wire.status_codes import NotAuthenticated, TooMany
from tests.examples import scale_examples
from tests.paced import paced_time

NOW_S = 1_700_000_000
NOW_NS = NOW_S * SECOND_NS
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
CERTIFICATE = b"of somebody"
GOOD: dict[str, Any] = {"iss": "https://login", "aud": "kornel", "sub": "ann", "exp": NOW_S + 600}


def key_set(*keys: ec.EllipticCurvePrivateKey, clock: ManualClock | None = None) -> KeySet:
    said = [
        {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": f"k{n}"}
        for n, key in enumerate(keys)
    ]
    document = json.dumps({"keys": said}).encode()
    logger = build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO())
    return KeySet("keys", clock=clock or ManualClock(NOW_NS), logger=logger, fetch=lambda _: document)


def verifier(keys: KeySet | None = None, **changes: Any) -> OidcVerifier:
    usual: dict[str, Any] = {"issuer": "https://login", "audiences": ("kornel",), "keys": "keys"}
    return OidcVerifier(OidcSettings(**{**usual, **changes}), keys or key_set(KEY))


def text(part: str | bytes) -> str:
    raw = part if isinstance(part, bytes) else part.encode(errors="surrogatepass")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(header: str | bytes, claims: str | bytes, key: ec.EllipticCurvePrivateKey = KEY) -> str:
    """A token with these very bytes, rightly signed."""
    said = f"{text(header)}.{text(claims)}"
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(said.encode(), key)
    return f"{said}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


HEADER = json.dumps({"alg": "ES256", "kid": "k0"})


def with_claim(name: str, value: str) -> str:
    """The good claims, one of them as this JSON."""
    return json.dumps({**GOOD, name: 0}).replace(f'"{name}": 0', f'"{name}": {value}')


DEEP = "[" * 10_000
ODD = [
    "1e300", "-1e300", "1e308", "1e309", "-1e309", "NaN", "Infinity", "-Infinity", "9" * 4_000, "-" + "9" * 4_000,
    "9" * 5_000, "253402300801", "true", "false", "null", "[]", "{}", '""', '"1700000600"', "[1700000600]", "0.5e400",
    '"\\ud800"', '"\\u0000"', DEEP, '{"a":' * 2_000, "[" + "]", "[null]", '["a", 1]', '{"x5t#S256": 1}', "+1", "01",
]  # fmt: skip


async def outcome(token: str, found: OidcVerifier | None = None, certificate: bytes | None = None) -> Identity | None:
    """Who it is; ``None``: refused as it should be. Anything else it raises is a fault."""
    try:
        return await (found or verifier()).verify(token, certificate, NOW_NS)
    except NotAuthenticated as error:
        str(error).encode()
        return None


def sound(identity: Identity | None) -> None:
    """Whoever is let in can be named anywhere."""
    if identity is not None:
        assert identity.user
        for name in (*identity.principals, identity.proof):
            name.encode()
        assert identity.expires_ns is not None
        assert NOW_NS < identity.expires_ns < 2**70


async def test_good_token() -> None:
    found = await outcome(signed(HEADER, json.dumps(GOOD)))
    assert found is not None
    assert found.principals == ("oidc:ann",)
    assert found.expires_ns == (NOW_S + 630) * SECOND_NS


@pytest.mark.parametrize("name", ["exp", "nbf", "iat", "iss", "aud", "sub", "groups", "cnf", "jti"])
async def test_odd_claims_of_a_token_that_is_rightly_signed(name: str) -> None:
    """Whatever stands there: refused, or somebody who can be named, for a time that can be reckoned with."""
    for value in ODD:
        for certificate in (None, CERTIFICATE):
            sound(await outcome(signed(HEADER, with_claim(name, value)), certificate=certificate))
    if name == "exp":
        for value in ODD:
            assert await outcome(signed(HEADER, with_claim(name, value))) is None, value[:40]


BAD_HEADERS: dict[str, str | bytes] = {
    "none": '{"alg":"none","kid":"k0"}',
    "confused": '{"alg":"HS256","kid":"k0"}',
    "another curve": '{"alg":"ES384","kid":"k0"}',
    "no algorithm": '{"kid":"k0"}',
    "algorithm twice": '{"alg":"none","alg":"ES256","kid":"k0"}',
    "key twice": '{"alg":"ES256","kid":"k1","kid":"k0"}',
    "algorithm no text": '{"alg":["ES256"],"kid":"k0"}',
    "algorithm a number": '{"alg":1e300,"kid":"k0"}',
    "key no text": '{"alg":"ES256","kid":{"a":1}}',
    "half a pair": '{"alg":"ES256","kid":"\\ud800"}',
    "crit": '{"alg":"ES256","kid":"k0","crit":[]}',
    "crit of nothing": '{"alg":"ES256","kid":"k0","crit":null}',
    "zip": '{"alg":"ES256","kid":"k0","zip":"DEF"}',
    "b64": '{"alg":"ES256","kid":"k0","b64":false}',
    "enc": '{"alg":"ES256","kid":"k0","enc":"A128GCM"}',
    "deep": '{"alg":"ES256","kid":"k0","x":' + DEEP,
    "deep and whole": '{"alg":"ES256","kid":"k0","x":' + "[" * 3_000 + "]" * 3_000 + "}",
    "opened too often": '{"alg":"ES256","kid":"k0","x":[' + "[]," * 1_000 + "0]}",
    "nothing": b"",
    "a list": "[]",
    "no JSON": "{",
    "not UTF-8": b'{"alg":"ES256","kid":"k0","x":"\xff"}',
    "UTF-16": '{"alg":"ES256","kid":"k0"}'.encode("utf-16"),
    "byte order mark": '{"alg":"ES256","kid":"k0"}'.encode("utf-8-sig"),
    "NaN": '{"alg":"ES256","kid":"k0","x":NaN}',
    "long number": '{"alg":"ES256","kid":"k0","x":' + "9" * 5_000 + "}",
}


@pytest.mark.parametrize("kind", BAD_HEADERS)
async def test_odd_headers_are_refused(kind: str) -> None:
    assert await outcome(signed(BAD_HEADERS[kind], json.dumps(GOOD))) is None


def changed(change: Callable[[list[str]], str]) -> str:
    return change(signed(HEADER, json.dumps(GOOD)).split("."))


ODD_FORMS: dict[str, Callable[[list[str]], str]] = {
    "padding": lambda parts: f"{parts[0]}==.{parts[1]}.{parts[2]}",
    "plus": lambda parts: f"{parts[0]}+.{parts[1]}.{parts[2]}",
    "slash": lambda parts: f"{parts[0]}.{parts[1]}/.{parts[2]}",
    "space": lambda parts: f"{parts[0]} .{parts[1]}.{parts[2]}",
    "line": lambda parts: f"{parts[0]}\n.{parts[1]}.{parts[2]}",
    "line at the end": lambda parts: f"{parts[0]}.{parts[1]}.{parts[2]}\n",
    "a letter too many": lambda parts: f"{parts[0]}A.{parts[1]}.{parts[2]}",
    "no signature": lambda parts: f"{parts[0]}.{parts[1]}.",
    "a short signature": lambda parts: f"{parts[0]}.{parts[1]}.{parts[2][:8]}",
    "a signature of zeros": lambda parts: f"{parts[0]}.{parts[1]}.{'A' * 86}",
    "no claims": lambda parts: f"{parts[0]}..{parts[2]}",
    "two parts": lambda parts: f"{parts[0]}.{parts[1]}",
    "four parts": lambda parts: f"{parts[0]}.{parts[1]}.{parts[2]}.",
    "dots": lambda parts: "..",
    "huge": lambda parts: f"{parts[0]}.{'A' * 10**6}.{parts[2]}",
    "claims are no object": lambda parts: signed(HEADER, "[]"),
    "claims twice": lambda parts: signed(HEADER, json.dumps(GOOD)[:-1] + ', "sub": "root"}'),
    "key of somebody else": lambda parts: signed(HEADER, json.dumps(GOOD), OTHER),
}


@pytest.mark.parametrize("kind", ODD_FORMS)
async def test_odd_forms_are_refused(kind: str) -> None:
    assert await outcome(changed(ODD_FORMS[kind])) is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, "kornel"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["exp", "nbf", "iat", "iss", "aud", "sub", "groups", "cnf", "jti"])
HEADERS = st.sampled_from(["alg", "kid", "typ", "crit", "zip", "b64", "jwk", "jku", "x5c"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=scale_examples(300), deadline=None)
@given(st.dictionaries(HEADERS, JSON, max_size=3), st.dictionaries(NAMES, JSON, max_size=4), st.booleans())
@example({}, {"exp": 1e300}, True)
@example({}, {"exp": 10**400}, True)
@example({}, {"exp": float("nan")}, False)
@example({}, {"sub": "\ud800"}, True)
@example({}, {"cnf": {"x5t#S256": "\ud800"}}, True)
async def test_any_json_is_refused_or_sound(headers: dict[str, Any], claims: dict[str, Any], whole: bool) -> None:
    header = json.dumps({"alg": "ES256", "kid": "k0", **headers})
    said = json.dumps({**GOOD, **claims} if whole else claims)
    sound(await outcome(signed(header, said), certificate=CERTIFICATE))


@settings(max_examples=scale_examples(300), deadline=None)
@given(st.text(st.characters(codec="ascii"), max_size=60), st.binary(max_size=60), st.binary(max_size=60))
async def test_any_bytes_are_refused(token: str, header: bytes, claims: bytes) -> None:
    assert await outcome(token) is None
    assert await outcome(signed(header, claims)) is None
    assert await outcome(signed(HEADER, claims)) is None


async def test_a_binding_is_to_one_certificate() -> None:
    import hashlib  # noqa: PLC0415

    mine = base64.urlsafe_b64encode(hashlib.sha256(CERTIFICATE).digest()).rstrip(b"=").decode()
    whole = {"x5t#S256": mine}
    odd: list[Any] = [
        {"x5t#S256": mine + "="}, {"x5t#S256": mine.lower()}, {"x5t#S256": [mine]}, {"x5t#S256": ""}, {"x5t": mine},
        {"jkt": mine}, mine, [whole], None, {}, {"x5t#S256": None},
        {"x5t#S256": hashlib.sha256(CERTIFICATE).hexdigest()},
    ]  # fmt: skip
    token = signed(HEADER, json.dumps({**GOOD, "cnf": whole}))
    found = verifier()
    assert await outcome(token, found, CERTIFICATE) is not None
    for other in (None, b"another", b""):
        assert await outcome(token, found, other) is None, "also when it was shown before with the right one"
    for each in odd:
        bound = signed(HEADER, json.dumps({**GOOD, "cnf": each}))
        assert await outcome(bound, found, CERTIFICATE) is None, each


async def test_what_is_wrong_before_the_signature_costs_no_check() -> None:
    """Nobody makes a core check signatures with claims that would be refused anyway."""

    def never() -> bool:
        raise AssertionError("a signature would have been checked")

    wrong = [{"exp": NOW_S - 60}, {"aud": "other"}, {"iss": "x"}, {"nbf": NOW_S + 60}, {"sub": ""}, {"cnf": 1}]
    for change in wrong:
        with pytest.raises(NotAuthenticated):
            await verifier().verify(signed(HEADER, json.dumps({**GOOD, **change})), None, NOW_NS, never)
    with pytest.raises(NotAuthenticated, match="unknown key"):
        await verifier().verify(signed(json.dumps({"alg": "ES256", "kid": "x"}), json.dumps(GOOD)), None, NOW_NS, never)


async def test_a_token_that_was_proved_needs_no_check() -> None:
    """Until it expires, or its key is withdrawn; others wait for their turn."""
    found = verifier()
    token = signed(HEADER, json.dumps(GOOD))
    assert await outcome(token, found) is not None
    assert (await found.verify(token, None, NOW_NS, lambda: False)).user == "ann"
    with pytest.raises(TooMany):
        await found.verify(signed(HEADER, json.dumps({**GOOD, "jti": "1"})), None, NOW_NS, lambda: False)
    with pytest.raises(NotAuthenticated, match="expired"):
        await found.verify(token, None, (NOW_S + 700) * SECOND_NS, lambda: False)


async def test_a_token_that_was_proved_is_none_when_its_key_is_gone() -> None:
    clock = ManualClock(NOW_NS)
    keys = key_set(KEY, clock=clock)
    found = verifier(keys)
    token = signed(HEADER, json.dumps({**GOOD, "exp": NOW_S + 10**6}))
    assert await outcome(token, found) is not None
    keys._fetch = key_set(OTHER)._fetch
    clock.advance(301 * SECOND_NS)
    assert await outcome(token, found) is not None, "as far as anybody knows"
    assert keys._reading is not None
    await keys._reading
    assert await outcome(token, found) is None


async def test_memory_for_proved_tokens_is_bounded() -> None:
    found = verifier()
    for number in range(MOST_PROVED + 50):
        assert await outcome(signed(HEADER, json.dumps({**GOOD, "jti": str(number)})), found) is not None
    assert len(found._proved) == MOST_PROVED


@pytest.mark.long
async def test_the_longest_tokens_are_refused_quickly() -> None:
    """Whatever fills the 16 KiB that a token may have."""
    found = verifier()
    fillings = [DEEP, '{"a":' * 2_000, '"' + "\\u0041" * 1_900 + '"', "[" + "1," * 5_000 + "1]", "9" * 4_200, "1e5" * 9]
    for filling in fillings:
        token = signed(HEADER, with_claim("groups", filling), OTHER)
        with paced_time() as took:
            for _ in range(20):
                assert await outcome(token, found) is None
        assert took.seconds < 20 * 0.01, filling[:20]
