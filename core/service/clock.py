"""Time as the shell sees it: a value handed to the engine, and a way to be called later. Decided here alone.

There are two kinds of time. What *lasts* (delays, timeouts, pauses, rates, lock-outs, retention of what is cached) is
counted by the core's own time, which always runs on as fast as time passes, whatever somebody does to the machine's
clock. It begins as Unix time when the core starts, so that it also serves to date things, and creation times that shims
state are brought to it when they come in. What *expires at a date* that others chose (certificates, tokens) is held
against the wall clock, which may be set at any moment. :meth:`Clock.now_ns` is the former, :meth:`Clock.wall_ns` the
latter; a test (``tests/architecture/test_time.py``) keeps the machine's clock out of all other modules.

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
"""The longest time after which the wall clock is read again while a call waits for a date, since it may have been
set."""
NOTICED_NS: Final = 2 * SECOND_NS
"""The wall clock drifts, and is kept right by steps smaller than this all the time."""


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Cancel the call. Without effect if it was made already."""


class Clock(Protocol):
    """The core's own time, Unix nanoseconds when it began, and the wall clock beside it."""

    def now_ns(self) -> int:
        """Returns the core's own time, never less than the last answer: for everything that lasts."""

    def wall_ns(self) -> int:
        """Returns the time of the machine's clock: Unix time in nanoseconds, which may go back. For dates that others
        chose."""

    @property
    def ahead_s(self) -> int:
        """Whole seconds by which the wall clock has been set ahead of the core's time; below 0: back."""

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Call *callback* from the event loop when the core's time is *at_ns*, or soon if that is past.

        It may come early, never twice.
        """

    def call_at_wall(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Call *callback* when the wall clock shows *at_ns*, or earlier, because somebody may set it: look again."""


def wall_ns() -> int:
    """Returns the time of the machine's clock, for commands that show how long ago something was."""
    return time.time_ns()


class Offset:
    """The amount by which the wall clock was set, constant until it changes by more than clocks do by themselves."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = 0

    def seconds(self, wall: int, now: int) -> int:
        """Returns whole seconds from *now* to *wall*, both in nanoseconds."""
        ahead_ns = wall - now
        if abs(ahead_ns - self._seconds * SECOND_NS) >= NOTICED_NS:
            self._seconds = round(ahead_ns / SECOND_NS)
        return self._seconds


class SystemClock:
    """The machine's monotonic clock, dated by its wall clock once, when the core starts."""

    def __init__(self, not_before_ns: int = 0) -> None:
        """Makes a clock that shows at least *not_before_ns*: what the core before this one saw is not to come again."""
        self._began_ns = max(time.time_ns(), not_before_ns) - time.monotonic_ns()
        self._offset = Offset()

    def now_ns(self) -> int:
        """Returns the core's own time."""
        return self._began_ns + time.monotonic_ns()

    def follow_time(self, at_ns: int, not_before_ns: int) -> None:
        """Shows *at_ns* from now on, if it is known (not 0) and far from what is shown, and nothing before
        *not_before_ns*: the time of a core that another one takes over from, whatever the machine's clock says."""
        shown_ns = now_ns = self.now_ns()
        if at_ns and abs(at_ns - now_ns) >= NOTICED_NS:
            shown_ns = at_ns
        self._began_ns += max(shown_ns, not_before_ns) - now_ns

    def wall_ns(self) -> int:
        """Returns the time of the machine's clock."""
        return time.time_ns()

    @property
    def ahead_s(self) -> int:
        """Whole seconds by which the wall clock is ahead of the core's time."""
        return self._offset.seconds(time.time_ns(), self.now_ns())

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls *callback* when the core's time is *at_ns*."""
        # Timers of the loop count monotonic time, as this clock does.
        wait_ns = max(0, at_ns - self.now_ns())
        return asyncio.get_running_loop().call_later(wait_ns / SECOND_NS, callback)

    def call_at_wall(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls *callback* when the wall clock shows *at_ns*, or earlier."""
        wait_ns = min(max(0, at_ns - time.time_ns()), LONGEST_WAIT_NS)
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
        self._wall_ahead_ns = 0
        self._offset = Offset()
        self._order = itertools.count()
        # Whoever keeps time cancels nearly all its timers and has few at once: cheaper to search than to tidy up.
        self._agenda: dict[_ManualTimer, tuple[int, int]] = {}

    def now_ns(self) -> int:
        """Returns the core's own time."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Returns the time of the machine's clock."""
        return self._now_ns + self._wall_ahead_ns

    @property
    def ahead_s(self) -> int:
        """Whole seconds by which the wall clock is ahead of the core's time."""
        return self._offset.seconds(self.wall_ns(), self._now_ns)

    def follow_time(self, at_ns: int, not_before_ns: int) -> None:
        """Shows nothing before *not_before_ns* from now on; only :meth:`advance` moves it otherwise."""
        self._now_ns = max(self._now_ns, not_before_ns)

    def set_wall(self, by_ns: int) -> None:
        """Set the wall clock ahead by *by_ns*, or back where that is below 0. Time goes on from there."""
        self._wall_ahead_ns += by_ns

    def call_at_wall(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls *callback* when the wall clock shows *at_ns*, or earlier."""
        wait_ns = min(max(0, at_ns - self.wall_ns()), LONGEST_WAIT_NS)
        return self.call_at(self._now_ns + wait_ns, callback)

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls *callback* when the core's time is *at_ns*."""
        timer = _ManualTimer(self._agenda, callback)
        self._agenda[timer] = (at_ns, next(self._order))
        if at_ns <= self._now_ns:
            asyncio.get_running_loop().call_soon(self._fire_due)
        return timer

    def next_call_ns(self) -> int | None:
        """Returns when the next call falls due; ``None``: nothing is on the agenda."""
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
