"""The expectations of a scenario, which are sentences from a small fixed set.

A sentence with ``within`` keeps the run going until it comes true or its time is over; the others are judged at the end
of the run. Times in expectations are real seconds from the first ask of the named queue (or of the run). They measure
the core, which does not run faster when the simulation does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kornel.shim_mock import quantities


class Kind(StrEnum):
    """The patterns of sentences, as messages show them."""

    REACHES_GUARANTEED = "queue QUEUE reaches guaranteed within DURATION"
    NEVER_BELOW_GUARANTEED = "queue QUEUE never below guaranteed"
    ALL_PLACED = "all pods placed within DURATION"
    PREEMPTED_AT_LEAST = "preempted at least N from QUEUE [within DURATION]"
    PREEMPTED_AT_MOST = "preempted at most N from QUEUE"
    ENDS_WITHIN_MAX = "queue QUEUE ends within max"
    NOTICED_AT_LEAST = "noticed at least N from QUEUE"
    SURVIVES = "application ID survives N preemptions"
    FAILS = "application ID fails"
    NO_LAW_VIOLATIONS = "no law violations"
    NOTHING_LOST = "nothing lost"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation.

    *queue* and *application* are empty and *count* is 0 where the kind has none. If *within_s* is None, the expectation
    is judged at the end.
    """

    kind: Kind
    queue: str = ""
    count: int = 0
    within_s: float | None = None
    application: str = ""

    @property
    def needs_guarantee(self) -> bool:
        """Tells whether the sentence makes sense only for a queue with a guarantee."""
        return self.kind in (Kind.REACHES_GUARANTEED, Kind.NEVER_BELOW_GUARANTEED)

    def __str__(self) -> str:
        pattern = self.kind.value.replace(" N ", f" {self.count} ").replace("QUEUE", self.queue)
        pattern = pattern.replace("ID", self.application)
        if self.within_s is None:
            return pattern.removesuffix(" [within DURATION]")
        return pattern.replace("[", "").replace("]", "").replace("DURATION", f"{self.within_s:g}s")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one expectation, with the numbers on which it is based."""

    expectation: Expectation
    met: bool
    detail: str


_PATTERNS: Final = {
    Kind.REACHES_GUARANTEED: re.compile(r"queue (?P<queue>\S+) reaches guaranteed within (?P<within>\S+)"),
    Kind.NEVER_BELOW_GUARANTEED: re.compile(r"queue (?P<queue>\S+) never below guaranteed"),
    Kind.ALL_PLACED: re.compile(r"all pods placed within (?P<within>\S+)"),
    Kind.PREEMPTED_AT_LEAST: re.compile(
        r"preempted at least (?P<count>\S+) from (?P<queue>\S+)( within (?P<within>\S+))?"
    ),
    Kind.PREEMPTED_AT_MOST: re.compile(r"preempted at most (?P<count>\S+) from (?P<queue>\S+)"),
    Kind.ENDS_WITHIN_MAX: re.compile(r"queue (?P<queue>\S+) ends within max"),
    Kind.NOTICED_AT_LEAST: re.compile(r"noticed at least (?P<count>\S+) from (?P<queue>\S+)"),
    Kind.SURVIVES: re.compile(r"application (?P<application>\S+) survives (?P<count>\S+) preemptions"),
    Kind.FAILS: re.compile(r"application (?P<application>\S+) fails"),
    Kind.NO_LAW_VIOLATIONS: re.compile(r"no law violations"),
    Kind.NOTHING_LOST: re.compile(r"nothing lost"),
}


def parse_expectation(text: str) -> Expectation:
    """Returns the expectation in *text*. Raises ValueError with the list of possible sentences."""
    words = " ".join(text.split())
    for kind, pattern in _PATTERNS.items():
        if (match := pattern.fullmatch(words)) is None:
            continue
        found = match.groupdict()
        return Expectation(
            kind,
            queue=(found.get("queue") or "").lower(),
            count=quantities.parse_integer(found["count"], 0, quantities.INT32_MAX) if found.get("count") else 0,
            application=found.get("application") or "",
            within_s=quantities.parse_duration(found["within"]) if found.get("within") else None,
        )
    known = "; ".join(kind.value for kind in Kind)
    raise ValueError(f"{text!r} is no expectation; known: {known}")
