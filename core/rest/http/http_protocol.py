"""Serves an HTTP/1.1 connection: uvicorn's, with what the interface needs besides (rest.md 2)."""

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


_PROBES: Final = b"/healthz/"


class ConnectionProtocol(HttpToolsProtocol):
    """Passes on the certificate of the client, lets an answer cut its connection, and answers probes in any case."""

    _certificate: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who the client is, and wait for its first request."""
        super().connection_made(transport)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        # uvicorn itself begins to wait only after the first answer.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

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
        # Probes are answered however many are connected.
        self.limit_concurrency = None if self.url.startswith(_PROBES) else self.config.limit_concurrency
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
