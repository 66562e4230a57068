"""Collects events for the shim for two seconds, then hands them over together.

Events for which an interval has no room are lost, and counted. An interval begins with the first event after the last
hand-over, so a quiet core starts no timer.

Rules: protocol.md 13 (SendEvent), config.md 12.1, contract case 147.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.config.keys.event_settings import EventSettings, event_settings
from kornel.core.domain.effects import EventRecorded
from kornel.core.service.machine.clock import SECOND_NS, Clock, Timer
from kornel.core.service.metrics.metrics import ServiceMetrics

INTERVAL_NS: Final = 2 * SECOND_NS


class EventFeed:
    """Collects events and passes them to *hand_over*, at most once in an interval."""

    def __init__(
        self,
        hand_over: Callable[[list[EventRecorded]], None],
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
    ) -> None:
        self._hand_over = hand_over
        self._clock = clock
        self._metrics = metrics
        self._logger = logger
        self._settings = EventSettings()
        self._problems: tuple[str, ...] = ()
        self._waiting: list[EventRecorded] = []
        self._timer: Timer | None = None

    def follow_settings(self, extra_config: Mapping[str, str]) -> None:
        """Follows *extra_config* from now on. Logs once what is wrong with it."""
        self._settings, problems = event_settings(extra_config)
        if problems and problems != self._problems:
            self._logger.warning("event settings that cannot be used", problems=problems)
        self._problems = problems

    def record_event(self, event: EventRecorded) -> None:
        """Keep *event* for the next hand-over if there is room."""
        if not self._settings.tracking:
            return
        if len(self._waiting) >= self._settings.capacity:
            self._metrics.events_dropped += 1
            return
        self._waiting.append(event)
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now_ns() + INTERVAL_NS, self._interval_over)

    def clear(self) -> None:
        """Drops all events, because no shim listens any more."""
        self._metrics.events_dropped += len(self._waiting)
        self._waiting = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _interval_over(self) -> None:
        self._timer = None
        events, self._waiting = self._waiting, []
        self._hand_over(events)
