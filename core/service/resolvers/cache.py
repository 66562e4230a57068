"""A cache of resolvers' answers: groups are kept for 300 s, failures for 30 s, and old ones removed every 60 s
(config.md 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kornel.core.service.machine.clock import SECOND_NS, Clock, Timer

FOUND_NS: Final = 300 * SECOND_NS
NOT_FOUND_NS: Final = 30 * SECOND_NS
CLEANING_NS: Final = 60 * SECOND_NS


class Answer(NamedTuple):
    """The result of a look-up: ``groups``, or the reason why there are none in ``unresolved``."""

    groups: tuple[str, ...]
    unresolved: str = ""


class Person(NamedTuple):
    """A user as one kind of resolver knows it."""

    resolver: str
    user: str


@dataclass(frozen=True, slots=True)
class _Entry:
    answer: Answer
    until_ns: int


class GroupCache:
    """Answers by person. Groups that come with an application are never kept here (B17)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[Person, _Entry] = {}
        self._cleaning: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, person: Person) -> Answer | None:
        """Returns the answer for *person* if there is one that has not expired."""
        entry = self._entries.get(person)
        return entry.answer if entry is not None and self._clock.now_ns() < entry.until_ns else None

    def put(self, person: Person, answer: Answer) -> None:
        """Keep *answer* for the time that suits its kind."""
        now_ns = self._clock.now_ns()
        self._entries[person] = _Entry(answer, now_ns + (NOT_FOUND_NS if answer.unresolved else FOUND_NS))
        if self._cleaning is None:
            self._cleaning = self._clock.call_at(now_ns + CLEANING_NS, self._remove_old)

    def close(self) -> None:
        """Drop all answers and cancel the timer."""
        self._entries.clear()
        if self._cleaning is not None:
            self._cleaning.cancel()
            self._cleaning = None

    def _remove_old(self) -> None:
        now_ns = self._clock.now_ns()
        for person in [person for person, entry in self._entries.items() if entry.until_ns <= now_ns]:
            del self._entries[person]
        self._cleaning = self._clock.call_at(now_ns + CLEANING_NS, self._remove_old) if self._entries else None
