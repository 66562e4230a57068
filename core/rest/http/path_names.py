"""Decodes paths, brings them into their canonical form, and decodes the names in them a second time (rest.md 2)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

from kornel.core.rest.http.errors import RestError

_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_SLASH: Final = re.compile("%2F", re.IGNORECASE)
_SLASH: Final = "\udc2f"
"""Stands for a slash within a name, so that no name passes for several. No path decodes to it."""
SAFE: Final = "/:@!$&'()*+,;=-._~"
"""The characters of a path that are not escaped."""


def decode_path(raw: bytes) -> str:
    """Returns the path *raw* of a request, decoded once: slashes separate, and escaped slashes belong to names."""
    return unquote(_ESCAPED_SLASH.sub(_SLASH, raw.decode("ascii", "replace")))


def decode_slashes(name: str) -> str:
    """Returns *name*, a part of a decoded path, with its slashes."""
    return name.replace(_SLASH, "/")


def encode_path(path: str) -> str:
    """Returns what :func:`decode_path` has decoded as *path*."""
    return quote(path, safe=SAFE, errors="surrogatepass").replace("%ED%B0%AF", "%2F")


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
