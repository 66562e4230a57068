"""Reads the public keys of an OIDC issuer: a JWKS from a file or over HTTPS, which is kept, and read again when it may
have changed.

A call with a token that was signed with a known key does not wait, even if old keys are being read again. For a token
with an unknown key, the keys are read again, because issuers rotate them, and the call waits a moment; but at most once
in :data:`LEAST_BETWEEN_NS`, so that invented key IDs cost the issuer nothing. There is one reading at a time, and the
issuer has :data:`FETCH_TIMEOUT_S` for its whole answer. While it does not answer, its last keys are valid for
:data:`KEEP_NS`. A key that an answer no longer has is gone.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from structlog.typing import FilteringBoundLogger

from kornel.core.security.errors import SecurityError
from kornel.core.service.machine.clock import SECOND_NS, Clock

REFRESH_NS: Final = 300 * SECOND_NS
LEAST_BETWEEN_NS: Final = 10 * SECOND_NS
KEEP_NS: Final = 24 * 3600 * SECOND_NS
FETCH_TIMEOUT_S: Final = 5.0
"""The time for the whole answer, in however many pieces it comes."""
UNKNOWN_WAIT_S: Final = 2.0
"""The longest time that a call waits for a key that is not known."""
MOST_WAITING: Final = 64
"""The most calls that wait for unknown keys; others are refused at once."""
MOST_BYTES: Final = 1 << 20
MOST_KEYS: Final = 1_000
LONGEST_NUMBER: Final = 2_800
"""The most characters of an RSA modulus: 16,384 bits. The longer it is, the longer it takes to check a signature."""

KEY_TYPES: Final = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "EC", "ES384": "EC", "ES512": "EC", "EdDSA": "OKP",
}  # fmt: skip
"""Signature algorithms with public keys, and the type of key for each. Tokens signed in any other way are refused."""

_CURVES: Final = {"ES256": ("P-256",), "ES384": ("P-384",), "ES512": ("P-521",), "EdDSA": ("Ed25519", "Ed448")}


class SigningKey:
    """A key as published by the issuer. An unchanged key stays the same object from one reading to the next."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        self._made: dict[str, Any] = {}

    def fits_headers(self, key_id: str | None, algorithm: str) -> bool:
        """Tells whether a token with these headers may be signed with this key."""
        said = self._said
        return bool(
            said["kty"] == KEY_TYPES[algorithm]
            and said.get("alg", algorithm) == algorithm
            and said.get("use", "sig") == "sig"
            and (algorithm not in _CURVES or said.get("crv") in _CURVES[algorithm])
            and (key_id is None or said.get("kid") == key_id)
        )

    def made_for(self, algorithm: str) -> Any:
        """Returns the key in the form that the library needs; ``None``: it is not a valid key."""
        if algorithm not in self._made:
            import jwt  # noqa: PLC0415 - most cores have no issuer, and it takes long to import

            try:
                self._made[algorithm] = jwt.PyJWK(self._said, algorithm=algorithm).key
            except Exception:  # noqa: BLE001 - an issuer may publish anything
                self._made[algorithm] = None
        return self._made[algorithm]


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
        self._keys: dict[str, SigningKey] = {}
        """The keys, by the issuer's description of each."""
        self._current: frozenset[SigningKey] = frozenset()
        self._read_ns: int | None = None
        self._tried_ns: int | None = None
        self._reading: asyncio.Task[None] | None = None
        self._fetching = False
        """Tells whether a thread waits for the issuer, as one does that was given up, too."""
        self._waiting = 0
        self._again = False
        """Tells whether the keys have to be read once more, because they may have changed during the reading."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a key is gone."""

    @property
    def file(self) -> Path | None:
        """Returns the file with the keys, or ``None`` if they are read from an address."""
        return Path(self._source) if "://" not in self._source else None

    def read_again(self) -> None:
        """Reads the keys at once, if they were read before."""
        if self._tried_ns is None:
            return
        self._tried_ns = None
        if self._begin_reading() is None or self._fetching:
            self._again = True

    async def find_key(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        """Return the key with which a token with these headers was signed; ``None``: there is none.

        Without *key_id*, exactly one key has to fit. Waits a moment for an unknown key.
        """
        self.refresh_old()
        found = self._match_key(key_id, algorithm)
        if found is None and self._waiting < MOST_WAITING:
            reading = self._begin_reading()
            if reading is not None:
                self._waiting += 1
                try:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(reading), UNKNOWN_WAIT_S)
                finally:
                    self._waiting -= 1
                found = self._match_key(key_id, algorithm)
        return found

    def holds_key(self, key: SigningKey) -> bool:
        """Return whether the issuer still signs with *key*, which was found before. It does not wait."""
        self.refresh_old()
        return key in self._current and not self._has_lapsed()

    def publishes_key(self, key: object) -> bool:
        """Return whether *key* is among the keys that were read last."""
        return key in self._current

    def refresh_old(self) -> None:
        """Begins to read the keys again if they are old."""
        if self._read_ns is not None and self._clock.now_ns() - self._read_ns >= REFRESH_NS:
            self._begin_reading()

    def _has_lapsed(self) -> bool:
        return self._read_ns is None or self._clock.now_ns() - self._read_ns >= KEEP_NS

    def _match_key(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        if self._has_lapsed():
            return None
        fitting = [key for key in self._keys.values() if key.fits_headers(key_id, algorithm)]
        if len(fitting) != 1 or fitting[0].made_for(algorithm) is None:
            return None
        return fitting[0]

    def _begin_reading(self) -> asyncio.Task[None] | None:
        """Return the reading that is under way, or begin one; ``None``: the last one was too recent."""
        now_ns = self._clock.now_ns()
        if self._reading is None:
            if self._tried_ns is not None and now_ns - self._tried_ns < LEAST_BETWEEN_NS:
                return None
            if self._fetching:
                return None
            self._tried_ns = now_ns
            self._reading = asyncio.create_task(self._read_now(), name="read signing keys")
        return self._reading

    async def _read_now(self) -> None:
        try:
            said = parse_keys(await self._fetch_in_thread())
            by_text = {json.dumps(key, sort_keys=True): key for key in said}
            self._keys = {text: self._keys.get(text) or SigningKey(key) for text, key in by_text.items()}
            before, self._current = self._current, frozenset(self._keys.values())
            self._read_ns = self._clock.now_ns()
            if before - self._current:
                self.on_change()
        except Exception as error:  # noqa: BLE001 - an issuer may answer anything
            self._logger.warning(
                "signing keys cannot be read; the former ones stay in use",
                source=self._source,
                cause=f"{type(error).__name__}: {error}"[:300],
            )
        finally:
            self._reading = None
            self._go_on()

    def _go_on(self) -> None:
        """Begins another reading if one was asked for during the last one."""
        if self._again and self._reading is None and not self._fetching:
            self._again, self._tried_ns = False, None
            self._begin_reading()

    async def _fetch_in_thread(self) -> bytes:
        """Returns the document, read in a thread for which the process does not wait at its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()

        def settle(raw: bytes, error: Exception | None) -> None:
            self._fetching = False
            self._go_on()
            if not done.done():
                if error is None:
                    done.set_result(raw)
                else:
                    done.set_exception(error)

        def run() -> None:
            raw, failure = b"", None
            try:
                raw = self._fetch(self._source)
            except Exception as error:  # noqa: BLE001 - passed on to the waiting caller
                failure = error
            with suppress(RuntimeError):  # The event loop was closed in the meantime.
                loop.call_soon_threadsafe(settle, raw, failure)

        self._fetching = True
        threading.Thread(target=run, name="signing keys", daemon=True).start()
        try:
            return await asyncio.wait_for(done, FETCH_TIMEOUT_S)
        except TimeoutError as late:
            raise TimeoutError("the answer took too long") from late


def parse_keys(raw: bytes) -> list[dict[str, Any]]:
    """Returns the public signing keys of a JWKS document. Raises :class:`SecurityError`."""
    try:
        document = json.loads(raw)
        keys = document["keys"]
        if not isinstance(keys, list):
            raise TypeError("keys is no list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SecurityError(f"not a JWKS document: {type(error).__name__}") from error
    if len(keys) > MOST_KEYS:
        raise SecurityError(f"more than {MOST_KEYS} keys")
    return [key for key in keys if isinstance(key, dict) and _is_public(key)]


def _is_public(key: dict[str, Any]) -> bool:
    modulus = key.get("n", "")
    return (
        isinstance(key.get("kty"), str)
        and key["kty"] in KEY_TYPES.values()
        and isinstance(modulus, str)
        and len(modulus) <= LONGEST_NUMBER
        and "d" not in key
    )


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, because they could lead from HTTPS to anywhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _read_promptly(answer: HTTPResponse) -> bytes:
    """Returns the body of *answer*. The time-out of a socket begins again with each byte."""
    deadline_s, parts, size = time.monotonic() + FETCH_TIMEOUT_S, [], 0
    while size <= MOST_BYTES and (part := answer.read1(65_536)):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline_s:
            raise TimeoutError("the answer took too long")
    return b"".join(parts)


def read_source(source: str) -> bytes:
    """Returns the document at *source*, a file or an address. Raises OSError, or ValueError when it is too long."""
    if source.startswith(("https://", "http://")):
        request = Request(source, headers={"Accept": "application/json"})  # noqa: S310 - the scheme was checked
        try:
            with build_opener(_NoRedirect).open(request, timeout=FETCH_TIMEOUT_S) as answer:
                raw = _read_promptly(answer)
        except HTTPError as error:
            error.close()
            raise
    else:
        with Path(source).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES} bytes")
    return raw
