"""Which connections over HTTP count as those of one address."""

from __future__ import annotations

import socket
from typing import Any

from kornel.core.rest.connections import Connections


class Listener:
    """Gives a connection from each of *addresses*, then none."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self.others: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, tuple[str, int, int, int]]:
        if not self._addresses:
            raise BlockingIOError
        ours, theirs = socket.socketpair()
        self.others += [ours, theirs]
        return ours, (self._addresses.pop(0), 1, 0, 0)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        for other in self.others:
            other.close()


async def test_a_block_of_ipv6_has_the_connections_of_one_address() -> None:
    """Eight in all are two of one address: a newcomer from its block costs the oldest one there its place."""
    addresses = [
        "2001:db8::1",
        "2001:db8::2",
        "2001:db8::3",
        "2001:db8:0:1::1",
        "10.0.0.1",
        "::ffff:10.0.0.1",
        "10.0.0.1",
    ]
    listener: Any = Listener(addresses)
    protocols: Any = None
    connections = Connections(listener, protocols, tls=None, most=8)
    connections._accept_connections()
    assert connections.count == 5
    connections.stop()
    listener.close()
