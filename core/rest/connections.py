"""Bounds HTTP connections, in total and from one address, and chooses which one is closed for a new one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kornel.core.rest.http_protocol import PatientProtocol
from kornel.core.service.connections.addresses import address_block

MOST_CONNECTIONS: Final = 512
"""The most connections by default."""

PART_OF_AN_ADDRESS: Final = 4
"""The divisor for one address (or one block of 64 bits of IPv6), which has at most a quarter of all connections."""

HANDSHAKE_PATIENCE_S: Final = 10.0
GOODBYE_PATIENCE_S: Final = 5.0
"""The time allowed for closing a TLS connection."""

ACCEPTED_AT_ONCE: Final = 64
"""The connections accepted before other work has its turn."""

PAUSE_S: Final = 0.5
"""The pause after the system could not accept a connection."""

FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

Protocols = Callable[[], PatientProtocol]


class _Connection:
    """One connection. ``protocol`` is ``None`` until a TLS handshake is complete."""

    def __init__(self, taken: socket.socket, address: str) -> None:
        self.socket = taken
        self.address = address
        self.protocol: PatientProtocol | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Tells whether no request would be lost with this connection."""
        return self.protocol is None or self.protocol.waiting

    def drop_connection(self) -> None:
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class Connections:
    """Accepts connections on *listener*. If there are too many, the oldest idle one is closed for a new one.

    *tls* returns the context for a new connection; ``None``: plain HTTP.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocols: Protocols,
        *,
        tls: Callable[[], ssl.SSLContext] | None,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        self._listener = listener
        self._protocols = protocols
        self._tls = tls
        self._most = most
        self._most_of_address = max(1, most // PART_OF_AN_ADDRESS)
        self._open: dict[_Connection, None] = {}
        self._by_address: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        self._pausing: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """The number of connections that are open or in their handshake."""
        return len(self._open)

    def start(self) -> None:
        """Start accepting connections."""
        self._pausing = None
        self._loop.add_reader(self._listener.fileno(), self._accept_connections)

    def stop(self) -> None:
        """Stop accepting connections."""
        if self._pausing is not None:
            self._pausing.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
        for connection in tuple(self._open):
            if connection.protocol is None:
                connection.drop_connection()

    def check(self) -> None:
        """Drop connections that have ended, and those whose clients do not read their answers."""
        now = self._loop.time()
        for connection in tuple(self._open):
            if connection.protocol is not None:
                connection.protocol.check_reader(now)

    def _accept_connections(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                taken, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # There are no descriptors or no memory left, so trying again at once would not help.
                self._loop.remove_reader(self._listener.fileno())
                self._pausing = self._loop.call_later(PAUSE_S, self.start)
                return
            taken.setblocking(False)
            self._take_connection(taken, address_block(peer[0]))

    def _take_connection(self, taken: socket.socket, address: str) -> None:
        if self._by_address.get(address, 0) >= self._most_of_address:
            room = self._make_room(address)
        else:
            room = len(self._open) < self._most or self._make_room(None)
        if not room:
            if self._tls is None:
                with suppress(OSError):
                    taken.send(FULL)
            taken.close()
            return
        connection = _Connection(taken, address)
        self._open[connection] = None
        self._by_address[address] = self._by_address.get(address, 0) + 1
        connection.task = self._loop.create_task(self._serve(connection), name="http connection")

    def _make_room(self, address: str | None) -> bool:
        """Drops an idle connection, from *address* if given. Tells whether there was one."""
        for connection in self._open:
            if connection.idle and address in (None, connection.address):
                connection.drop_connection()
                self._remove_connection(connection)
                return True
        return False

    async def _serve(self, connection: _Connection) -> None:
        """Serve HTTP on *connection*."""
        protocol = self._protocols()
        protocol.on_lost = lambda: self._remove_connection(connection)
        context = self._tls() if self._tls is not None else None
        patience = HANDSHAKE_PATIENCE_S if context is not None else None
        goodbye = GOODBYE_PATIENCE_S if context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection.socket,
                ssl=context,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=goodbye,
            )
        except (OSError, asyncio.CancelledError):
            # The client sent nothing, or not TLS, or showed no certificate, which concerns no other connection.
            self._remove_connection(connection)
            connection.socket.close()
            protocol.give_up()
            return
        connection.protocol = protocol
        if connection not in self._open:
            connection.drop_connection()

    def _remove_connection(self, connection: _Connection) -> None:
        if connection not in self._open:
            return
        del self._open[connection]
        left = self._by_address[connection.address] - 1
        if left:
            self._by_address[connection.address] = left
        else:
            del self._by_address[connection.address]
