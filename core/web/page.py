"""The files of the web page, served from memory: a request does not read the disk, and no path leads out of the
package.

The page contains no data. It fetches all data from the REST interface with the caller's own rights, so everybody may
have the files.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy: nothing from other hosts, nothing inline, and no text that becomes markup, because names
in a cluster are chosen by other people."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # The files of another version must not be mixed with these, so a browser asks each time, and mostly gets the answer
    # that nothing has changed.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, ready to be sent. ``tag`` changes with its content."""

    content: bytes
    packed: bytes
    media_type: str
    tag: str


class Page:
    """ASGI application over the files of ``core/web/static``; ``/`` is ``index.html``."""

    def __init__(self) -> None:
        self._read_assets = _all_assets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or 304 to a client that has it."""
        await self._make_answer(scope)(scope, receive, send)

    def _make_answer(self, scope: Scope) -> Response:
        asset = self._read_assets.get(scope["path"])
        if asset is None:
            return PlainTextResponse("404 page not found", 404)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Method Not Allowed", 405, {"Allow": "GET, HEAD"})
        asked = Headers(scope=scope)
        headers = {**HEADERS, "ETag": asset.tag}
        if asset.tag in (tag.strip().removeprefix("W/") for tag in asked.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        content = asset.content
        if "gzip" in asked.get("accept-encoding", ""):
            content = asset.packed
            headers["Content-Encoding"] = "gzip"
        return Response(content, headers=headers, media_type=asset.media_type)


@cache
def _all_assets() -> Mapping[str, Asset]:
    """Returns all files by path; read once in the life of a process."""
    assets = dict(_read_assets(files("kornel.core.web") / "static", "/"))
    return MappingProxyType({**assets, "/": assets["/index.html"]})


def _read_assets(folder: Traversable, path: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read_assets(entry, f"{path}{entry.name}/")
            continue
        media_type = MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            content = entry.read_bytes()
            tag = f'"{sha256(content).hexdigest()[:20]}"'
            yield path + entry.name, Asset(content, gzip.compress(content, mtime=0), media_type, tag)
