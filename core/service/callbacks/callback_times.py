"""Measures the times that a shim takes to answer questions, and how long it has been silent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.service.metrics.metrics import Durations

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REMEMBERED: Final = 10_000
"""The most questions whose answers are awaited here; older ones are dropped and count as never answered."""


class CallbackTimes:
    """Measures how long the answers of a shim take. ``latency`` counts the times from question to answer. Times are
    Unix nanoseconds."""

    def __init__(self, latency: Durations | None = None) -> None:
        self.latency = latency or Durations(BOUNDS_S)
        self._asked: dict[int, int] = {}
        """The times when questions without an answer were sent, the oldest first."""
        self._first_ns: int | None = None
        """The time when the first question since the last answer was sent."""
        self._last_ns = 0

    def note_asked(self, questions: Iterable[int], now_ns: int) -> None:
        """Note that *questions* were sent."""
        asked = self._asked
        for question in questions:
            asked[question] = now_ns
        while len(asked) > REMEMBERED:
            del asked[next(iter(asked))]
        if self._first_ns is None:
            self._first_ns = now_ns
        self._last_ns = now_ns

    def note_answered(self, questions: Iterable[int], now_ns: int) -> None:
        """Note that *questions* were answered; unknown ones only show that the shim is there."""
        asked = self._asked
        for question in questions:
            asked_ns = asked.pop(question, None)
            if asked_ns is not None:
                self.latency.add((now_ns - asked_ns) / SECOND_NS)
        self._first_ns = None

    def forget_questions(self) -> None:
        """Drops all open questions, because the shim that was asked is gone."""
        self._asked.clear()
        self._first_ns = None

    def silence_ns(self) -> int:
        """Returns the time from the first to the last question sent since the last answer."""
        return 0 if self._first_ns is None else self._last_ns - self._first_ns
