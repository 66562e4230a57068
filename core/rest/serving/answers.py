"""Answers as ASGI applications: bodies in pieces, compressed when the client asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kornel.core.rest.http.compression import SMALLEST, accepts_gzip
from kornel.core.rest.http.errors import error_document
from kornel.core.rest.serving.turns import gzip_chunks
from kornel.core.service.machine.loop_time import Sharing

JSON: Final = "application/json; charset=UTF-8"
YAML: Final = "application/x-yaml; charset=UTF-8"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"

API_VERSION: Final = "1"

_SENDING_S: Final = 0.25
"""The longest time for which the engine yields to the sending of an answer."""

_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE


def encode(document: Any) -> bytes:
    """Returns *document* as one JSON text that ends with a newline. Raises ``TypeError`` for a value that JSON does not
    have."""
    return orjson.dumps(document, option=_OPTIONS)


class Answer:
    """A whole answer. ``chunks``: the body in order. ``compress``: it may be compressed. ``encoded``: it is
    compressed."""

    def __init__(
        self,
        chunks: Sequence[bytes],
        content_type: str,
        *,
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
        compress: bool = True,
        encoded: bool = False,
    ) -> None:
        self.chunks = chunks
        self.status = status
        self.headers = [("Content-Type", content_type), *headers]
        self.compress = compress
        self.encoded = encoded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        chunks, headers, encoded = self.chunks, list(self.headers), self.encoded
        size = sum(map(len, chunks))
        if self.compress and not encoded and size >= SMALLEST and wants_gzip(scope):
            body = await gzip_chunks(chunks)
            chunks, encoded = body.chunks, body.encoded
            size = sum(map(len, chunks))
        if encoded:
            headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        headers.append(("Content-Length", str(size)))
        await send({"type": "http.response.start", "status": self.status, "headers": raw_headers(headers)})
        with Sharing.of_loop().count_reading(at_most_s=_SENDING_S):
            for piece in chunks:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def size_of(answer: ASGIApp) -> int:
    """Returns the size of the body of *answer* in bytes; 0: the body is made while it is sent."""
    return sum(map(len, answer.chunks)) if isinstance(answer, Answer) else 0


def wants_gzip(scope: Scope) -> bool:
    """Tells whether the client of a request accepts compressed answers."""
    return accepts_gzip(",".join(Headers(scope=scope).getlist("accept-encoding")))


def raw_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Returns *headers* in the form that ASGI needs."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]


def json_answer(document: Any, *, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """Returns an answer whose body is *document*, with the headers of all JSON answers."""
    return Answer([encode(document)], JSON, status=status, headers=(*json_headers(), *headers))


def json_headers() -> list[tuple[str, str]]:
    """Returns the headers of JSON answers except the content type. The router adds those for pages of other origins."""
    return [("YuniKorn-Api-Version", API_VERSION), ("Cache-Control", "no-store")]


def error_answer(status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """Returns an answer with *status* and a JSON document that has *message*."""
    return json_answer(error_document(status, message), status=status, headers=headers)


def text_answer(
    text: str, *, status: int = 200, content_type: str = TEXT, headers: Iterable[tuple[str, str]] = ()
) -> Answer:
    """Returns an answer whose body is *text*."""
    return Answer([text.encode()], content_type, status=status, headers=headers)
