"""Judges addresses: whether one can only be reached from this machine, and what counts as one address."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address


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


def address_block(host: str) -> str:
    """Returns what counts as one address. For IPv6, that is the first 64 bits, because a client that has one of these
    addresses usually has all of them."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address) >> 64 << 64, 64)))
