"""Limits on the rate of calls of each peer: token buckets, of which a fixed number is kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kornel.core.service.clock import SECOND_NS

MOST_PEERS: Final = 10_000
"""Buckets kept; the one unused for longest goes first. A peer that comes back after that starts with a full one."""

CHECKS_OF_CONNECTION: Final = (1.0, 5)
CHECKS_OF_ADDRESS: Final = (50.0, 100)
CHECKS_IN_ALL: Final = (200.0, 400)
"""Signatures that do not hold, a second and at once. Each costs the core a tenth of a millisecond."""


class Buckets:
    """One bucket for each peer: *burst* calls at once, *per_second* in the long run."""

    def __init__(self, per_second: float, burst: int, *, most_peers: int = MOST_PEERS) -> None:
        self._most_peers = most_peers
        self._levels: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.resize(per_second, burst)

    def resize(self, per_second: float, burst: int) -> None:
        """Apply other limits from now on; what peers have used stays used."""
        self._per_ns = per_second / SECOND_NS
        self._burst = float(burst)

    def take_one(self, peer: str, now_ns: int) -> bool:
        """Tells whether *peer* may call once more now, which is counted if so."""
        level = self._level_of(peer, now_ns)
        granted = level >= 1
        self._levels[peer] = (level - 1 if granted else level, now_ns)
        self._levels.move_to_end(peer)
        if len(self._levels) > self._most_peers:
            self._levels.popitem(last=False)
        return granted

    def is_empty(self, peer: str, now_ns: int) -> bool:
        """Tells whether *peer* would be refused now; counts nothing."""
        return peer in self._levels and self._level_of(peer, now_ns) < 1

    def __len__(self) -> int:
        return len(self._levels)

    def _level_of(self, peer: str, now_ns: int) -> float:
        left, at_ns = self._levels.get(peer, (self._burst, now_ns))
        return min(self._burst, left + max(0, now_ns - at_ns) * self._per_ns)


class SignatureChecks:
    """The allowance for checks of signatures that do not hold: by connection, by address, and by all together.

    A connection that shows bad ones uses up its own share first, so that others from its address are still checked.
    """

    def __init__(self) -> None:
        self._of_connections = Buckets(*CHECKS_OF_CONNECTION)
        self._of_addresses = Buckets(*CHECKS_OF_ADDRESS)
        self._in_all = Buckets(*CHECKS_IN_ALL)

    def may_check(self, connection: str, address: str, now_ns: int) -> bool:
        """Return whether one more may be looked at. *connection* may be empty: nobody knows which it is."""
        return not (
            (connection and self._of_connections.is_empty(connection, now_ns))
            or self._of_addresses.is_empty(address, now_ns)
            or self._in_all.is_empty("", now_ns)
        )

    def count_bad(self, connection: str, address: str, now_ns: int) -> None:
        """Count a signature that was checked and did not hold."""
        if connection:
            self._of_connections.take_one(connection, now_ns)
        self._of_addresses.take_one(address, now_ns)
        self._in_all.take_one("", now_ns)
