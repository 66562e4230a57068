"""Hides secrets among settings. All code that shows settings uses it.

A setting is a secret by its name. So is a part of a value that looks like one: a user and password in an address, a
token, a private key. The time taken is proportional to the length of the text, whatever it contains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "[hidden]"

_SECRET_WORD: Final = re.compile(
    "password|passwd|passphrase|passcode|secret|token|credential|private|authorization|apikey|accesskey|client[-_.]?key"
)
_LAST: Final = ("key", "keys", "pass", "pin")
"""Words that mean a secret only as the last of several words: a key by itself names an ask."""

_ENDINGS: Final = ("Key", "Keys", "Pass", "Pin")
"""The same words where capitals separate words, as in "bindPwd"."""

_ALWAYS: Final = ("pwd", "pw")
"""Words that mean a secret even alone or without anything that separates them, as in "rootpw"."""

_SEPARATORS: Final = str.maketrans("-_/:@", ".....")

_SECRET_VALUE: Final = re.compile(
    r"krn_[A-Za-z0-9_-]{43}"
    r"|(?<=bearer )[^\s\"']+"
    r"|(?<=://)[^/\s\"<>]+(?=@)"
    r"|(?<=://)[^/\s\"<>:@]{0,128}:(?![0-9]{1,5}/)[^\s\"<>]{0,256}(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""A pattern of tokens of the core, other bearer tokens, a user and password in an address, and private keys."""

_SECRET_ASSIGNMENT: Final = re.compile(
    r"((?:password|passwd|passphrase|passcode|pwd|_pass|secret|token|credential|api.?key|access.?key|account.?key"
    r"|private.?key|client.?key|authorization)[a-z0-9_.-]{0,24}[ \t]{0,8}=>?[ \t]{0,8})"
    r"(?:\\{0,4}\"[^\"\r\n]*\"|'[^'\r\n]*'|[\"']?[^\s&;,\"']+)",
    re.IGNORECASE,
)
"""A pattern of secrets in a list of words, an address or the options of a login module."""

# Text that only begins like a JWT is matched as a whole too, because a search that starts again within it would read it
# many times.
_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]*)?", re.IGNORECASE)

# The repetition of a text's characters is possessive. An ordinary one would keep 150 bytes for each of them.
_SECRET_ENTRY: Final = re.compile(
    r"((?:password|passwd|passphrase|passcode|pwd|_pass|secret|token|credential|api.?key|access.?key|account.?key"
    r"|private.?key|client.?key|authorization)[a-z0-9_.-]{0,24}"
    r"[\\\"']{0,4}[ \t]{0,8}:(?:\s{1,8}(?=\")|[ \t]{0,8})(?:basic |bearer )?)"
    r"(?:\[[^\]]*\]?|\{[^}]*\}?|\"(?:[^\"\\]++|\\.)*+\"?|\\{1,4}\"[^\"]*\"?|'[^']*'?|[^\s&;,\"'}\]\\]+)",
    re.IGNORECASE | re.DOTALL,
)
"""A pattern of entries whose name is a secret, in a value that is a document of its own: JSON, YAML, headers."""

_SIGNS: Final = ("krn_", "bearer ", "://", "=")
_SIGNS_OF_BLOCKS: Final = ("private key", "eyj")
"""Words in lower case, one of which occurs in every text with secret values. Looking for these first takes a tenth of
the work.
"""

_AMOUNTS: Final = frozenset(("resources", "guaranteed", "max", "maxresources", "lost", "resourceweights"))
"""The keys of a configuration below which names are resource types."""
_AMOUNT: Final = re.compile(r"[ \t]*(['\"]?)[0-9]+(?:\.[0-9]+)?[ \t]*[A-Za-z]{0,2}\1[ \t]*(?=[,}\r\n]|\Z|[ \t]#)")

