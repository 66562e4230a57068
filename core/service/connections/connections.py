"""Limits how far each gRPC connection is *ahead* of the core: by the bytes that arrived and were not handled yet.

gRPC itself bounds messages, headers and the calls of a connection, but not all of them together: it keeps arriving
bytes until a message is complete, and empty frames cost time. The kernel counts the bytes received on each socket, and
services report what they took, so the difference is known without reading a byte. A connection that is too far ahead is
cut.

Only headers may take far more memory than their bytes: until a client has confirmed the server's settings, it may refer
to earlier headers by one byte each, and gRPC expands them. A client has a few seconds for that, in which its connection
and the memory of the process are checked every few milliseconds.

If there are too many connections, those whose callers have not proved who they are give way to new ones, so that nobody
can lock others out by holding connections.

For connections to a socket file the kernel counts no bytes, and gRPC does not tell which one a call belongs to. So only
the number of these connections is limited.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.service.connections.addresses import address_block
from kornel.core.service.connections.surplus import GRACE_S, Member, Room, Standing, choose_surplus
from kornel.core.service.machine.own_memory import FreedMemory, OwnMemory
from kornel.core.service.machine.own_sockets import OwnSockets, Peer, bound_window, can_watch, received_bytes

BUSY_PAUSE_S: Final = 0.02
"""The pause between two checks while a connection is ahead, which bounds what it can do before it is cut."""
IDLE_PAUSE_S: Final = 0.05
RESTING_PAUSE_S: Final = 0.25
"""The pause while nothing happens, which ends at once when a client connects or sends something."""
RESTING_S: Final = 1.0
"""The longest time without a look at the connections, while nothing moves."""
MOVED_PART: Final = 0.005
"""The part of a processor above which all other threads together count as having done something; an idle core takes a
fifth of it. A client that sends so little that it stays below can make the process grow by a few MiB until the next
look."""
UNPROVEN_PAUSE_S: Final = 0.002
"""The pause between two checks while a connection is ahead that may still send expanding headers."""

UNPROVEN_S: Final = 6.0
"""The time for which a connection may not have confirmed the server's settings; gRPC closes it after five seconds."""
NEW_S: Final = 0.5
"""The time for which a connection without any call is checked after such short pauses."""
UNPROVEN_WINDOW: Final = 32 * 1024
"""The bytes that a new connection may send ahead of its reader. They are read even after the connection is cut."""
_WIDEST_WINDOW: Final = 1 << 30
UNPROVEN_BYTES: Final = 32 * 1024
"""The bytes by which a connection may be ahead without causing noticeable growth of memory."""
UNFOLDED_TIMES: Final = 6
"""The factor by which an ordinary request may take more memory than its bytes: gRPC holds it in parts and as a whole,
and so does its reader."""

HEADER_TIMES: Final = 80
"""The factor by which headers may take more memory than their bytes: 64 bytes for each header, and a margin."""
BUILDING_BYTES: Final = 256 * 2**20
"""The memory by which the process may grow in addition while a configuration is being read and built. Tens of thousands
of queues take this much."""

SILENT_S: Final = 0.5
"""The time for which a connection may be ahead by more than a little after its last call has ended."""

CALL_BYTES: Final = 16 * 1024
"""The bytes that a call may take besides its messages, for as many headers as gRPC accepts."""
MESSAGE_BYTES: Final = 96
"""The bytes that a message may take besides its own, in either direction: frames, TLS records, window updates."""
QUIET_BYTES_PER_S: Final = 4096
"""The bytes that a connection may send outside of calls: pings and their answers, settings."""

_AHEAD_AT_ALL: Final = 1 << 20
_LOG_PAUSE_S: Final = 10.0
_TRIM_PAUSE_S: Final = 1.0
"""The pause after the last cut until the memory of the connections is given back to the system."""


