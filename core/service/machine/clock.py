"""Defines time for the service: the values that the engine gets, and calls at a later time. No other module reads the
machine's clock.

There are two kinds of time. Durations (delays, timeouts, pauses, rates, retention of what is cached) are counted by the
core's own time, which always runs on as fast as time passes, even if the machine's clock is set. It begins as Unix time
when the core starts, so that it can also date events; creation times that shims state are converted to it. Dates that
others chose (the expiry of certificates and tokens) are compared with the wall clock, which may be set at any moment.
:meth:`Clock.now_ns` is the former, :meth:`Clock.wall_ns` the latter; a test (``tests/architecture/test_time.py``) keeps
the machine's clock out of all other modules.

The engine never reads a clock; the code that drives it does, through a :class:`Clock`. Tests move a
:class:`ManualClock` and never wait for real.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

SECOND_NS: Final = 1_000_000_000
LONGEST_WAIT_NS: Final = 60 * SECOND_NS
"""The longest time after which the wall clock is read again while a call waits for a date, because it may have been
set."""
NOTICED_NS: Final = 2 * SECOND_NS
"""Changes of the wall clock below this are ignored: it drifts, and is corrected in small steps all the time."""
WATCH_EVERY_S: Final = 10.0
"""The interval of checks, in the event loop's time, so that a clock moved by a test does not stop to check itself."""


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Cancels the call. This has no effect if it was made already."""


class Clock(Protocol):
    """The core's own time, in nanoseconds that began as Unix time, and the wall clock."""

    def now_ns(self) -> int:
        """Returns the core's own time, for durations. It is never less than the last answer."""

    def wall_ns(self) -> int:
        """Returns the time of the machine's clock: Unix time in nanoseconds, for dates that others chose. It may go
        back."""

    @property
    def ahead_s(self) -> int:
        """The whole seconds by which the wall clock has been set ahead of the core's time; negative if it was set
        back."""

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Call *callback* from the event loop when the core's time is *at_ns*, or soon if that is past.

        The call may come early, but never twice.
        """

    def call_at_wall(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls *callback* when the wall clock shows *at_ns*, or earlier. The callback has to check the time again,
        because the clock may have been set."""


def wall_ns() -> int:
    """Returns the time of the machine's clock, for commands that show how long ago something was."""
    return time.time_ns()


async def watch_clock(clock: Clock, logger: FilteringBoundLogger) -> None:
    """Logs, without end, when the machine's clock is set, because dates that the core gives then differ from it by as
    much."""
    known_s = 0
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        ahead_s = clock.ahead_s
        if ahead_s != known_s:
            logger.warning(
                "the machine's clock was set: delays and timeouts are not affected, but the core's dates differ from"
                " the clock until the core is restarted",
                by_seconds=ahead_s - known_s,
                ahead_seconds=ahead_s,
            )
            known_s = ahead_s


class Offset:
    """The amount by which the wall clock was set, constant until it changes by more than clocks drift."""

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
    """A clock that follows the machine's monotonic clock, and is dated by its wall clock once, when the core starts."""

    def __init__(self, not_before_ns: int = 0) -> None:
        """Makes a clock that shows at least *not_before_ns*, so that times that a former core has seen do not come
        again."""
        self._began_ns = max(time.time_ns(), not_before_ns) - time.monotonic_ns()
        self._offset = Offset()

    def now_ns(self) -> int:
        """Returns the core's own time."""
        return self._began_ns + time.monotonic_ns()

    def follow_time(self, at_ns: int, not_before_ns: int) -> None:
        """Continues the time of a core from which this one takes over: goes on from *at_ns* if that is known (not 0)
        and far from the present time, and shows nothing before *not_before_ns*."""
        shown_ns = now_ns = self.now_ns()
        if at_ns and abs(at_ns - now_ns) >= NOTICED_NS:
            shown_ns = at_ns
        self._began_ns += max(shown_ns, not_before_ns) - now_ns

    def wall_ns(self) -> int:
        """Returns the time of the machine's clock."""
        return time.time_ns()

    @property
    def ahead_s(self) -> int:
        """The whole seconds by which the wall clock is ahead of the core's time."""
        return self._offset.seconds(time.time_ns(), self.now_ns())

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls *callback* when the core's time is *at_ns*."""
        # Timers of the loop count monotonic time, like this clock.
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
    """A clock that stands still until :meth:`advance` moves it, which makes the calls that are due on the way."""

    def __init__(self, start_ns: int = 1_700_000_000 * SECOND_NS) -> None:
        self._now_ns = start_ns
        self._wall_ahead_ns = 0
        self._offset = Offset()
        self._order = itertools.count()
        # Nearly all timers are cancelled, and there are few at a time, so a search is cheaper than keeping them in
        # order.
        self._agenda: dict[_ManualTimer, tuple[int, int]] = {}

    def now_ns(self) -> int:
        """Returns the core's own time."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Returns the time of the machine's clock."""
        return self._now_ns + self._wall_ahead_ns

    @property
    def ahead_s(self) -> int:
        """The whole seconds by which the wall clock is ahead of the core's time."""
        return self._offset.seconds(self.wall_ns(), self._now_ns)

    def follow_time(self, at_ns: int, not_before_ns: int) -> None:
        """Moves to *not_before_ns* if that is later; otherwise only :meth:`advance` moves it."""
        self._now_ns = max(self._now_ns, not_before_ns)

    def set_wall(self, by_ns: int) -> None:
        """Sets the wall clock ahead by *by_ns*, or back if that is negative."""
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
        """Returns the time of the next call; ``None``: there is none."""
        return min(self._agenda.values(), default=(None, 0))[0]

    def advance(self, by_ns: int) -> None:
        """Moves on by *by_ns* and makes the calls that are due by then, the earliest first. Raises ValueError for a
        negative *by_ns*."""
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
