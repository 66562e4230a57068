"""What is not shown to anybody: values that their names give away as secrets. Whoever shows settings asks here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "[hidden]"

_WORDS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "private",
    "authorization",
    "apikey",
    "accesskey",
)
_LAST: Final = ("key", "keys", "pwd", "pin")
"""Secrets only as the last of several words: a key by itself names an ask."""

_SEPARATORS: Final = str.maketrans("-_/:@", ".....")


def names_secret(name: str) -> bool:
    """Whether the value of a setting called *name* is likely to be a secret."""
    lower = name.lower()
    if any(word in lower for word in _WORDS):
        return True
    before, _, last = lower.translate(_SEPARATORS).rpartition(".")
    if last in _LAST:
        return bool(before)
    return name.endswith(("Key", "Keys")) and len(name) > len("Keys")


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """*settings*, with what must not be shown replaced."""
    return {name: HIDDEN if text and names_secret(name) else text for name, text in settings.items()}


def text_without_secrets(text: str) -> str:
    """YAML *text*, with the values of such keys replaced where they stand on the key's own line."""
    lower = text.lower()
    if not any(word in lower for word in (*_WORDS, *_LAST)):
        return text
    return "".join(map(_line_without_secrets, text.splitlines(keepends=True)))


def _line_without_secrets(line: str) -> str:
    first, *others = line.split(": ")
    shown, before = [first], first
    for part in others:
        words = before.replace("{", " ").replace(",", " ").rsplit(maxsplit=1)
        secret = bool(words) and names_secret(words[-1].strip("'\""))
        shown.append(_without_value(part) if secret and part.strip() else part)
        before = part
    return ": ".join(shown)


def _without_value(part: str) -> str:
    """*part* without the value that it begins with."""
    end = min((at for at in map(part.find, ",}\r\n") if at >= 0), default=len(part))
    return HIDDEN + part[end:]
