"""Reads tokens for small sites: a file with the SHA-256 digests of tokens that ``kornel security token`` made.

A digest without salt or stretching is enough, because tokens are 256 random bits, which cannot be guessed. That would
not hold for passwords, so a text that is too short to be such a token is refused without a look at its digest.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kornel.core.config.text.fields import Field
from kornel.core.config.text.problems import ProblemLog
from kornel.core.config.text.yaml_reader import read, shorten_text
from kornel.core.security.identity import Identity
from kornel.core.service.machine.clock import SECOND_NS

PREFIX: Final = "krn_"
SHORTEST: Final = len(PREFIX) + 43

_DIGEST: Final = re.compile("[0-9a-f]{64}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token of the file with static tokens. ``digest``: SHA-256 of the token, hexadecimal. ``expires_ns``: ``None``:
    never."""

    name: str
    digest: str
    groups: tuple[str, ...] = ()
    expires_ns: int | None = None


class StaticTokens:
    """The tokens in one version of the file."""

    def __init__(self, tokens: Sequence[StaticToken] = ()) -> None:
        self._by_digest = {token.digest: token for token in tokens}

    def find_identity(self, presented: str, now_ns: int) -> Identity | None:
        """Returns the identity of the token *presented*; ``None``: it is unknown or has expired.

        The time that this takes reveals nothing about tokens, because the search is by digest, which callers cannot
        choose. It does not depend on the number of tokens.
        """
        if len(presented) < SHORTEST:
            return None
        found = self._by_digest.get(hashlib.sha256(presented.encode()).hexdigest())
        if found is None or (found.expires_ns is not None and found.expires_ns <= now_ns):
            return None
        return Identity(
            principals=(f"token:{found.name}", *(f"token-group:{group}" for group in found.groups)),
            user=found.name,
            groups=found.groups,
            expires_ns=found.expires_ns,
            proof=found.digest,
        )

    def still_holds(self, proof: str) -> bool:
        """Tells whether the token with the digest *proof* is still listed."""
        return proof in self._by_digest


def new_token() -> str:
    """Returns a new token, which cannot be guessed."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Returns the entry of *token* in the file."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(text: str) -> StaticTokens:
    """Returns the tokens in *text*. Raises :class:`kornel.core.config.text.problems.ConfigError` with all problems and
    their places."""
    log = ProblemLog()
    top = Field(read(text, log).root, 1, 1, log).mapping(("tokens",))
    tokens: list[StaticToken] = []
    names: set[str] = set()
    for item in top["tokens"].items():
        fields = item.mapping(("name", "sha256", "groups", "expires"))
        name, digest = fields["name"].text(), fields["sha256"].text()
        if _NAME.fullmatch(name) is None:
            fields["name"].error(f"{shorten_text(name)} is no name", "letters, digits and _ . @ -")
        elif name in names:
            fields["name"].error(f"name {shorten_text(name)} is given twice", "each name once")
        names.add(name)
        if _DIGEST.fullmatch(digest) is None:
            # It is never quoted, because it may be a token that was put here by mistake.
            fields["sha256"].error(
                "this is no SHA-256 digest", "64 hexadecimal digits, as `kornel security token` prints"
            )
        tokens.append(
            StaticToken(
                name, digest, tuple(group for group, _ in fields["groups"].texts()), _read_time(fields["expires"])
            )
        )
    log.raise_if_errors()
    return StaticTokens(tokens)


def _read_time(field: Field) -> int | None:
    if not field.given:
        return None
    try:
        at = datetime.fromisoformat(field.text())
        if at.tzinfo is not None:
            return int(at.timestamp()) * SECOND_NS
    except (ValueError, OverflowError):
        pass
    field.error(f"{shorten_text(field.text())} is no time", "for instance 2030-01-31T00:00:00Z, with its zone")
    return None
