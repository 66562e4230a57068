"""The connections that this process serves at one address, as the kernel knows them: who is connected, and what came.

gRPC keeps its sockets to itself, so they are found among the open descriptors of the process. A descriptor may be
closed and used again at any moment: whoever acts on one makes sure first whose it is.
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
    """The other end of a connection. ``name``: as gRPC has it, or of a socket file, where gRPC knows none, one of our
    own.

    ``host``: its address, or of a socket file the process that connected. ``counted``: the kernel counts what it sends.
    """

    name: str
    host: str
    counted: bool


class OwnSockets:
    """The connections to *address*, which is one that gRPC listens at: ``host:port`` or ``unix:path``."""

    def __init__(self, address: str) -> None:
        self._port = port_of(address)
        self._path = path_of(address)
        self._known: dict[int, Peer | None] = {}
        """Sockets that were looked at before, by inode; ``None``: no connection to the address."""

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
            # Most sockets are none of ours, and asking each of them for its address takes ten times as long.
            peer = self._known.get(status.st_ino, _NOT_LOOKED_AT)
            if peer is _NOT_LOOKED_AT:
                peer = self._peer_of(descriptor)
            known[status.st_ino] = peer
            if isinstance(peer, Peer):
                found.append((descriptor, peer))
        self._known = known  # type: ignore[assignment]  # what is in it was looked at
        return found

    def listeners(self) -> list[int]:
        """Returns copies of the descriptors that take connections to the address."""
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
        """Ends the connection of *peer*, unless *descriptor* is somebody else's by now."""
        # Of a copy it is certain whose connection it is, whatever gRPC closes and opens meanwhile.
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
    """Let the client of a TCP connection send at most *size_bytes* ahead of whoever reads it.

    Its buffer stays as large as it is: one that is smaller than what is on its way loses that, and the client waits.
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
    """Returns what the kernel calls the socket file or abstract name of *address*; empty: it has none."""
    if address.startswith("unix-abstract:"):
        return b"\0" + os.fsencode(address.removeprefix("unix-abstract:"))
    if not address.startswith("unix:"):
        return b""
    path = address.removeprefix("unix:")
    return os.fsencode(path.removeprefix("//"))


def host_and_port(peer: str) -> str:
    """Returns gRPC's name of a peer without what depends on the version of IP: ``ipv6:%5B::1%5D:80`` gives
    ``::1:80``."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host, _, port = unquote(address).rpartition(":")
    return f"{host.strip('[]').removeprefix('::ffff:')}:{port}"


def can_watch() -> bool:
    """Tells whether this system counts what sockets receive, and shows a process its own."""
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "TCP_INFO"):
        return False
    with socket.socket() as probe:
        try:
            return len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)) == _TCP_INFO_BYTES
        except OSError:
            return False
