"""Tells what counts as one address of a client."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network


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
