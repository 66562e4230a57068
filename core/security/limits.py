"""Limits the rate of calls of each peer, by token buckets, of which a fixed number is kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kornel.core.service.machine.clock import SECOND_NS

MOST_PEERS: Final = 10_000
"""The most buckets that are kept; the one that has been unused for longest is dropped first. A peer whose bucket was
dropped starts with a full one."""

CHECKS_OF_CONNECTION: Final = (1.0, 5)
CHECKS_OF_ADDRESS: Final = (50.0, 100)
CHECKS_IN_ALL: Final = (200.0, 400)
"""The most invalid signatures that are checked, per second and in a burst, over all peers. Each costs the core a tenth
of a millisecond."""


class Buckets:
    """Keeps a bucket for each peer: *burst* calls at once, *per_second* in the long run."""

    def __init__(self, per_second: float, burst: int, *, most_peers: int = MOST_PEERS) -> None:
        self._most_peers = most_peers
        self._levels: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.resize(per_second, burst)

    def resize(self, per_second: float, burst: int) -> None:
        """Apply other limits from now on; what peers have used already counts."""
        self._per_ns = per_second / SECOND_NS
        self._burst = float(burst)

    def take_one(self, peer: str, now_ns: int) -> bool:
        """Tells whether *peer* may call once more now, and counts the call if so."""
        level = self._level_of(peer, now_ns)
        granted = level >= 1
        self._levels[peer] = (level - 1 if granted else level, now_ns)
        self._levels.move_to_end(peer)
        if len(self._levels) > self._most_peers:
            self._levels.popitem(last=False)
        return granted

    def is_empty(self, peer: str, now_ns: int) -> bool:
        """Tells whether *peer* would be refused now, without counting a call."""
        return peer in self._levels and self._level_of(peer, now_ns) < 1

    def __len__(self) -> int:
        return len(self._levels)

    def _level_of(self, peer: str, now_ns: int) -> float:
        left, at_ns = self._levels.get(peer, (self._burst, now_ns))
        return min(self._burst, left + max(0, now_ns - at_ns) * self._per_ns)


class SignatureChecks:
    """Bounds the checks of invalid signatures: by connection, by address, and over all.

    A connection with invalid signatures uses up its own share first, so that those of other connections from its
    address are still checked.
    """

    def __init__(self) -> None:
        self._of_connections = Buckets(*CHECKS_OF_CONNECTION)
        self._of_addresses = Buckets(*CHECKS_OF_ADDRESS)
        self._in_all = Buckets(*CHECKS_IN_ALL)

    def may_check(self, connection: str, address: str, now_ns: int) -> bool:
        """Tells whether one more signature may be checked. *connection* may be empty if it is not known."""
        return not (
            (connection and self._of_connections.is_empty(connection, now_ns))
            or self._of_addresses.is_empty(address, now_ns)
            or self._in_all.is_empty("", now_ns)
        )

    def count_bad(self, connection: str, address: str, now_ns: int) -> None:
        """Counts a signature that was checked and is invalid."""
        if connection:
            self._of_connections.take_one(connection, now_ns)
        self._of_addresses.take_one(address, now_ns)
        self._in_all.take_one("", now_ns)
