"""Bearer tokens that an OIDC issuer signed (RFC 7519, RFC 9068), and what makes one good.

Time is this process's clock, and ``exp`` is demanded: a token without ``jti`` can be replayed, but only until then. One
that says whose certificate it belongs to (``cnf``, RFC 8705) is worth nothing to anybody else.
"""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from core.security.identity import Identity, fingerprint
from core.security.jwks import KEY_TYPES, KeySet
from core.service.clock import SECOND_NS
from core.service.status_codes import NotAuthenticated

LONGEST: Final = 16 * 1024
MOST_GROUPS: Final = 1_000


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """``keys``: file or address of the JWKS. ``skew_ns``: how far the clocks may be apart.

    ``revoked``: IDs (``jti``) of tokens that are no longer good; with any, a token must have an ID.
    """

    issuer: str
    audiences: tuple[str, ...]
    keys: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    user_claim: str = "sub"
    groups_claim: str = "groups"
    skew_ns: int = 30 * SECOND_NS
    revoked: frozenset[str] = frozenset()


class OidcVerifier:
    """One issuer."""

    def __init__(self, settings: OidcSettings, keys: KeySet) -> None:
        self._settings = settings
        self._keys = keys

    def holds(self, proof: str) -> bool:
        """Whether what a token of this issuer proved, *proof*, was not withdrawn."""
        issuer, _, token_id = proof.partition(" ")
        return issuer == self._settings.issuer and token_id not in self._settings.revoked

    async def verify(self, token: str, certificate: bytes | None, now_ns: int) -> Identity:
        """Whose token it is, shown over a connection with client *certificate*. Raises :class:`NotAuthenticated`."""
        settings = self._settings
        claims = await self._claims(token)
        expires_ns = _time_of(claims, "exp")
        if expires_ns is None:
            raise NotAuthenticated("the token has no exp claim")
        if now_ns >= expires_ns + settings.skew_ns:
            raise NotAuthenticated("the token has expired")
        for name in ("nbf", "iat"):
            from_ns = _time_of(claims, name)
            if from_ns is not None and now_ns < from_ns - settings.skew_ns:
                raise NotAuthenticated(f"the token is not valid yet ({name})")
        _check_binding(claims, certificate)
        if settings.revoked:
            token_id = claims.get("jti")
            if not isinstance(token_id, str) or token_id in settings.revoked:
                raise NotAuthenticated("the token was revoked, or has no ID (jti) to tell")
        user = claims.get(settings.user_claim)
        if not isinstance(user, str) or not user:
            raise NotAuthenticated(f"the token has no {settings.user_claim} claim")
        groups = claims.get(settings.groups_claim, [])
        groups = [groups] if isinstance(groups, str) else groups
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise NotAuthenticated(f"the {settings.groups_claim} claim is no list of texts")
        groups = groups[:MOST_GROUPS]
        return Identity(
            principals=(f"oidc:{user}", *(f"oidc-group:{group}" for group in groups)),
            user=user,
            groups=tuple(groups),
            expires_ns=expires_ns + settings.skew_ns,
            proof=proof_of(settings.issuer, claims.get("jti")),
        )

    async def _claims(self, token: str) -> Mapping[str, Any]:
        """Claims of a token that the issuer signed for us; its times are not judged here."""
        if len(token) > LONGEST:
            raise NotAuthenticated("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise NotAuthenticated("not a token this core knows") from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms or algorithm not in KEY_TYPES:
            raise NotAuthenticated("the token is signed in a way that is not allowed here")
        if "crit" in header or not (key_id is None or isinstance(key_id, str)):
            raise NotAuthenticated("the token has headers that this core does not know")
        key = await self._keys.find(key_id, algorithm)
        if key is None:
            raise NotAuthenticated("the token is signed with an unknown key")
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["iss", "aud", "exp"]}
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=list(self._settings.audiences),
                issuer=self._settings.issuer,
                options=options,
            )
        except jwt.InvalidAudienceError as error:
            raise NotAuthenticated("the token is for another audience") from error
        except jwt.InvalidIssuerError as error:
            raise NotAuthenticated("the token is from another issuer") from error
        except jwt.MissingRequiredClaimError as error:
            raise NotAuthenticated(f"the token has no {error.claim} claim") from error
        except jwt.PyJWTError as error:
            raise NotAuthenticated("the token's signature or form is not right") from error
        return claims


def proof_of(issuer: str, token_id: object) -> str:
    """What an identity from a token of *issuer* rests on."""
    return f"{issuer} {token_id}" if isinstance(token_id, str) else issuer


def _time_of(claims: Mapping[str, Any], name: str) -> int | None:
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotAuthenticated(f"the {name} claim is no time")
    return int(value * SECOND_NS)


def _check_binding(claims: Mapping[str, Any], certificate: bytes | None) -> None:
    if "cnf" not in claims:
        return
    bound = claims["cnf"]
    wanted = bound.get("x5t#S256") if isinstance(bound, dict) else None
    if not isinstance(wanted, str):
        raise NotAuthenticated("the token is bound to something else than a certificate")
    if certificate is None:
        raise NotAuthenticated("the token is bound to a client certificate, and there is none")
    mine = base64.urlsafe_b64encode(fingerprint(certificate)).rstrip(b"=")
    if not hmac.compare_digest(mine, wanted.encode()):
        raise NotAuthenticated("the token is bound to another client certificate")
