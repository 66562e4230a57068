"""Serves an HTTP/1.1 connection: uvicorn's, with the two things that the interface needs from it (rest.md 2)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kornel.core.security.tls import peer_certificate

ABORT: Final = "kornel.abort"
"""An extension of the ASGI scope: ``abort`` drops the connection and everything that waits to be written to it."""

CERTIFICATE: Final = "kornel.certificate"
"""An extension of the ASGI scope: the client's certificate in DER, which TLS has verified. Absent: the client showed
none."""


class ConnectionProtocol(HttpToolsProtocol):
    """Passes on the certificate of the client, and lets an answer cut its connection."""

    _certificate: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who the client is."""
        super().connection_made(transport)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))

    def on_message_begin(self) -> None:
        """Begin the next request of the connection."""
        super().on_message_begin()
        extensions: dict[str, Any] = {ABORT: {"abort": self.transport.abort}}
        if self._certificate is not None:
            extensions[CERTIFICATE] = self._certificate
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Begin the answer."""
        if self.url.startswith(b"//"):  # Otherwise the text after it would be read as a host.
            self.url = b"/." + self.url
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the references back to the connection, so that its memory is freed at once.

        The garbage collector never again examines connections that were open while long-lived objects were taken out of
        its reach (:mod:`kornel.core.service.machine.garbage`).
        """
        super().connection_lost(exc)
        self.scope = None  # type: ignore[assignment]
        self.cycle = None  # type: ignore[assignment]
        self.pipeline.clear()
