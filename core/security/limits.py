"""How often each peer may call: token buckets, of which a fixed number is kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from core.service.clock import SECOND_NS

MOST_PEERS: Final = 10_000
"""Buckets kept; the one unused for longest goes first. A peer that comes back after that starts with a full one."""


class Buckets:
    """One bucket for each peer: *burst* calls at once, *per_second* in the long run."""

    def __init__(self, per_second: float, burst: int, *, most_peers: int = MOST_PEERS) -> None:
        self._most_peers = most_peers
        self._levels: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.resize(per_second, burst)

    def resize(self, per_second: float, burst: int) -> None:
        """Other limits from now on; what peers have used stays used."""
        self._per_ns = per_second / SECOND_NS
        self._burst = float(burst)

    def take(self, peer: str, now_ns: int) -> bool:
        """Whether *peer* may call once more now, which is counted if so."""
        level = self._level(peer, now_ns)
        granted = level >= 1
        self._levels[peer] = (level - 1 if granted else level, now_ns)
        self._levels.move_to_end(peer)
        if len(self._levels) > self._most_peers:
            self._levels.popitem(last=False)
        return granted

    def empty(self, peer: str, now_ns: int) -> bool:
        """Whether *peer* would be refused now; counts nothing."""
        return peer in self._levels and self._level(peer, now_ns) < 1

    def __len__(self) -> int:
        return len(self._levels)

    def _level(self, peer: str, now_ns: int) -> float:
        left, at_ns = self._levels.get(peer, (self._burst, now_ns))
        return min(self._burst, left + max(0, now_ns - at_ns) * self._per_ns)
