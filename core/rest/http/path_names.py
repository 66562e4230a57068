"""Brings paths into their canonical form, and decodes the names in them a second time (rest.md 2)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_plus

from kornel.core.rest.http.errors import RestError

_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def to_canonical(path: str) -> str:
    """Returns *path* without double slashes, ``.``, ``..`` and a slash at the end."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment and segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)


def decode_again(value: str) -> str:
    """Returns a name in a path, decoded a second time like a query. Raises 400 for a value that cannot be decoded."""
    broken = _BROKEN_ESCAPE.search(value)
    if broken is not None:
        raise RestError(400, f'invalid URL escape "{value[broken.start() : broken.start() + 3]}"')
    return unquote_plus(value)
