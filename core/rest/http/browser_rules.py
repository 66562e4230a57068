"""Defines the rules for web pages that send requests to a core: by default they may do almost nothing.

A page of any site can make a browser send requests to this machine. It cannot read the answers unless they have
``Access-Control-Allow-Origin``. If it makes its own name resolve to this machine (DNS rebinding), the browser treats it
as a page of this core, but its requests still have that name in ``Host``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

ANY: Final = "*"

_HEADERS: Final = "X-Requested-With,Content-Type,Accept,Origin"


class BadOrigin(ValueError):
    """A text that was given as an origin is not one."""


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """The rules for requests that browsers make. *hosts*: the names to which requests may be addressed, in lower case;
    ``None``: any. Addresses are always allowed.

    *origins*: the origins of pages that may read answers; ``*``: all. *tokens* tells whether these pages may send a
    bearer token.
    """

    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()
    tokens: bool = False

    def names_one_host(self, hosts: list[str], *, old: bool) -> bool:
        """Tells whether the ``Host`` headers of a request name exactly one host.

        If there are several, a proxy or a cache on the way may have used another one. *old*: the request is of HTTP
        before 1.1, which does not require the header; browsers no longer use it.
        """
        if len(hosts) > 1:
            return False
        return self.hosts is None or bool(hosts and hosts[0]) or (old and not hosts)

    def knows_host(self, host: str) -> bool:
        """Tells whether a request with this ``Host`` header is meant for this core."""
        if self.hosts is None:
            return True
        name = _name_of(host)
        if name in self.hosts or name.endswith(".localhost"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def headers_for(self, origin: str, methods: str) -> list[tuple[str, str]]:
        """Returns the headers of an answer to a page of *origin*; empty: the request names none. *methods*: those of
        the route."""
        if not self.origins:
            return []
        allowed = [
            ("Access-Control-Allow-Methods", methods),
            ("Access-Control-Allow-Headers", f"{_HEADERS},Authorization" if self.tokens else _HEADERS),
        ]
        if ANY in self.origins:
            return [("Access-Control-Allow-Origin", ANY), *allowed]
        # Caches must not give one page an answer that was made for another.
        if origin.lower() not in self.origins:
            return [("Vary", "Origin")]
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin"), *allowed]


ANYTHING: Final = BrowserRules()
"""The rules that allow any host, and no pages of other origins."""


def local_hosts(more: Iterable[str] = ()) -> frozenset[str]:
    """Returns names of this machine, and *more*."""
    return frozenset(name.lower().rstrip(".") for name in ("localhost", socket.gethostname(), *more))


def checked_origins(origins: Iterable[str]) -> frozenset[str]:
    """Returns *origins* as browsers write them. Raises :class:`BadOrigin`."""
    return frozenset(map(_checked_origin, origins))


def _checked_origin(text: str) -> str:
    if text == ANY:
        return text
    origin = text.lower().rstrip("/")
    try:
        parts = urlsplit(origin)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise BadOrigin(f"{text!r} is no origin: {error}") from error
    if parts.scheme not in ("http", "https") or not named or origin != f"{parts.scheme}://{parts.netloc}":
        raise BadOrigin(f"{text!r} is no origin such as https://yunikorn.example.org:9889, nor *")
    return origin


def _name_of(host: str) -> str:
    """Returns the name or address in a ``Host`` header, without port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")
