"""Time as the shell sees it: a value handed to the engine, and a way to be called later.

The engine never asks what time it is; whoever drives it does, through a :class:`Clock`. Tests drive a
:class:`ManualClock` and never wait for real.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Final, Protocol

SECOND_NS: Final = 1_000_000_000
LONGEST_WAIT_NS: Final = 60 * SECOND_NS


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Never make it. Without effect if it was made already."""


class Clock(Protocol):
    """Unix time in nanoseconds that never goes back."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch, never less than the last answer."""

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Call *callback* from the event loop at *at_ns*, or soon if that is past. It may come early, never twice."""


class SystemClock:
    """The machine's wall clock, held still while somebody turns it back."""

    def __init__(self) -> None:
        self._latest_ns = 0

    def now_ns(self) -> int:
        self._latest_ns = max(self._latest_ns, time.time_ns())
        return self._latest_ns

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        # Loop timers count monotonic time: a wall clock that is set forward shows only when somebody looks again,
        # which the longest wait bounds.
        wait_ns = min(max(0, at_ns - self.now_ns()), LONGEST_WAIT_NS)
        return asyncio.get_running_loop().call_later(wait_ns / SECOND_NS, callback)


class _ManualTimer:
    """One entry of a manual clock's agenda."""

    __slots__ = ("_agenda", "callback")

    def __init__(self, agenda: dict[_ManualTimer, tuple[int, int]], callback: Callable[[], None]) -> None:
        self._agenda = agenda
        self.callback = callback

    def cancel(self) -> None:
        self._agenda.pop(self, None)


class ManualClock:
    """A clock that stands still until :meth:`advance` moves it, making the calls that fall due on the way."""

    def __init__(self, start_ns: int = 1_700_000_000 * SECOND_NS) -> None:
        self._now_ns = start_ns
        self._order = itertools.count()
        # Whoever keeps time cancels nearly all its timers and has few at once: cheaper to search than to tidy up.
        self._agenda: dict[_ManualTimer, tuple[int, int]] = {}

    def now_ns(self) -> int:
        return self._now_ns

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        timer = _ManualTimer(self._agenda, callback)
        self._agenda[timer] = (at_ns, next(self._order))
        if at_ns <= self._now_ns:
            asyncio.get_running_loop().call_soon(self._fire_due)
        return timer

    def next_call_ns(self) -> int | None:
        """When the next call falls due; ``None``: nothing is on the agenda."""
        return min(self._agenda.values(), default=(None, 0))[0]

    def advance(self, by_ns: int) -> None:
        """Move on by *by_ns* and make the calls that are now due, earliest first. Raises ValueError to go back."""
        if by_ns < 0:
            raise ValueError("time does not go back")
        self._now_ns += by_ns
        self._fire_due()

    def _fire_due(self) -> None:
        while self._agenda:
            timer = min(self._agenda, key=self._agenda.__getitem__)
            if self._agenda[timer][0] > self._now_ns:
                return
            del self._agenda[timer]
            timer.callback()