_COLON: Final = re.compile(r":[ \t]+|(?<=[\"']):|:(?=[\r\n])|:\Z")
_QUOTED: Final = re.compile(r"'[^']*(?:''[^']*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)
_END_IN_FLOW: Final = re.compile(r"[,}\]\r\n]")
_END_OF_LINE: Final = re.compile(r"[\r\n]")


def names_secret(name: str) -> bool:
    """Tells whether the value of a setting called *name* is likely to be a secret."""
    lower = name.lower()
    if _SECRET_WORD.search(lower):
        return True
    if lower.endswith(_ALWAYS):
        return True
    before, _, last = lower.translate(_SEPARATORS).rpartition(".")
    if last in _LAST:
        return bool(before)
    return name.endswith(_ENDINGS) and len(name) > len("Keys")


def hide_secret_values(text: str) -> str:
    """Returns *text* with everything replaced that looks like a secret whatever its name is."""
    lower = text.lower()
    if not any(sign in lower for sign in (*_SIGNS, *_SIGNS_OF_BLOCKS)):
        return text
    text = _JWT.sub(lambda found: HIDDEN if found[1] else found[0], _SECRET_VALUE.sub(HIDDEN, text))
    return _SECRET_ASSIGNMENT.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def _hide_secret_entries(text: str) -> str:
    """Returns *text*, the value of a setting, with everything hidden that :func:`hide_secret_values` hides, and the
    values of secret entries if it is a document of its own."""
    if ":" in text:
        if "\n" in text:
            text = text_without_secrets(text)
        text = _SECRET_ENTRY.sub(rf"\1{HIDDEN}", text)
    return hide_secret_values(text)


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns *settings*, with all secrets replaced."""
    return {
        hide_secret_values(name): HIDDEN if text and names_secret(name) else _hide_secret_entries(text)
        for name, text in settings.items()
    }


def value_without_secrets(name: str, text: str) -> str:
    """Returns *text*, the value called *name* in JSON that a resource manager wrote about itself, without secrets. An
    element of a list has no name.

    Of names, only words that always mean secrets count, so "allocationKey" is not a secret.
    """
    return HIDDEN if text and _SECRET_WORD.search(name.lower()) else _hide_secret_entries(text)


def text_without_secrets(text: str) -> str:
    """Returns the YAML *text* with the values of secret keys replaced, and everything that looks like a secret.

    Amounts of resources stay, whatever the names of their types: otherwise people who edit the text and apply it would
    lose them. The number of lines stays the same: the further lines of a secret become empty.
    """
    text = hide_secret_values(text)
    lower = text.lower()
    if not (_SECRET_WORD.search(lower) or any(word in lower for word in (*_LAST, *_ALWAYS))):
        return text
    shown: list[str] = []
    within: int | None = None
    """The column of the secret key whose value continues; ``None``: there is none."""
    amounts: int | None = None
    """The column of the key below which there are amounts; ``None``: there is none."""
    for line in text.splitlines(keepends=True):
        content = line.strip()
        if within is not None and (not content or _column_of(line, " ") > within):
            shown.append(line[len(line.rstrip("\r\n")) :])
            continue
        column = _column_of(line, " -")
        if content and amounts is not None and column <= amounts:
            amounts = None
        hidden, is_secret = _line_without_secrets(line, in_amounts=amounts is not None)
        shown.append(hidden)
        within = column if is_secret else None
        if amounts is None and line[column:].partition(":")[0].strip("'\"") in _AMOUNTS:
            amounts = column
    return "".join(shown)


def _column_of(line: str, passed_over: str) -> int:
    return len(line) - len(line.lstrip(passed_over))


def _line_without_secrets(line: str, *, in_amounts: bool) -> tuple[str, bool]:
    """Returns *line* with its secrets replaced, and whether the last key on it is one: its value may go on below.

    *in_amounts*: it stands below a key of amounts, which stay.
    """
    shown: list[str] = []
    done = 0
    in_flow = last_is_secret = False
    depth = 0
    amounts_depth: int | None = None
    """The braces around the key of amounts that came before on this line."""
    found = _COLON.search(line)
    while found is not None:
        before = line[done : found.start()]
        shown.append(line[done : found.end()])
        done = found.end()
        in_flow = in_flow or "{" in before or "[" in before
        words = before.replace("{", " ").replace(",", " ").rsplit(maxsplit=1)
        name = words[-1].strip("'\"\\") if words else ""
        depth += before.count("{") - before.count("}")
        if amounts_depth is not None and depth <= amounts_depth:
            amounts_depth = None
        is_amount = (in_amounts or amounts_depth is not None) and _AMOUNT.match(line, done) is not None
        if amounts_depth is None and name in _AMOUNTS:
            amounts_depth = depth
        last_is_secret = names_secret(name) and not is_amount
        if last_is_secret:
            end = _end_of_value(line, done, in_flow=in_flow)
            shown.append(HIDDEN if line[done:end].strip() else line[done:end])
            done = end
        found = _COLON.search(line, done)
    shown.append(line[done:])
    return "".join(shown), last_is_secret


def _end_of_value(line: str, start: int, *, in_flow: bool) -> int:
    """Returns where the value ends that begins at *start*; in doubt it is the rest of the line."""
    if line[start : start + 1] in ("'", '"'):
        quoted = _QUOTED.match(line, start)
        if quoted is not None:
            return quoted.end()
        in_flow = False
    ends = _END_IN_FLOW if in_flow and line[start : start + 1] not in ("{", "[") else _END_OF_LINE
    found = ends.search(line, start)
    return len(line) if found is None else found.start()
