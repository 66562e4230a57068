"""Verifies bearer tokens that an OIDC issuer has signed (RFC 7519, RFC 9068).

Times are compared with the clock of this process, and ``exp`` is required: a token without ``jti`` can be replayed, but
only until then. A token that is bound to a certificate (``cnf``, RFC 8705) is only accepted with that certificate.

The claims of a token are checked strictly, and before its signature, which costs more than all other checks. A verified
token is remembered, and not checked again while its key and its time are valid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kornel.core.security.identity import Identity, fingerprint
from kornel.core.security.jwks import KEY_TYPES, KeySet, SigningKey
from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.service.wire.status_codes import NotAuthenticated, TooMany

LONGEST: Final = 16 * 1024
MOST_GROUPS: Final = 1_000
MOST_PROVED: Final = 1_000
"""The most tokens that are remembered; the one that has been unused for longest is dropped first."""
MOST_OPENED: Final = 1_000
"""The most lists and objects of a header or of the claims, counted by their opening brackets, in texts as well. How
deep a text the parser takes depends on the version of Python, and whoever reads the token next may take less."""
LATEST_S: Final = 253_402_300_800
"""The latest time in seconds: the year 10,000. Later values are not accepted."""

_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
_STRANGE_HEADERS: Final = ("crit", "zip", "b64", "enc")
"""The headers by which a token asks to be understood in another way (RFC 7515, 7516, 7797)."""


class SignatureWrong(NotAuthenticated):
    """The token looked valid until its signature was checked, which is the most expensive check."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The settings of an OIDC issuer. ``keys``: the file or address of the JWKS. ``skew_ns``: how far the clocks may
    differ.

    ``revoked``: the IDs (``jti``) of tokens that are no longer accepted; if there are any, every token must have an ID.
    """

    issuer: str
    audiences: tuple[str, ...]
    keys: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    user_claim: str = "sub"
    groups_claim: str = "groups"
    skew_ns: int = 30 * SECOND_NS
    revoked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Claims:
    """The checked claims of a token. ``bound``: the certificate in its ``cnf``; ``None``: it has none."""

    identity: Identity
    expires_ns: int
    from_ns: tuple[tuple[str, int], ...]
    bound: str | None


class OidcVerifier:
    """Verifies the tokens of one issuer."""

    def __init__(self, settings: OidcSettings, keys: KeySet) -> None:
        import jwt  # noqa: PLC0415 - most cores have no issuer, and it takes long to import

        self._library: Final = jwt
        self.settings: Final = settings
        self._keys = keys
        self._proved: OrderedDict[bytes, tuple[_Claims, SigningKey]] = OrderedDict()
        """The verified tokens by digest, each with its claims and the key of its signature."""

    def still_holds(self, identity: Identity) -> bool:
        """Tells whether the proof of *identity*, given by a token of this issuer, is still valid."""
        issuer, _, token_id = identity.proof.partition(" ")
        return (
            issuer == self.settings.issuer
            and token_id not in self.settings.revoked
            and self._keys.publishes_key(identity.key)
        )

    async def verify(
        self, token: str, certificate: bytes | None, now_ns: int, may_check: Callable[[], bool] = lambda: True
    ) -> Identity:
        """Returns the identity in *token*, which came over a connection with client *certificate*.

        *may_check* tells whether a signature may be checked now; a token that was verified before needs no check.
        Raises :class:`NotAuthenticated` (for a wrong signature, its subclass :class:`SignatureWrong`) or
        :class:`TooMany`.
        """
        if len(token) > LONGEST:
            raise NotAuthenticated("the token is too long")
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._find_remembered(digest)
        if claims is not None:
            self._check_time(claims, now_ns)
        else:
            claims = await self._prove_identity(token, digest, now_ns, may_check)
        _check_binding(claims.bound, certificate)
        return claims.identity

    def _find_remembered(self, digest: bytes) -> _Claims | None:
        found = self._proved.get(digest)
        if found is None:
            return None
        claims, key = found
        if not self._keys.holds_key(key):
            del self._proved[digest]
            return None
        self._proved.move_to_end(digest)
        return claims

    async def _prove_identity(self, token: str, digest: bytes, now_ns: int, may_check: Callable[[], bool]) -> _Claims:
        parts = token.split(".")
        if len(parts) != 3 or not all(map(_BASE64.fullmatch, parts)):
            raise NotAuthenticated("not a token this core knows")
        algorithm, key_id = self._read_headers(_object_of(parts[0]))
        claims = self._check_claims(_object_of(parts[1]))
        self._check_time(claims, now_ns)
        key = await self._keys.find_key(key_id, algorithm)
        if key is None:
            raise NotAuthenticated("the token is signed with an unknown key")
        if not may_check():
            raise TooMany("too many signatures that did not hold, try again")
        self._check_signature(token, algorithm, key)
        claims = replace(claims, identity=replace(claims.identity, key=key))
        self._proved[digest] = (claims, key)
        if len(self._proved) > MOST_PROVED:
            self._proved.popitem(last=False)
        return claims

    def _read_headers(self, headers: Mapping[str, Any]) -> tuple[str, str | None]:
        """Returns the algorithm and the ID of the key."""
        algorithm, key_id = headers.get("alg"), headers.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self.settings.algorithms or algorithm not in KEY_TYPES:
            raise NotAuthenticated("the token is signed in a way that is not allowed here")
        if any(name in headers for name in _STRANGE_HEADERS) or not (key_id is None or isinstance(key_id, str)):
            raise NotAuthenticated("the token has headers that this core does not know")
        return algorithm, key_id

    def _check_claims(self, claims: Mapping[str, Any]) -> _Claims:
        """Returns the claims if all are valid and the token is meant for this core. The signature is not checked
        yet."""
        settings = self.settings
        for name in ("iss", "aud", "exp"):
            if name not in claims:
                raise NotAuthenticated(f"the token has no {name} claim")
        if claims["iss"] != settings.issuer:
            raise NotAuthenticated("the token is from another issuer")
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if not any(isinstance(each, str) and each in settings.audiences for each in audiences):
            raise NotAuthenticated("the token is for another audience")
        token_id = claims.get("jti")
        if settings.revoked and (not _is_text(token_id) or token_id in settings.revoked):
            raise NotAuthenticated("the token was revoked, or has no ID (jti) to tell")
        user = claims.get(settings.user_claim)
        if not _is_text(user) or not user:
            raise NotAuthenticated(f"the token has no {settings.user_claim} claim")
        groups = claims.get(settings.groups_claim, [])
        groups = groups if isinstance(groups, list) else [groups]
        if not all(map(_is_text, groups)):
            raise NotAuthenticated(f"the {settings.groups_claim} claim is no list of texts")
        groups = groups[:MOST_GROUPS]
        expires_ns = _time_of(claims, "exp")
        return _Claims(
            identity=Identity(
                principals=(f"oidc:{user}", *(f"oidc-group:{group}" for group in groups)),
                user=user,
                groups=tuple(groups),
                expires_ns=expires_ns + settings.skew_ns,
                proof=proof_of(settings.issuer, token_id if _is_text(token_id) else None),
            ),
            expires_ns=expires_ns,
            from_ns=tuple((name, _time_of(claims, name)) for name in ("nbf", "iat") if name in claims),
            bound=_bound_to(claims),
        )

    def _check_time(self, claims: _Claims, now_ns: int) -> None:
        if now_ns >= claims.expires_ns + self.settings.skew_ns:
            raise NotAuthenticated("the token has expired")
        for name, from_ns in claims.from_ns:
            if now_ns < from_ns - self.settings.skew_ns:
                raise NotAuthenticated(f"the token is not valid yet ({name})")

    def _check_signature(self, token: str, algorithm: str, key: SigningKey) -> None:
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["iss", "aud", "exp"]}
        try:
            self._library.decode(
                token,
                key.made_for(algorithm),
                algorithms=[algorithm],
                audience=list(self.settings.audiences),
                issuer=self.settings.issuer,
                options=options,
            )
        except Exception as error:
            # Any other error of the library also means that the token is not valid.
            raise SignatureWrong("the token's signature or form is not right") from error


def proof_of(issuer: str, token_id: object) -> str:
    """Returns the name of the proof for an identity from a token of *issuer*."""
    return f"{issuer} {token_id}" if isinstance(token_id, str) else issuer


def _object_of(part: str) -> Mapping[str, Any]:
    """Returns the JSON object in a part of a token. It is strict: anything that two parsers could read differently is
    refused."""
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        if raw.count(b"[") + raw.count(b"{") > MOST_OPENED:
            raise ValueError("too many lists and objects")
        found = json.loads(raw.decode(), object_pairs_hook=_once_each, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise NotAuthenticated("not a token this core knows") from error
    if not isinstance(found, dict):
        raise NotAuthenticated("not a token this core knows")
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _is_text(value: object) -> bool:
    """Tells whether *value* is text that can be written anywhere: halves of surrogate pairs cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _time_of(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    # It is compared before anything is computed with it, because it may be infinite or have thousands of digits.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LATEST_S <= value <= LATEST_S:
        raise NotAuthenticated(f"the {name} claim is no time")
    return int(value * SECOND_NS)


def _bound_to(claims: Mapping[str, Any]) -> str | None:
    if "cnf" not in claims:
        return None
    bound = claims["cnf"]
    wanted = bound.get("x5t#S256") if isinstance(bound, dict) else None
    if not isinstance(wanted, str) or not wanted.isascii():
        raise NotAuthenticated("the token is bound to something else than a certificate")
    return wanted


def _check_binding(wanted: str | None, certificate: bytes | None) -> None:
    if wanted is None:
        return
    if certificate is None:
        raise NotAuthenticated("the token is bound to a client certificate, and there is none")
    mine = base64.urlsafe_b64encode(fingerprint(certificate)).rstrip(b"=")
    if not hmac.compare_digest(mine, wanted.encode()):
        raise NotAuthenticated("the token is bound to another client certificate")
