"""Reports when the machine's clock is set, because dates that the core gives then differ from it by as much."""

from __future__ import annotations

import asyncio
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.service.machine.clock import Clock

LOOK_EVERY_S: Final = 10.0
"""The interval of checks, in the event loop's time, so that a clock moved by a test does not stop to check itself."""


class ClockWatch:
    """Compares the wall clock with the core's time now and then."""

    def __init__(self, clock: Clock, logger: FilteringBoundLogger) -> None:
        self._clock = clock
        self._logger = logger
        self._known_s = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin checking."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._check_clock)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_clock(self) -> None:
        ahead_s = self._clock.ahead_s
        if ahead_s != self._known_s:
            self._logger.warning(
                "the machine's clock was set: delays and timeouts are not affected, but the core's dates differ from"
                " the clock until the core is restarted",
                by_seconds=ahead_s - self._known_s,
                ahead_seconds=ahead_s,
            )
            self._known_s = ahead_s
        self.start()
