"""How far each gRPC connection is ahead of the core: bytes that have arrived and that nobody has taken yet.

gRPC itself bounds a message, a header and the calls of a connection, but not all of them together: what arrives is held
until a message is whole, and frames that mean nothing cost time. The kernel counts what it received on each socket, and
services say what they took, so what lies between is known without looking at a byte. A connection too far ahead is cut.

Only TCP connections are watched: whoever reaches a socket file may as well be told by its permissions to stay away.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from structlog.typing import FilteringBoundLogger

BUSY_PAUSE_S: Final = 0.02
"""Between two looks while somebody is ahead: what a connection can do before it is cut."""
IDLE_PAUSE_S: Final = 0.05

SILENT_S: Final = 0.5
"""How long a connection may be ahead by more than a little before a call of it has begun."""

CALL_BYTES: Final = 16 * 1024
"""What starting a call may take besides its messages: headers, as many as gRPC lets through."""
MESSAGE_BYTES: Final = 96
"""What a message may take besides itself, either way: frames, TLS records, window updates."""
QUIET_BYTES_PER_S: Final = 4096
"""What a connection may send that belongs to nothing: pings and their answers, settings."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
_AHEAD_AT_ALL: Final = 1 << 20
_TCP_INFO_BYTES: Final = 136
_BYTES_RECEIVED: Final = 128
_LOG_PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bytes ahead, and numbers of connections.

    silent_bytes      of one connection without a call, for longer than a call takes to begin
    stranger_bytes    of one connection that nobody has used as a resource manager
    manager_bytes     of one that somebody has: all streams together
    strangers_bytes   of all connections of the first two kinds together
    total_bytes       of all connections together
    connections       open at once
    host_connections  open at once from one address
    """

    silent_bytes: int = 256 << 10
    stranger_bytes: int = 16 << 20
    manager_bytes: int = 128 << 20
    strangers_bytes: int = 32 << 20
    total_bytes: int = 192 << 20
    connections: int = 256
    host_connections: int = 64

    @classmethod
    def of(cls, connections: int, total_bytes: int) -> ConnectionLimits:
        """So many in all, and everything else what is to it as by default."""
        return cls(
            stranger_bytes=min(16 << 20, total_bytes // 12),
            manager_bytes=total_bytes * 2 // 3,
            strangers_bytes=total_bytes // 6,
            total_bytes=total_bytes,
            connections=connections,
            host_connections=max(1, connections // 4),
        )


class Link:
    """One connection, as far as the services know it. Written by the event loop's thread, read by the keeper's."""

    __slots__ = ("calls", "manager", "taken", "unseen")

    def __init__(self) -> None:
        self.taken = 0
        """Bytes that somebody has taken, or was entitled to send."""
        self.manager = False
        """Somebody has been let in as a resource manager over it."""
        self.calls = 0
        self.unseen = 0
        """Looks at which no socket was found for it."""

    def took(self, size: int) -> None:
        """A message of *size* bytes has been dealt with."""
        self.taken += size + (size >> 6) + MESSAGE_BYTES


NO_LINK: Final = Link()

LINK: Final[ContextVar[Link]] = ContextVar("link", default=NO_LINK)
"""The connection of the call that is being served; tasks started by the call inherit it."""


@dataclass(slots=True)
class _Watched:
    received: int = 0
    taken: int = 0
    seen_s: float = 0.0
    ahead: float = 0.0
    silent_since_s: float = 0.0
    """Since when it is ahead without a call."""
    round: int = 0


class ConnectionKeeper:
    """Watches the connections to one port from a thread of its own: the event loop may be what is being attacked."""

    def __init__(self, limits: ConnectionLimits, logger: FilteringBoundLogger) -> None:
        self._limits = limits
        self._logger = logger
        self._links: dict[str, Link] = {}
        self._watched: dict[str, _Watched] = {}
        self._port = 0
        self._round = 0
        self._ending = False
        self._at_once = threading.Event()
        self._condemned: set[str] = set()
        self._thread: threading.Thread | None = None
        self._cuts_untold: Counter[str] = Counter()
        self._told_s = -_LOG_PAUSE_S
        self.cut = 0
        """Connections that were cut."""
        self.open = 0
        """Connections at the last look."""

    def start(self, port: int) -> None:
        """Watch the connections to *port* of this process; 0: there are none to watch, it is a socket file."""
        if port and _can_watch():
            self._port = port
            self._thread = threading.Thread(target=self._watch, name="connections", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._ending = True
        self._at_once.set()
        if self._thread is not None:
            self._thread.join()

    def enter(self, peer: str) -> Link:
        """A call over the connection of *peer*, as gRPC names it, begins; to be followed by :meth:`leave`."""
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = Link()
        link.calls += 1
        link.taken += CALL_BYTES
        return link

    def leave(self, peer: str, link: Link) -> None:
        """A call is over. Its connection is known until it is closed; unwatched, until its last call ends."""
        link.calls -= 1
        if not link.calls and self._thread is None:
            self._links.pop(peer, None)

    def condemn(self, peer: str) -> None:
        """Have the connection of *peer* cut at the next look, which is now."""
        self._condemned.add(peer)
        self._at_once.set()

    def _watch(self) -> None:
        pause_s = IDLE_PAUSE_S
        while not self._ending:
            self._at_once.wait(pause_s)
            self._at_once.clear()
            try:
                pause_s = BUSY_PAUSE_S if self._look() else IDLE_PAUSE_S
            except Exception as error:
                self._logger.error("connections could not be looked at", exc_info=error)
                pause_s = 1.0

    def _look(self) -> bool:
        """Look at every connection once, cut those that go too far. Whether anybody is ahead."""
        self._round += 1
        hosts: Counter[str] = Counter()
        ahead_of: dict[bool, list[tuple[float, int, str]]] = {False: [], True: []}
        opened: list[tuple[int, str, str]] = []
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the numbers are all that is wanted
            found = _looked_at(int(name), self._port)
            if found is None:
                continue
            peer, host, received = found
            link = self._links.get(peer)
            watched = self._watched.get(peer)
            if watched is None:
                watched = self._watched[peer] = _Watched(seen_s=time.monotonic())
                opened.append((int(name), peer, host))
            hosts[host] += 1
            if peer in self._condemned:
                self._condemned.discard(peer)
                self._cut(int(name), peer, "not what a client of gRPC does")
                continue
            ahead = self._count(watched, received, link)
            if ahead:
                ahead_of[link is not None and link.manager].append((ahead, int(name), peer))
        self._forget_closed()
        self.open = sum(hosts.values())
        self._cut_newest(opened, hosts)
        limits = self._limits
        self._cut_furthest(ahead_of[False], limits.stranger_bytes, min(limits.strangers_bytes, limits.total_bytes))
        self._cut_furthest(ahead_of[True], limits.manager_bytes, limits.total_bytes)
        return any(ahead >= _AHEAD_AT_ALL for found in ahead_of.values() for ahead, _, _ in found)

    def _count(self, watched: _Watched, received: int, link: Link | None) -> float:
        now_s = time.monotonic()
        if received < watched.received or (link is not None and link.taken < watched.taken):
            watched.received = watched.taken = 0  # Another connection from the same port.
        taken = 0 if link is None else link.taken
        watched.ahead += received - watched.received - (taken - watched.taken)
        watched.ahead -= (now_s - watched.seen_s) * QUIET_BYTES_PER_S
        watched.ahead = max(0.0, watched.ahead)
        if watched.ahead <= self._limits.silent_bytes or (link is not None and (link.calls or link.manager)):
            watched.silent_since_s = now_s
        watched.received, watched.taken, watched.seen_s, watched.round = received, taken, now_s, self._round
        return watched.ahead

    def _forget_closed(self) -> None:
        for peer in [peer for peer, watched in self._watched.items() if watched.round != self._round]:
            del self._watched[peer]
        for peer, link in list(self._links.items()):
            if peer in self._watched or link.calls:
                link.unseen = 0
            elif link.unseen < 2:  # It may have begun after this look.
                link.unseen += 1
            else:
                self._links.pop(peer, None)

    def _cut_newest(self, opened: list[tuple[int, str, str]], hosts: Mapping[str, int]) -> None:
        over = Counter({host: count - self._limits.host_connections for host, count in hosts.items()})
        total = self.open - self._limits.connections
        for descriptor, peer, host in reversed(opened):
            if over[host] > 0 or total > 0:
                over[host] -= 1
                total -= 1
                self._cut(descriptor, peer, "too many connections")

    def _cut_furthest(self, found: list[tuple[float, int, str]], one: int, together: int) -> None:
        """Cut whoever of *found* is too far ahead, and the furthest while all together are."""
        now_s = time.monotonic()
        total = sum(ahead for ahead, _, _ in found)
        for ahead, descriptor, peer in sorted(found, reverse=True):
            silent = now_s - self._watched[peer].silent_since_s > SILENT_S
            if ahead > one or total > together or silent:
                total -= ahead
                self._cut(descriptor, peer, "too far ahead of the core", ahead=int(ahead))

    def _cut(self, descriptor: int, peer: str, cause: str, **details: int) -> None:
        # Of a copy it is certain whose connection it is, whatever gRPC closes and opens meanwhile.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if _named(connection.getpeername())[0] != peer:
                return
            connection.shutdown(socket.SHUT_RDWR)
        self.cut += 1
        watched = self._watched.get(peer)
        if watched is not None:
            watched.ahead = 0.0
        self._cuts_untold[cause] += 1
        now_s = time.monotonic()
        if now_s - self._told_s >= _LOG_PAUSE_S:
            self._told_s = now_s
            self._logger.warning(
                "connection cut", peer=peer, cause=cause, since_last=self._cuts_untold.total(), **details
            )
            self._cuts_untold.clear()


def _looked_at(descriptor: int, port: int) -> tuple[str, str, int] | None:
    """Name of the peer as gRPC has it, its host and what was received; ``None``: no connection to *port*."""
    try:
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:
        return None
    try:
        own = connection.getsockname()
        if not isinstance(own, tuple) or own[1] != port:
            return None
        peer, host = _named(connection.getpeername())
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        (received,) = struct.unpack_from("Q", info, _BYTES_RECEIVED)
    except (OSError, struct.error):
        return None
    else:
        return peer, host, received
    finally:
        connection.detach()


def _named(address: tuple[str, int] | tuple[str, int, int, int]) -> tuple[str, str]:
    """A peer as :func:`host_and_port` gives it, and its host alone."""
    host = address[0].removeprefix("::ffff:")
    return f"{host}:{address[1]}", host


def host_and_port(peer: str) -> str:
    """gRPC's name of a peer without what depends on the version of IP: ``ipv6:%5B::1%5D:80`` gives ``::1:80``."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host, _, port = unquote(address).rpartition(":")
    return f"{host.strip('[]').removeprefix('::ffff:')}:{port}"


def _can_watch() -> bool:
    """Whether this system counts what sockets receive, and shows a process its own."""
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "TCP_INFO"):
        return False
    with socket.socket() as probe:
        try:
            return len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)) == _TCP_INFO_BYTES
        except OSError:
            return False
