"""Provides a clock for the removal of old records, which only gives the time after clocks have run evenly for a while.

A wall clock may be wrong for seconds until it is corrected, and one such reading could remove everything that is kept.
So at every call, each clock is compared with monotonic time, which cannot be set. A clock that has jumped is trusted
again only after it has run evenly for long enough. Of several clocks, the slowest one counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

SECOND_NS: Final = 10**9
JUMP_NS: Final = 5 * SECOND_NS
DRIFT: Final = 0.001
"""The most by which a clock may go faster or slower while it is being corrected."""


class SteadyTime:
    """A clock that is only trusted while the clocks of the machine run evenly. *clocks* return Unix nanoseconds.
    *steady_s*: the time for which they have to run evenly."""

    def __init__(
        self,
        clocks: Sequence[Callable[[], int]],
        steady_s: float,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clocks = clocks
        self._steady_ns = int(steady_s * SECOND_NS)
        self._monotonic_ns = monotonic_ns
        self._looked_ns = self._steady_since_ns = monotonic_ns()
        self._read_ns = [clock() for clock in clocks]

    def read_time(self) -> int | None:
        """Returns the time; ``None``: no clock can be trusted yet. It has to be called often, because each call looks
        for jumps."""
        now_ns = self._monotonic_ns()
        passed_ns = now_ns - self._looked_ns
        tolerated_ns = JUMP_NS + DRIFT * passed_ns
        read_ns = [clock() for clock in self._clocks]
        for before_ns, after_ns in zip(self._read_ns, read_ns, strict=True):
            if abs(after_ns - before_ns - passed_ns) > tolerated_ns:
                self._steady_since_ns = now_ns
        self._looked_ns, self._read_ns = now_ns, read_ns
        return min(read_ns) if now_ns - self._steady_since_ns >= self._steady_ns else None
