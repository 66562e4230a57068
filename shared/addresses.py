"""Judges where an address can be reached from."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

DEFAULT_ADDRESS: Final = "127.0.0.1:50051"
"""The address at which a core listens, and where commands look for it, unless they are given another one."""


def stays_on_this_machine(address: str) -> bool:
    """Tells whether only processes of this machine can reach *address*: a Unix socket, or a loopback host and port."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
