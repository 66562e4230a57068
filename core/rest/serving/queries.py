"""Reads the parameters of requests as the clients of YuniKorn expect it (rest.md 2 to 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from kornel.core.domain.names import is_group_name, is_queue_name, is_user_name
from kornel.core.rest.http.errors import RestError

_DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
_MOST: Final = 2**64 - 1

_ON: Final = ("", "true", "1", "yes")
_OFF: Final = ("false", "0", "no")

_QUEUE_RULE: Final = "a queue name has 1 to 64 characters of letters, digits and _ : # / @ -"


def query_of(request: Request) -> dict[str, str]:
    """Returns the query of *request*; if a name is given twice, the first value counts."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True):
        found.setdefault(name, value)
    return found


def read_unsigned(query: Mapping[str, str], name: str, default: int) -> int:
    """Returns a number of 64 bits; *default* if absent or empty. Raises 400."""
    text = query.get(name, "")
    if not text:
        return default
    if not _DIGITS.fullmatch(text):
        raise RestError(400, f'strconv.ParseUint: parsing "{text}": invalid syntax')
    # So many digits are always out of range, and parsing all of them would take long.
    if len(text.lstrip("0")) > 20 or int(text) > _MOST:
        raise RestError(400, f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def read_positive(query: Mapping[str, str], name: str, default: int) -> int:
    """Returns the same as :func:`read_unsigned`, but refuses 0."""
    value = read_unsigned(query, name, default)
    if not value and query.get(name):
        raise RestError(400, f'0 is not a valid value for "{name}"')
    return value


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """Tells whether *name* is given and not switched off. Raises 400 for any other value."""
    text = query.get(name, "false").lower()
    if text not in _ON and text not in _OFF:
        raise RestError(400, f'"{text}" is not a valid value for "{name}", wanted is true or false')
    return text in _ON


def checked_user(name: str) -> str:
    """Returns *name*. Raises 400 if it cannot be the name of a user."""
    if not is_user_name(name):
        raise RestError(400, "Invalid user name")
    return name


def checked_group(name: str) -> str:
    """Returns *name*. Raises 400 if it cannot be the name of a group."""
    if not is_group_name(name):
        raise RestError(400, "Invalid group name")
    return name


def checked_queue(path: str) -> str:
    """Returns *path* in lower case, in which queue paths are kept. Raises 400 for a path that no queue can have."""
    lower = path.lower()
    if lower == "root.@recovery@":
        return lower
    for element in lower.split("."):
        if not is_queue_name(element):
            raise RestError(
                400,
                f"problem in queue query parameter parsing as queue param {path} contains invalid"
                f" queue name {element}. {_QUEUE_RULE}",
            )
    return lower
