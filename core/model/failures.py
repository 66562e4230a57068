"""Reasons why an ask was not placed, in constant texts and counted (scheduling.md 17)."""

from __future__ import annotations

from typing import Final, NamedTuple

KEPT: Final = 32
"""Texts remembered per ask; a shim that answers with ever new ones pushes out the oldest."""


class Failure(NamedTuple):
    """One reason. Equal texts are one entry."""

    message: str
    times: int
    last_ns: int


class FailureLog:
    """Reasons by their text, the most recent last."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, Failure] = {}

    def note_failure(self, message: str, now_ns: int) -> None:
        """Count *message* once more, or for the first time."""
        before = self._entries.pop(message, None)
        self._entries[message] = Failure(message, 1 if before is None else before.times + 1, now_ns)
        if len(self._entries) > KEPT:
            del self._entries[next(iter(self._entries))]

    def recent_first(self) -> tuple[Failure, ...]:
        """Returns all reasons, the most recent first."""
        return tuple(reversed(self._entries.values()))
