"""The public keys of an OIDC issuer: a JWKS from a file or over HTTPS, kept, and read again when it may have changed.

A token signed with a key nobody knows makes the keys be read again, because issuers rotate them; but at most once in
:data:`LEAST_BETWEEN_NS`, so that made-up key IDs cost the issuer nothing. While an issuer does not answer, the keys it
gave last hold for :data:`KEEP_NS`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPRedirectHandler, Request, build_opener

import jwt
from structlog.typing import FilteringBoundLogger

from core.security.errors import SecurityError
from core.service.clock import SECOND_NS, Clock

REFRESH_NS: Final = 300 * SECOND_NS
LEAST_BETWEEN_NS: Final = 10 * SECOND_NS
KEEP_NS: Final = 24 * 3600 * SECOND_NS
FETCH_TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 1 << 20

KEY_TYPES: Final = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "EC", "ES384": "EC", "ES512": "EC", "EdDSA": "OKP",
}  # fmt: skip
"""Signature algorithms with public keys, and the type of key each takes. There is no other way to sign a token."""

_CURVES: Final = {"ES256": ("P-256",), "ES384": ("P-384",), "ES512": ("P-521",), "EdDSA": ("Ed25519", "Ed448")}


class KeySet:
    """Keys by ID. ``source``: a file's path or an ``https://`` address (``http://`` on loopback only)."""

    def __init__(
        self,
        source: str,
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._logger = logger
        self._fetch = fetch or read_source
        self._keys: list[dict[str, Any]] = []
        self._read_ns: int | None = None
        self._tried_ns: int | None = None
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> Any:
        """The key a token with these headers was signed with; ``None``: there is none.

        Without *key_id* there has to be exactly one that fits.
        """
        now_ns = self._clock.now_ns()
        if self._read_ns is None or now_ns - self._read_ns >= REFRESH_NS:
            await self._read()
        found = self._match(key_id, algorithm)
        if found is None:
            await self._read()
            found = self._match(key_id, algorithm)
        return found

    def _match(self, key_id: str | None, algorithm: str) -> Any:
        if self._read_ns is None or self._clock.now_ns() - self._read_ns >= KEEP_NS:
            return None
        fitting = [
            key
            for key in self._keys
            if key["kty"] == KEY_TYPES[algorithm]
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and (algorithm not in _CURVES or key.get("crv") in _CURVES[algorithm])
            and (key_id is None or key.get("kid") == key_id)
        ]
        if len(fitting) != 1:
            return None
        try:
            return jwt.PyJWK(fitting[0], algorithm=algorithm).key
        except jwt.PyJWTError:
            return None

    async def _read(self) -> None:
        """Read the source unless that was tried a moment ago; callers that come meanwhile wait for the same reading."""
        now_ns = self._clock.now_ns()
        if self._reading is None:
            if self._tried_ns is not None and now_ns - self._tried_ns < LEAST_BETWEEN_NS:
                return
            self._tried_ns = now_ns
            self._reading = asyncio.create_task(self._read_now(), name="read signing keys")
        await asyncio.shield(self._reading)

    async def _read_now(self) -> None:
        try:
            self._keys = parse_keys(await asyncio.to_thread(self._fetch, self._source))
            self._read_ns = self._clock.now_ns()
        except (OSError, ValueError) as error:
            self._logger.warning("signing keys not read, the former ones hold", source=self._source, cause=str(error))
        finally:
            self._reading = None


def parse_keys(raw: bytes) -> list[dict[str, Any]]:
    """The public signing keys of a JWKS document. Raises :class:`SecurityError`."""
    try:
        document = json.loads(raw)
        keys = document["keys"]
        if not isinstance(keys, list):
            raise TypeError("keys is no list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SecurityError(f"not a JWKS document: {type(error).__name__}") from error
    public = set(KEY_TYPES.values())
    return [key for key in keys if isinstance(key, dict) and key.get("kty") in public and "d" not in key]


class _NoRedirect(HTTPRedirectHandler):
    """A redirect could lead from HTTPS to anywhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def read_source(source: str) -> bytes:
    """The document at *source*, a file or an address. Raises OSError, or ValueError when it is too long."""
    if source.startswith(("https://", "http://")):
        request = Request(source, headers={"Accept": "application/json"})  # noqa: S310 - the scheme was checked
        with build_opener(_NoRedirect).open(request, timeout=FETCH_TIMEOUT_S) as answer:
            raw: bytes = answer.read(MOST_BYTES + 1)
    else:
        with Path(source).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES} bytes")
    return raw
