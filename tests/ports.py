"""Hands out TCP ports that stay free until a test listens on them, and whenever it does so again."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Final

FIRST: Final = 10_240
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")

_held: Final[list[socket.socket]] = []
"""The locks of the ports that this process has, which are given back when it ends."""


def reserve_port() -> int:
    """Returns a port that only this process has: the system chooses from higher ones, and other tests respect locks."""
    lowest_chosen = int(_RANGE.read_text(encoding="ascii").split()[0])
    for port in range(FIRST, lowest_chosen):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0kornel-test-port-{port}")
            with closing(socket.socket()) as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
        else:
            _held.append(lock)
            return port
    raise AssertionError("every port is taken")
