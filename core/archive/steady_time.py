"""A clock for the removal of old records, which only gives the time after clocks have gone evenly for a while.

A wall clock may be ahead for seconds, until somebody sets it right, and one reading of it would cost all that is kept.
So every clock is compared with monotonic time, which nobody sets, whenever somebody looks. One that has jumped is
believed only once it has gone evenly for long enough; of several the one that is behind counts.
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
    """A clock that is believed only while the clocks of the machine go evenly. *clocks* tell Unix nanoseconds.
    *steady_s*: how long they have to go evenly."""

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
        """Return what time it is; ``None``: no clock is to be believed yet. To be called often: it finds the jumps."""
        now_ns = self._monotonic_ns()
        passed_ns = now_ns - self._looked_ns
        tolerated_ns = JUMP_NS + DRIFT * passed_ns
        read_ns = [clock() for clock in self._clocks]
        for before_ns, after_ns in zip(self._read_ns, read_ns, strict=True):
            if abs(after_ns - before_ns - passed_ns) > tolerated_ns:
                self._steady_since_ns = now_ns
        self._looked_ns, self._read_ns = now_ns, read_ns
        return min(read_ns) if now_ns - self._steady_since_ns >= self._steady_ns else None
