"""The outcomes of cases and checks, as reports show them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Mismatch(AssertionError):
    """The peer broke the contract."""


class Skipped(Exception):
    """The case cannot be run on this core; the message says why."""


def check(condition: object, message: str) -> None:
    """Raises :class:`Mismatch` with *message* unless *condition* is true."""
    if not condition:
        raise Mismatch(message)


class Checked(Protocol):
    """The interface of a case against a core, or of a check of a shim."""

    @property
    def id(self) -> str:
        """The ID, which is short and unique within a kind: "73", "S7"."""

    @property
    def group(self) -> str: ...

    @property
    def title(self) -> str:
        """The rule in one line."""

    @property
    def rule(self) -> str:
        """The reference of the rule, such as "protocol.md 10.2"."""


class Verdict(StrEnum):
    """The ways in which a case can end.

    GAP     excused: listed as a known gap, or cannot be run on this core; the reason says which
    UNSEEN  the peer never did what the rule is about
    """

    PASS = "pass"  # noqa: S105 (a verdict, not a password)
    FAIL = "fail"
    GAP = "gap"
    UNSEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case.

    reason  the expected and the actual entry, or why it is a gap, was not checked or counts as a pass; empty for
    a plain pass
    tried   whether the case was run at all
    """

    case: Checked
    verdict: Verdict
    reason: str = ""
    took_s: float = 0.0
    tried: bool = True
