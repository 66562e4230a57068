"""Finds the connections that this process serves at one address, as the kernel knows them: their peers, and the bytes
received.

gRPC does not show its sockets, so they are found among the open descriptors of the process. A descriptor may be closed
and used again at any moment, so its connection has to be checked before anything is done with it.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_DESCRIPTORS: Final = Path("/proc/self/fd")
_TCP_INFO_BYTES: Final = 136
_BYTES_RECEIVED: Final = 128
_CREDENTIALS: Final = struct.Struct("3i")
_NOT_LOOKED_AT: Final = object()


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection. ``name``: the name that gRPC uses; for a socket file, for which gRPC has none, one
    of our own.

    ``host``: its address, or for a socket file the process that connected. ``counted`` tells whether the kernel counts
    the bytes that it sends.
    """

    name: str
    host: str
    counted: bool


class OwnSockets:
    """Finds the connections to *address*, at which gRPC listens: ``host:port`` or ``unix:path``."""

    def __init__(self, address: str) -> None:
        self._port = port_of(address)
        self._path = path_of(address)
        self._known: dict[int, Peer | None] = {}
        """The sockets that were looked at before, by inode; ``None``: it is no connection to the address."""

    def connections(self) -> list[tuple[int, Peer]]:
        """Returns the descriptor of each connection with its peer."""
        found, known = [], {}
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the numbers are all that is wanted
            descriptor = int(name)
            try:
                status = os.fstat(descriptor)
            except OSError:
                continue
            if not stat.S_ISSOCK(status.st_mode):
                continue
            # Most sockets are no connections to the address, and asking each of them for its address would take ten
            # times as long.
            peer = self._known.get(status.st_ino, _NOT_LOOKED_AT)
            if peer is _NOT_LOOKED_AT:
                peer = self._peer_of(descriptor)
            known[status.st_ino] = peer
            if isinstance(peer, Peer):
                found.append((descriptor, peer))
        self._known = known  # type: ignore[assignment]  # what is in it was looked at
        return found

    def listeners(self) -> list[int]:
        """Returns copies of the descriptors that listen at the address."""
        found = []
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208
            with suppress(OSError):
                if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    continue
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    listening = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if listening and self._is_ours(copy.getsockname()):
                        found.append(copy.detach())
        return found

    def hang_up(self, descriptor: int, peer: Peer) -> bool:
        """Ends the connection of *peer*, unless *descriptor* belongs to another one by now."""
        # A copy stays the same connection, whatever gRPC closes and opens in the meantime.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if self._peer_of(connection.fileno()) == peer:
                connection.shutdown(socket.SHUT_RDWR)
                return True
        return False

    def _peer_of(self, descriptor: int) -> Peer | None:
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            return None
        try:
            if not self._is_ours(connection.getsockname()):
                return None
            address = connection.getpeername()
            if connection.family != socket.AF_UNIX:
                host = address[0].removeprefix("::ffff:")
                return Peer(f"{host}:{address[1]}", host, counted=True)
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            process, _, _ = _CREDENTIALS.unpack(raw)
            return Peer(f"unix:{process}/{os.fstat(descriptor).st_ino}", f"unix:{process}", counted=False)
        except OSError:
            return None
        finally:
            connection.detach()

    def _is_ours(self, name: object) -> bool:
        if isinstance(name, tuple):
            return bool(self._port) and name[1] == self._port
        return bool(self._path) and os.fsencode(name) == self._path  # type: ignore[arg-type]  # str or bytes


def received_bytes(descriptor: int) -> int | None:
    """Returns how many bytes have come over a TCP connection so far; ``None``: it is no longer open."""
    try:
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        (received,) = struct.unpack_from("Q", info, _BYTES_RECEIVED)
    except (OSError, struct.error):
        return None
    else:
        return int(received)
    finally:
        connection.detach()


def bound_window(descriptor: int, size_bytes: int) -> None:
    """Limits how far the client of a TCP connection may send ahead of the reader, to *size_bytes*.

    The buffer keeps its size, because a buffer smaller than the data on their way would lose them, and the client would
    wait.
    """
    with suppress(OSError):
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, size_bytes)
        finally:
            connection.detach()


def port_of(address: str) -> int:
    """Returns the TCP port of *address*; 0: it has none."""
    port = address.rpartition(":")[2]
    return 0 if address.startswith("unix") or not port.isdigit() else int(port)


def path_of(address: str) -> bytes:
    """Returns the kernel's name of the socket file or abstract socket of *address*; empty: it has none."""
    if address.startswith("unix-abstract:"):
        return b"\0" + os.fsencode(address.removeprefix("unix-abstract:"))
    if not address.startswith("unix:"):
        return b""
    path = address.removeprefix("unix:")
    return os.fsencode(path.removeprefix("//"))


def host_and_port(peer: str) -> str:
    """Returns gRPC's name of a peer without the parts that depend on the version of IP: ``ipv6:%5B::1%5D:80`` gives
    ``::1:80``."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host, _, port = unquote(address).rpartition(":")
    return f"{host.strip('[]').removeprefix('::ffff:')}:{port}"


def can_watch() -> bool:
    """Tells whether this system counts the bytes that sockets receive, and shows a process its own sockets."""
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "TCP_INFO"):
        return False
    with socket.socket() as probe:
        try:
            return len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)) == _TCP_INFO_BYTES
        except OSError:
            return False
