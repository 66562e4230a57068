"""The bounds of gRPC connections, and the address at which a core listens."""

from __future__ import annotations

import errno
import platform
import socket
from typing import Final

import grpc

from kornel.core.process.server_settings import AddressUnavailable
from kornel.core.service.connections.limits import MESSAGE_LIMIT

CONCURRENT_CALLS: Final = 32
"""The most calls of one connection if there is no security file; such a file has a limit of its own."""

HEADERS_LIMIT: Final = 16 * 1024
"""The most bytes of the headers of one call."""

OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    # Two cores on one port would share its clients at random.
    ("grpc.so_reuseport", 0),
    # A peer that disappeared without closing its connection is noticed after at most a minute, and its streams end.
    ("grpc.keepalive_time_ms", 40_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client that connects and sends nothing is not waited for.
    ("grpc.server_handshake_timeout_ms", 20_000),
    # Only the encoding "identity" is accepted, so that no message of a few bytes becomes one of many megabytes.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # What arrives before a call is read is kept small: headers that refer to each other, calls that wait, and bytes of
    # a message that no reader has asked for yet. Readers ask for the rest as they go on.
    ("grpc.http2.settings_timeout", 5_000),
    # From half of this limit on, gRPC refuses headers at random, so a long token would only work now and then.
    ("grpc.max_metadata_size", HEADERS_LIMIT),
    ("grpc.absolute_max_metadata_size", HEADERS_LIMIT),
    ("grpc.http2.hpack_table_size.decoder", 0),
    ("grpc.max_concurrent_streams", CONCURRENT_CALLS),
    # A call counts until its client has the status. gRPC would count it until the core has freed it as well, so while
    # the core is busy it would refuse the calls of a client that never has more than it may have.
    ("grpc.http.overload_protection", 0),
    ("grpc.server.max_pending_requests", 320),
    ("grpc.server.max_pending_requests_hard_limit", 384),
    ("grpc.http2.lookahead_bytes", 65_536),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.max_requests_per_read", 8),
    ("grpc.experimental.tcp_read_chunk_size", 16_384),
    ("grpc.experimental.tcp_max_read_chunk_size", 65_536),
    # Shims send pings as well; one every ten seconds is allowed.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


def listen_at(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Opens *address*. Returns it with the port that was actually opened. Raises :class:`AddressUnavailable`, also if
    another program listens at one of the addresses that its name stands for."""
    if not address.startswith("unix"):
        _refuse_taken_port(address)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise AddressUnavailable(f"cannot listen on {address!r}") from error
    if address.startswith("unix"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _refuse_taken_port(address: str) -> None:
    """Raises :class:`AddressUnavailable` if one of the addresses that the name in *address* stands for is taken.

    gRPC is content with any of them. Then two cores would share a port, and clients would reach either one.
    """
    host, _, port = address.rpartition(":")
    if port in ("", "0"):
        return
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # gRPC knows more forms of addresses, and says what is wrong with others.
    for family, kind, protocol, _name, place in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                probe.listen(1)
        except OSError as error:
            # An address that this machine does not have is no other program's.
            if error.errno == errno.EADDRINUSE:
                raise AddressUnavailable(f"cannot listen on {address!r}: {place[0]} port {port} is taken") from error


def reachable_address(address: str) -> str:
    """Returns *address*, with the name of this machine in place of a host that stands for all interfaces."""
    host, _, port = address.rpartition(":")
    return f"{platform.node()}:{port}" if host in ("0.0.0.0", "[::]", "::", "*") else address
