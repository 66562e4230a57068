"""The HTTP/1.1 connection: uvicorn's, with an end to patience for clients that trickle (rest.md 2)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from core.security.tls import peer_certificate

HEADER_PATIENCE_S: Final = 10.0
"""From the first byte of a request, or the connection, to the end of its headers."""

HEADER_LIMIT: Final = 64 * 1024
"""Bytes of a request line and its headers together."""

ABORT: Final = "kornel.abort"
"""Extension of the ASGI scope: ``abort`` drops the connection and what waits to be written to it."""

CERTIFICATE: Final = "kornel.certificate"
"""Extension of the ASGI scope: the client's certificate in DER, which TLS has verified. Absent: it showed none."""

BODY_PATIENCE_S: Final = 30.0
"""From the end of the headers to the end of the body."""


class PatientProtocol(HttpToolsProtocol):
    """Closes connections whose headers take too long or grow too large, with an answer that says which."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._late: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = False
        self._certificate: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Headers are expected from now on."""
        super().connection_made(transport)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        self._headers_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse headers without end."""
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_LIMIT and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A further request on the same connection begins."""
        super().on_message_begin()
        extensions: dict[str, Any] = {ABORT: {"abort": self._abort}}
        if self._certificate is not None:
            extensions[CERTIFICATE] = self._certificate
        self.scope["extensions"] = extensions
        if not self._in_headers:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        """The request can be answered."""
        self._headers_came()
        if self.url.startswith(b"//"):  # Else what comes next would be taken for a host.
            self.url = b"/." + self.url
        self._late = self.loop.call_later(BODY_PATIENCE_S, self._refuse, b"408 Request Timeout")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of the request is there."""
        self._headers_came()
        super().on_message_complete()

    def _expect_headers(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        self._late = self.loop.call_later(HEADER_PATIENCE_S, self._refuse, b"408 Request Timeout")

    def _headers_came(self) -> None:
        self._in_headers = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _abort(self) -> None:
        self.transport.abort()

    def _refuse(self, status: bytes) -> None:
        self._headers_came()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
