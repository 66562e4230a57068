"""Virtual time, and the calls that are to be made at some later time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from kornel.core.service.machine.clock import SECOND_NS, ManualClock


class VirtualAgenda:
    """The agenda of a model. Its time is that of *clock*, of which *speed* simulated seconds pass in each second. Times
    are rounded to nanoseconds; what is due at the same time is done in the order in which it was planned."""

    def __init__(self, clock: ManualClock, speed: float = 1.0) -> None:
        self._clock: Final = clock
        self._speed: Final = speed
        self._began_ns: Final = clock.now_ns()
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    @property
    def elapsed_ns(self) -> int:
        """The core's nanoseconds since the start."""
        return self._clock.now_ns() - self._began_ns

    @property
    def real_s(self) -> float:
        """The core's seconds since the start."""
        return self.elapsed_ns / SECOND_NS

    @property
    def now_s(self) -> float:
        """The simulated seconds since the start."""
        return self.elapsed_ns * self._speed / SECOND_NS

    @property
    def wall_ns(self) -> int:
        """The core's time as Unix time."""
        return self._clock.wall_ns()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call *callback* in *delay_s* simulated seconds."""
        self._add_call(self._clock.now_ns() + round(max(0.0, delay_s) * SECOND_NS / self._speed), callback)

    def call_at(self, at_s: float, callback: Callable[[], None]) -> None:
        """Call *callback* at the simulated time *at_s*, or next if that is past."""
        at_ns = self._began_ns + round(at_s * SECOND_NS / self._speed)
        self._add_call(max(self._clock.now_ns(), at_ns), callback)

    def next_ns(self) -> int | None:
        """Returns when the next call is due; ``None``: there is none."""
        return self._calls[0][0] if self._calls else None

    def run_due(self) -> None:
        """Make the calls that are due, and those which these plan for now."""
        now_ns = self._clock.now_ns()
        while self._calls and self._calls[0][0] <= now_ns:
            heappop(self._calls)[2]()

    def _add_call(self, at_ns: int, callback: Callable[[], None]) -> None:
        heappush(self._calls, (at_ns, next(self._numbers), callback))