class Cause(StrEnum):
    """The reasons to cut a connection: the words of the log, and the label of the metric."""

    HEADERS = "headers"
    """The headers are longer than the settings of the server allow, or take far more memory than bytes."""
    AHEAD = "ahead"
    """The connection has sent too much that the core has not handled yet."""
    MANY = "many"
    """There are too many connections, and others rank higher."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bytes ahead, and numbers of connections.

    silent_bytes      bytes of one connection without a call
    silents_bytes     bytes of all such connections together
    unfolded_bytes    the memory by which the process may grow because of headers, beyond the bytes sent
    stranger_bytes    bytes of one connection that no resource manager has used
    manager_bytes     bytes of one connection of a resource manager, all streams together
    strangers_bytes   bytes of all connections that no resource manager has used
    total_bytes       bytes of all connections together
    connections       connections open at once
    host_connections  connections open at once from one address (or one block of 64 bits of IPv6), or of one process
                      that connects to a socket file
    """

    silent_bytes: int = 128 << 10
    silents_bytes: int = 1 << 20
    unfolded_bytes: int = 12 << 20
    stranger_bytes: int = 16 << 20
    manager_bytes: int = 88 << 20
    strangers_bytes: int = 32 << 20
    total_bytes: int = 128 << 20
    connections: int = 256
    host_connections: int = 64

    @property
    def accepted(self) -> int:
        """The connections that gRPC may accept: more than may be open, because otherwise gRPC would refuse a new
        connection before the keeper could choose which one to cut."""
        return self.connections + max(16, self.connections // 4) if can_watch() else self.connections

    @classmethod
    def limits_for(cls, connections: int, total_bytes: int) -> ConnectionLimits:
        """Returns limits for *connections* and *total_bytes* in all, with the default proportions for everything
        else."""
        return cls(
            stranger_bytes=min(16 << 20, total_bytes // 8),
            manager_bytes=total_bytes * 11 // 16,
            strangers_bytes=total_bytes // 4,
            total_bytes=total_bytes,
            connections=connections,
            host_connections=max(1, connections // 4),
        )


class Link:
    """One connection as the services see it. The event loop's thread writes it, and the keeper's thread reads it."""

    __slots__ = ("calls", "manager", "proved", "taken", "unseen")

    def __init__(self) -> None:
        self.taken = 0
        """The bytes that were handled, or that the client was allowed to send."""
        self.manager = False
        """Tells whether a resource manager was admitted over it."""
        self.proved = ""
        """The name that the last admitted caller has proved; empty: none has."""
        self.calls = 0
        self.unseen = 0
        """The number of checks that found no socket for it."""

    def note_taken(self, size: int) -> None:
        """Note that a message of *size* bytes has been handled."""
        self.taken += size + (size >> 6) + MESSAGE_BYTES


NO_LINK: Final = Link()

LINK: Final[ContextVar[Link]] = ContextVar("link", default=NO_LINK)
"""The connection of the call that is being served; tasks started by the call inherit it."""


@dataclass(slots=True)
class _Watched:
    opened_s: float
    idle_since_s: float
    """The time since which it has had no call."""
    block: str
    """The part of its address that counts as one caller."""
    received: int = 0
    taken: int = 0
    seen_s: float = 0.0
    ahead: float = 0.0
    silent_since_s: float = 0.0
    """The time since which it is ahead without a call."""
    round: int = 0
    held_back: bool = False
    """Set while the connection may send only a little ahead."""
    is_cut: bool = False


class ConnectionKeeper:
    """Watches the connections to one address, from a thread of its own because the event loop itself may be under
    attack."""

    def __init__(
        self,
        limits: ConnectionLimits,
        logger: FilteringBoundLogger,
        is_building: Callable[[], bool] = lambda: False,
    ) -> None:
        """Makes a keeper that watches nothing yet. *is_building* tells whether a configuration is being read or
        built."""
        self._limits = limits
        self._is_building = is_building
        self._was_building = False
        self._logger = logger
        self._links: dict[str, Link] = {}
        self._watched: dict[str, _Watched] = {}
        self._sockets = OwnSockets("")
        self._memory = OwnMemory()
        self._freed = FreedMemory(self._memory)
        self._calm_bytes = 0
        """The memory in use at the last check at which no connection that might send expanding headers was ahead."""
        self._round = 0
        self._ending = False
        self._bell: _Bell | None = None
        self._condemned: dict[str, int] = {}
        """The connections that were cut for their headers, each with the number of the check at that time."""
        self._looked_s = self._asked_s = -inf
        self._spent_s = 0.0
        """The time of the last check, the time of the last call of :meth:`_has_moved`, and the processor time that all
        other threads had taken then."""
        self._thread: threading.Thread | None = None
        self._cuts_untold: Counter[str] = Counter()
        self._told_s = -_LOG_PAUSE_S
        self.cuts: Counter[Cause] = Counter()
        """The numbers of connections that were cut, by cause."""
        self.open = 0
        """The number of connections at the last check."""

    @property
    def cut(self) -> int:
        """The number of connections that were cut."""
        return self.cuts.total()

    def start(self, address: str) -> None:
        """Watch the connections to *address*, at which this process listens."""
        if can_watch():
            self._sockets = OwnSockets(address)
            self._calm_bytes = self._memory.used_bytes()
            self._bell = _Bell(self._sockets.listeners())
            self._thread = threading.Thread(target=self._watch, args=(self._bell,), name="connections", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching. Another call changes nothing."""
        if self._ending:
            return
        self._ending = True
        if self._thread is not None and self._bell is not None:
            self._bell.end_pause()
            self._thread.join()
            self._bell.close()
        self._memory.close()

    def begin_call(self, peer: str) -> Link:
        """Begins a call over the connection of *peer*, as gRPC names it. :meth:`end_call` has to follow."""
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = Link()
        link.calls += 1
        link.taken += CALL_BYTES
        return link

    def end_call(self, peer: str, link: Link) -> None:
        """Note the end of a call. Its connection is kept until it is closed or, if it is not watched, until its last
        call ends."""
        link.calls -= 1
        if not link.calls and self._thread is None:
            self._links.pop(peer, None)

    def cut_connection(self, peer: str) -> None:
        """Cut the connection of *peer* now, before another of its calls is handled."""
        if peer in self._condemned:
            return
        self._condemned[peer] = self._round
        for descriptor, connected in self._sockets.connections():
            if connected.name == peer:
                self._cut_connection(descriptor, connected, Cause.HEADERS)

    def _watch(self, bell: _Bell) -> None:
        pause_s, resting = IDLE_PAUSE_S, False
        while not self._ending:
            rung = bell.wait_resting(RESTING_PAUSE_S) if resting else bell.wait(pause_s)
            try:
                if not rung and pause_s == IDLE_PAUSE_S and not self._has_moved():
                    resting = True
                    continue
                resting = False
                self._looked_s = self._asked_s = time.monotonic()
                self._spent_s = _others_s()
                pause_s = self._check_connections()
            except Exception as error:
                self._logger.error("connections could not be looked at", exc_info=error)
                pause_s = 1.0

    def _has_moved(self) -> bool:
        """Tells whether anything has happened since the last call, or the last check is long ago.

        A check asks the kernel about every open file, so twenty checks a second would be most of the cost of an idle
        core.
        """
        now_s, spent_s = time.monotonic(), _others_s()
        took_s, passed_s = spent_s - self._spent_s, now_s - self._asked_s
        self._spent_s, self._asked_s = spent_s, now_s
        if self._freed.is_due or now_s - self._looked_s >= RESTING_S:
            return True
        return took_s > passed_s * MOVED_PART

    def _check_connections(self) -> float:
        """Check every connection once, and cut those that are too far ahead. Returns the seconds until the next
        check."""
        self._round += 1
        # The time is read once for the whole check, because this thread may be held up in the middle of it, and then no
        # connection should count as silent for longer.
        now_s = time.monotonic()
        ahead_of: dict[bool, list[_Ahead]] = {False: [], True: []}
        unproven: list[_Ahead] = []
        present: list[tuple[int, Peer]] = []
        new = False
        for descriptor, peer in self._sockets.connections():
            received = received_bytes(descriptor) if peer.counted else 0
            if received is None:
                continue
            link = self._links.get(peer.name)
            watched = self._watched.get(peer.name)
            if watched is None:
                watched = self._watched[peer.name] = _Watched(now_s, now_s, address_block(peer.host), seen_s=now_s)
                if self._bell is not None:
                    self._bell.listen_on(descriptor)
                if peer.counted:
                    bound_window(descriptor, UNPROVEN_WINDOW)
                    watched.held_back = True
            ahead = self._count_ahead(watched, received, link, now_s)
            if not watched.is_cut:
                present.append((descriptor, peer))
            trusted = link is not None and link.manager
            age_s = now_s - watched.opened_s
            if watched.held_back and (trusted or age_s >= UNPROVEN_S):
                bound_window(descriptor, _WIDEST_WINDOW)
                watched.held_back = False
            new = new or (peer.counted and link is None and age_s < NEW_S)
            if ahead:
                found = _Ahead(ahead, descriptor, peer, link is None)
                ahead_of[trusted].append(found)
                if not trusted and age_s < UNPROVEN_S and ahead > UNPROVEN_BYTES:
                    unproven.append(found)
        self._forget_closed()
        self.open = len(present)
        self._cut_surplus(present, now_s)
        limits = self._limits
        self._cut_unfolding(unproven, sum(each.ahead for found in ahead_of.values() for each in found))
        together = min(limits.strangers_bytes, limits.total_bytes)
        self._cut_furthest(ahead_of[False], limits.stranger_bytes, together, now_s)
        self._cut_furthest(ahead_of[True], limits.manager_bytes, limits.total_bytes, now_s)
        self._freed.look(now_s)
        if new or unproven:
            return UNPROVEN_PAUSE_S
        far = any(each.ahead >= _AHEAD_AT_ALL for found in ahead_of.values() for each in found)
        return BUSY_PAUSE_S if far else IDLE_PAUSE_S

    def _count_ahead(self, watched: _Watched, received: int, link: Link | None, now_s: float) -> float:
        if received < watched.received or (link is not None and link.taken < watched.taken):
            watched.received = watched.taken = 0  # It is another connection from the same port.
            watched.opened_s = watched.idle_since_s = now_s
            watched.is_cut = False
        taken = 0 if link is None else link.taken
        watched.ahead += received - watched.received - (taken - watched.taken)
        watched.ahead -= (now_s - watched.seen_s) * QUIET_BYTES_PER_S
        watched.ahead = max(0.0, watched.ahead)
        if watched.ahead <= self._limits.silent_bytes or (link is not None and (link.calls or link.manager)):
            watched.silent_since_s = now_s
        if taken != watched.taken or (link is not None and link.calls):
            watched.idle_since_s = now_s
        watched.received, watched.taken, watched.seen_s, watched.round = received, taken, now_s, self._round
        return watched.ahead

    def _forget_closed(self) -> None:
        for peer in [peer for peer, watched in self._watched.items() if watched.round != self._round]:
            del self._watched[peer]
            self._condemned.pop(peer, None)
        for peer, since in list(self._condemned.items()):
            if peer not in self._watched and self._round - since > 1:  # It was closed before any check saw it.
                self._condemned.pop(peer, None)
        for peer, link in list(self._links.items()):
            if peer in self._watched or link.calls:
                link.unseen = 0
            elif link.unseen < 2:  # It may have begun after this check.
                link.unseen += 1
            else:
                self._links.pop(peer, None)

    def _cut_surplus(self, present: list[tuple[int, Peer]], now_s: float) -> None:
        """Cut the surplus of *present* (:mod:`kornel.core.service.connections.surplus`)."""
        limits = self._limits
        everywhere = Room(limits.connections, (limits.accepted - limits.connections) // 2)
        of_block = Room(limits.host_connections, limits.host_connections // 4)
        if len(present) <= min(everywhere.most, of_block.most):
            return
        members = [self._member_of(peer, now_s) for _, peer in present]
        surplus = set(choose_surplus(members, everywhere, of_block))
        for descriptor, peer in present:
            if peer.name in surplus:
                self._cut_connection(descriptor, peer, Cause.MANY, open=self.open)

    def _member_of(self, peer: Peer, now_s: float) -> Member:
        """Returns the rank of the connection of *peer*. For a socket file it is not known which connection has a
        call."""
        watched, link = self._watched[peer.name], self._links.get(peer.name)
        holder = watched.block
        if not peer.counted:
            standing, since_s = Standing.PROVED, watched.opened_s
        elif link is not None and link.manager:
            standing, since_s, holder = Standing.MANAGER, watched.opened_s, link.proved or holder
        elif link is not None and link.proved:
            standing, holder = (Standing.PROVED if link.calls else Standing.PROVED_IDLE), link.proved
            since_s = watched.opened_s if link.calls else watched.idle_since_s
        elif now_s - watched.opened_s < GRACE_S:
            standing, since_s = Standing.NEWCOMER, watched.opened_s
        elif link is not None and link.calls:
            standing, since_s = Standing.CALLING, watched.opened_s
        else:
            standing, since_s = Standing.IDLE if link is not None else Standing.NEVER_CALLED, watched.idle_since_s
        return Member(peer.name, watched.block, standing, since_s, holder)

    def _cut_unfolding(self, unproven: list[_Ahead], ahead: float) -> None:
        """Cuts all of *unproven* if the process grows by more than the bytes *ahead* explain, and they may be the
        reason."""
        used, building = self._memory.used_bytes(), self._is_building()
        if not unproven or (self._was_building and not building):
            self._calm_bytes = used
        self._was_building = building
        grown = used - self._calm_bytes
        # The memory that the process holds grows for other reasons as well, above all by Python's objects.
        allowed = self._limits.unfolded_bytes * (1 if self._memory.counts_used else 3)
        if HEADER_TIMES * sum(each.ahead for each in unproven) <= allowed:
            return
        if building:
            allowed += BUILDING_BYTES
        if grown > allowed and grown > UNFOLDED_TIMES * ahead:
            for found in unproven:
                self._cut_connection(found.descriptor, found.peer, Cause.HEADERS, ahead=int(found.ahead))

    def _cut_furthest(self, found: list[_Ahead], one: int, together: int, now_s: float) -> None:
        """Cut those of *found* that are too far ahead, and then the furthest ones until all together are not."""
        total = sum(each.ahead for each in found)
        callless = sum(each.ahead for each in found if each.callless)
        for each in sorted(found, key=lambda each: each.ahead, reverse=True):
            ahead = self._watched[each.peer.name].ahead
            silent_s = now_s - self._watched[each.peer.name].silent_since_s
            # Before its first call a client can send no more than headers and what fits into a window, so there is no
            # delay.
            silent = silent_s > SILENT_S or (
                each.callless and (ahead > self._limits.silent_bytes or callless > self._limits.silents_bytes)
            )
            if ahead and (ahead > one or total > together or silent):
                total -= ahead
                callless -= ahead if each.callless else 0
                self._cut_connection(each.descriptor, each.peer, Cause.AHEAD, ahead=int(ahead))

    def _cut_connection(self, descriptor: int, peer: Peer, cause: Cause, **details: int) -> None:
        if not self._sockets.hang_up(descriptor, peer):
            return
        self.cuts[cause] += 1
        now_s = time.monotonic()
        watched = self._watched.get(peer.name)
        if watched is not None:
            watched.ahead, watched.is_cut = 0.0, True
        self._freed.give_back_at(now_s + _TRIM_PAUSE_S)
        self._cuts_untold[cause] += 1
        if now_s - self._told_s >= _LOG_PAUSE_S:
            self._told_s = now_s
            self._logger.warning(
                "connection cut", peer=peer.name, cause=str(cause), since_last=self._cuts_untold.total(), **details
            )
            self._cuts_untold.clear()


def _others_s() -> float:
    """Returns the processor time that all threads but this one have taken."""
    return time.process_time() - time.thread_time()


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A connection that is ahead of the core. ``callless``: it has not begun a call yet."""

    ahead: float
    descriptor: int
    peer: Peer
    callless: bool


class _Bell:
    """The pause of the keeper, which ends when it is called, when a client connects, or after its time; a resting pause
    also ends when bytes arrive.

    A client that connects or sends may be missed if gRPC is faster, but only until the end of the pause. Bytes that
    keep coming are not missed, because some are waiting to be read at any moment.
    """

    def __init__(self, listeners: list[int]) -> None:
        self._listeners = listeners
        self._called = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls, self._everything = select.epoll(), select.epoll()
        for poll in (self._calls, self._everything):
            poll.register(self._called, select.EPOLLIN)
            for listener in listeners:
                poll.register(listener, select.EPOLLIN | select.EPOLLET)

    def end_pause(self) -> None:
        os.eventfd_write(self._called, 1)

    def listen_on(self, descriptor: int) -> None:
        """Make bytes that arrive over *descriptor* end a resting pause. The kernel drops it when it is closed."""
        with suppress(OSError):  # It was closed in the meantime, or is known already.
            self._everything.register(descriptor, select.EPOLLIN | select.EPOLLET)

    def wait(self, pause_s: float) -> bool:
        """Waits until the pause is over, is ended, or a client connects. Returns whether one of the last two was the
        reason."""
        return bool(self._calls.poll(pause_s))

    def wait_resting(self, pause_s: float) -> bool:
        """Waits as :meth:`wait` does, and returns also when a client has sent something."""
        return bool(self._everything.poll(pause_s))

    def close(self) -> None:
        self._calls.close()
        self._everything.close()
        os.close(self._called)
        for listener in self._listeners:
            os.close(listener)
