"""Defines the messages between the core and its committing process.

The core begins with an :class:`Assignment`. After that, each message is either the time of its clock, which means that
something was added to the spool, or ``CLOSE``. The process answers with a :class:`Report` whenever something has
changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kornel.core.archive.settings import HistorySettings

CLOSE: Final = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Work for the committing process. *sealed_before*: segments with lower numbers are complete. *now_ns*: the time of
    the core's clock."""

    settings: HistorySettings
    sealed_before: int
    now_ns: int


@dataclass(frozen=True, slots=True)
class Report:
    """Progress since the last report: *committed* records, and *refused* ones with the *reason*.

    segment, offset  the place in the spool before which everything is committed or set aside
    damaged          segments of the spool of which a part could not be read, since the process began
    problem          why the database cannot be written; empty: it can
    bug              a traceback that an operator should see
    """

    committed: int = 0
    refused: int = 0
    reason: str = ""
    segment: int = 0
    offset: int = 0
    damaged: int = 0
    problem: str = ""
    bug: str = ""
