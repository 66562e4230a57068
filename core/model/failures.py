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


Failures = tuple[Failure, ...]
"""The reasons of one ask, each once, the most recent last. It is a tuple because most asks have one or none."""


def add_failure(known: Failures, message: str, now_ns: int, times: int = 1) -> Failures:
    """Returns *known* with *message* counted so many *times* more."""
    before = sum([each.times for each in known if each.message == message])
    others = [each for each in known if each.message != message] if before else known
    return (*others[1 - KEPT :], Failure(message, before + times, now_ns))
