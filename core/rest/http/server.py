"""Serves HTTP in the core's event loop, by uvicorn without its signal handlers, its logs and its command line."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger
from uvicorn.server import ServerState

from kornel.core.rest.http.http_protocol import ConnectionProtocol

GRACE_S: Final = 5
BACKLOG: Final = 512
IDLE_S: Final = 60
"""The time for which a connection may stay open between two requests."""

HANDSHAKE_S: Final = 20.0
GOODBYE_S: Final = 5.0
"""The time allowed for opening and for closing a TLS connection."""

GONE_S: Final = 60
"""The time without a byte after which the system asks whether a client is still there. It asks three times, with 20 s
between."""

PAUSE_S: Final = 0.5
"""The pause after the system could not accept a connection."""


class RestAddressUnavailable(Exception):
    """HTTP cannot be served at the address."""


class HttpServer:
    """One ASGI application on one address. ``address``: ``host:port``; port 0: any free one.

    ``tls`` returns the context for a new connection over HTTPS; absent: plain HTTP. ``on_stop`` is called when no more
    requests are accepted; it has to end answers that would never end by themselves. ``connections``: the most
    connections, and requests under way, at a time; a request beyond them is answered 503.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: str,
        *,
        logger: FilteringBoundLogger,
        tls: Callable[[], ssl.SSLContext] | None = None,
        on_stop: Callable[[], None] = lambda: None,
        connections: int,
    ) -> None:
        self._app = app
        self._wanted = address
        self._logger = logger
        self._tls = tls
        self._on_stop = on_stop
        self._most = connections
        self._listener: socket.socket | None = None
        self._state = ServerState()
        self._tasks: list[asyncio.Task[None]] = []
        """The tasks that accept connections and set the date."""
        self._handshakes: set[asyncio.Task[None]] = set()
        self.address = ""
        """The address, once the server listens."""

    def listen(self) -> None:
        """Open the address. Raises :class:`RestAddressUnavailable`."""
        self._listener, self.address = _listen_on(self._wanted)

    async def start(self) -> None:
        """Starts to serve."""
        assert self._listener is not None, "listen() comes first"
        config = uvicorn.Config(
            self._app,
            http=ConnectionProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_S,
            limit_concurrency=self._most + 1,  # uvicorn counts the connection of the request, too.
        )
        config.load()
        _redirect_logs(self._logger)
        self._tasks = [
            asyncio.create_task(self._accept_connections(self._listener, config), name="rest"),
            asyncio.create_task(self._set_date(), name="rest date"),
        ]

    async def stop(self) -> None:
        """Accepts no more requests, waits up to :data:`GRACE_S` for those under way, and closes."""
        if self._tasks:
            self._on_stop()
        accepting = (*self._tasks, *self._handshakes)
        for task in accepting:
            task.cancel()
        await asyncio.gather(*accepting, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        for protocol in tuple(self._state.connections):
            protocol.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while self._state.connections or self._state.tasks:  # noqa: ASYNC110 - a few turns, once in a life
                    await asyncio.sleep(0.01)
        for protocol in tuple(self._state.connections):
            protocol.transport.abort()
        left = tuple(self._state.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _accept_connections(self, listener: socket.socket, config: uvicorn.Config) -> None:
        """Serves each connection with the certificates that are in force when it comes."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)  # There are no descriptors or no memory left.
                continue
            _notice_end(taken)
            task = loop.create_task(self._serve(taken, config), name="http connection")
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
            await asyncio.sleep(0)  # Otherwise many that wait would all be accepted before anybody else has a turn.

    async def _serve(self, taken: socket.socket, config: uvicorn.Config) -> None:
        context = self._tls() if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: ConnectionProtocol(config=config, server_state=self._state, app_state={}),
                taken,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
                ssl_shutdown_timeout=None if context is None else GOODBYE_S,
            )
        except OSError:
            taken.close()  # The client sent nothing, or not TLS, or showed no certificate.
        except asyncio.CancelledError:
            taken.close()
            raise

    async def _set_date(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1)


def _notice_end(connection: socket.socket) -> None:
    """Has the system end *connection* when its client has vanished without closing it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", GONE_S), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class _Forward(logging.Handler):
    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._target = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Logs a message of the HTTP server at a low level, because it is about what clients did."""
        self._target.debug("http", said=record.getMessage(), exc_info=record.exc_info)


def _redirect_logs(logger: FilteringBoundLogger) -> None:
    """Sends the log of uvicorn, which is one for the whole process, to the latest server."""
    theirs = logging.getLogger("uvicorn.error")
    theirs.handlers = [_Forward(logger)]
    theirs.propagate = False


def _listen_on(address: str) -> tuple[socket.socket, str]:
    """Returns a socket bound to *address*, and the address with the port that was actually opened."""
    host, _, port = address.rpartition(":")
    try:
        number = int(port)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), number), family=family, backlog=BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        raise RestAddressUnavailable(f"cannot serve HTTP on {address!r}, wanted is HOST:PORT: {error}") from error
    listener.setblocking(False)
    return listener, f"{host}:{listener.getsockname()[1]}"
