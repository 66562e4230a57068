"""HTTP inside the core's event loop: uvicorn, without its signal handlers, its logs and its command line."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from core.rest.http_protocol import PatientProtocol

GRACE_S: Final = 5
BACKLOG: Final = 512
IDLE_S: Final = 60
"""How long a connection may stay open between two requests."""


class RestAddressUnavailable(Exception):
    """HTTP cannot be served where it was told to."""


class HttpServer:
    """One ASGI application on one address. ``address``: ``host:port``; port 0: any free one.

    ``tls``: makes the context for HTTPS; absent: plain HTTP. ``on_stop`` is called when no request is taken any more:
    answers without end must end then.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: str,
        *,
        logger: FilteringBoundLogger,
        tls: ssl.SSLContext | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._wanted = address
        self._logger = logger
        self._tls = tls
        self._on_stop = on_stop
        self._listener: socket.socket | None = None
        self._server: _Server | None = None
        self._running: asyncio.Task[None] | None = None
        self.address = ""
        """Where it listens, once it does."""

    def listen(self) -> None:
        """Open the address. Raises :class:`RestAddressUnavailable`."""
        self._listener, self.address = _listen(self._wanted)

    async def start(self) -> None:
        """Serve."""
        assert self._listener is not None, "listen() comes first"
        config = uvicorn.Config(
            self._app,
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()
        if self._tls is not None:
            config.ssl = self._tls
        _redirect_logs(self._logger)
        server = _Server(config)
        self._server = server
        self._running = asyncio.create_task(server.serve(sockets=[self._listener]), name="rest")
        while not server.started and not self._running.done():  # noqa: ASYNC110 - a few turns, once in a life
            await asyncio.sleep(0.001)
        if self._running.done():
            await self._running

    async def stop(self) -> None:
        """Take no more requests, wait up to :data:`GRACE_S` for those under way, and close."""
        if self._server is None or self._running is None:
            if self._listener is not None:
                self._listener.close()
            return
        self._on_stop()
        self._server.should_exit = True
        await asyncio.gather(self._running, return_exceptions=True)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's business."""
        yield


class _Forward(logging.Handler):
    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._target = logger

    def emit(self, record: logging.LogRecord) -> None:
        """What the HTTP server complains of is what clients did: of interest to whoever looks for it."""
        self._target.debug("http", said=record.getMessage(), exc_info=record.exc_info)


def _redirect_logs(logger: FilteringBoundLogger) -> None:
    """uvicorn logs to a logger that is the process's; the latest server hears it."""
    theirs = logging.getLogger("uvicorn.error")
    theirs.handlers = [_Forward(logger)]
    theirs.propagate = False


def _listen(address: str) -> tuple[socket.socket, str]:
    """A socket bound to *address*, and the address with the port that was really opened."""
    host, _, port = address.rpartition(":")
    try:
        number = int(port)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), number), family=family, backlog=BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        raise RestAddressUnavailable(f"cannot serve HTTP on {address!r}, wanted is HOST:PORT: {error}") from error
    listener.setblocking(False)
    return listener, f"{host}:{listener.getsockname()[1]}"
