"""Problems of a configuration text, collected so that one reading reports all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

MOST_ERRORS: Final = 500
"""The number of errors after which reading stops, because more of them would not be read, and a hostile text then costs
less."""

MOST_WARNINGS: Final = 1000


class Severity(StrEnum):
    """The severities of problems."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    line, column  the place in the text, both from 1; 0: it has no place
    path          the keys that lead there, e.g. ``partitions[0].queues[0].resources.max.vcore``; empty: the whole text
    expected      what would be right; empty if the message says it already
    """

    severity: Severity
    line: int
    column: int
    path: str
    message: str
    expected: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        path = f"{self.path}: " if self.path else ""
        expected = f" (expected {self.expected})" if self.expected else ""
        return f"{place}{path}{self.message}{expected}"


class ConfigError(ValueError):
    """The text is refused. ``problems`` holds all errors and warnings found, in the order of the text."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        errors = [problem for problem in self.problems if problem.severity is Severity.ERROR]
        if len(errors) == 1:
            return f"invalid configuration: {errors[0]}"
        return "\n".join([f"invalid configuration, {len(errors)} errors:", *(f"  {error}" for error in errors)])


class Place(Protocol):
    """A place in a text."""

    @property
    def line(self) -> int:
        """The line, from 1; 0: there is no place."""

    @property
    def column(self) -> int:
        """The column, from 1; 0: there is no place."""

    @property
    def path(self) -> str:
        """The keys that lead to the place."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A warning at a place that may move before the warning is given again."""

    place: Place
    message: str
    expected: str


class ProblemLog:
    """The problems of a text, collected while it is read. After ``MOST_ERRORS`` errors the reading ends with
    ConfigError."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._errors = 0
        self._warnings = 0
        self.remarks: list[Remark] = []
        """The warnings kept so far, in the order in which they were given."""

    @property
    def has_errors(self) -> bool:
        """Tells whether any error was added."""
        return self._errors > 0

    @property
    def kept_all(self) -> bool:
        """Tells whether no warning was left out."""
        return self._warnings <= MOST_WARNINGS

    def add_remark(self, remark: Remark) -> None:
        """Keep a warning. Its text is made only if it is shown."""
        self._warnings += 1
        if not self.kept_all:
            return
        place = remark.place
        self.remarks.append(remark)
        self._problems.append(
            Problem(Severity.WARNING, place.line, place.column, place.path, remark.message, remark.expected)
        )

    def add(self, problem: Problem) -> None:
        """Keep the error *problem*. Raises ConfigError if there are too many."""
        self._errors += 1
        self._problems.append(problem)
        if self._errors >= MOST_ERRORS:
            self._problems.append(Problem(Severity.ERROR, 0, 0, "", "too many errors; the rest was not read"))
            raise ConfigError(self.in_order())

    def in_order(self) -> tuple[Problem, ...]:
        """Returns everything kept, sorted by place; problems without a place come last."""
        left_out = self._warnings - MOST_WARNINGS
        found = sorted(self._problems, key=lambda p: (p.line == 0, p.line, p.column))
        if left_out > 0:
            found.append(Problem(Severity.WARNING, 0, 0, "", f"{left_out} more warnings are not shown"))
        return tuple(found)

    def raise_if_errors(self) -> None:
        """Raises ConfigError when any error was added."""
        if self.has_errors:
            raise ConfigError(self.in_order())
