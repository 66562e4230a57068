"""Applications that are no more: remembered for three days, and no more of them than fit (rest.md 3, R16)."""

from __future__ import annotations

from collections import deque
from typing import Final

from core.domain.views import ApplicationView

REMEMBERED_NS: Final = 72 * 3600 * 10**9
MOST: Final = 10_000
"""Of each kind; the oldest are forgotten first."""


class Past:
    """Values only: nothing here keeps a record of the engine alive. No timers either, old ones go when new ones come.

    One ID may be there several times.
    """

    def __init__(self) -> None:
        self._finished: deque[ApplicationView] = deque(maxlen=MOST)
        self._rejected: deque[ApplicationView] = deque(maxlen=MOST)

    def finished(self, application: ApplicationView) -> None:
        """*application* completed or failed, or was removed, but for one that never asked for anything."""
        _remember(self._finished, application)

    def rejected(self, application: ApplicationView) -> None:
        """*application* was not taken."""
        _remember(self._rejected, application)

    def all_finished(self, now_ns: int) -> list[ApplicationView]:
        """The oldest first."""
        return [view for view in self._finished if view.finished_ns + REMEMBERED_NS > now_ns]

    def all_rejected(self, now_ns: int) -> list[ApplicationView]:
        """The oldest first."""
        return [view for view in self._rejected if view.finished_ns + REMEMBERED_NS > now_ns]


def _remember(known: deque[ApplicationView], application: ApplicationView) -> None:
    while known and known[0].finished_ns + REMEMBERED_NS <= application.finished_ns:
        known.popleft()
    known.append(application)
