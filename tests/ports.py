"""Chooses ports for servers that have to be told one before they start."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST: Final = 10_240
USUAL: Final = 32_768
"""Where the kernel's range begins unless somebody has changed it."""

_reserved: Final[list[socket.socket]] = []
"""Hold the ports that this process has chosen, as long as it runs."""


def choose_port() -> int:
    """Returns a port of this machine that nothing else takes before the server does.

    Connections and servers with port 0 get ports of the kernel's own range, and this one is below it. It is reserved by
    a name in the kernel, which ends with this process, so that no other test chooses it.
    """
    ports = range(LOWEST, _find_highest())
    # Each process begins elsewhere.
    start = os.getpid() * 997
    for number in range(len(ports)):
        port = ports[(start + number) % len(ports)]
        if _reserve_port(port) and _is_free(port):
            return port
    raise AssertionError(f"no port from {ports[0]} to {ports[-1]} is free")


def _find_highest() -> int:
    try:
        found = int(RANGE.read_text(encoding="ascii").split()[0])
    except OSError:
        return USUAL
    return found if found > 2 * LOWEST else USUAL


def _reserve_port(port: int) -> bool:
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0kornel-test-port-{port}")
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
