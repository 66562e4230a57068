"""Counts the reasons why an ask was not placed, which are constant texts (scheduling.md 17)."""

from __future__ import annotations

from typing import Final, NamedTuple

KEPT: Final = 32
"""The most texts kept for each ask; if a shim keeps answering with new ones, the oldest are dropped."""


class Failure(NamedTuple):
    """One reason, with the number of times that it occurred."""

    message: str
    times: int
    last_ns: int


class FailureLog:
    """Reasons by their text, the most recent last."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, Failure] = {}

    def note_failure(self, message: str, now_ns: int, times: int = 1) -> None:
        """Count *message* so many *times* more."""
        before = self._entries.pop(message, None)
        self._entries[message] = Failure(message, times if before is None else before.times + times, now_ns)
        if len(self._entries) > KEPT:
            del self._entries[next(iter(self._entries))]

    def copy(self) -> FailureLog:
        """Returns a log with the same reasons."""
        found = FailureLog()
        found._entries = self._entries.copy()
        return found

    def recent_first(self) -> tuple[Failure, ...]:
        """Returns all reasons, the most recent first."""
        return tuple(reversed(self._entries.values()))
