"""Defines the messages between the core and its committing process, in lines of JSON over two pipes.

The core begins with an :class:`Assignment`. After that, each line is either the time of its clock, which means that
something was added to the spool, or ``CLOSE``. The end of the pipe means that the core has ended. The process answers
with a :class:`Report` whenever something has changed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from sqlalchemy.engine import make_url

from kornel.core.archive.settings import HistorySettings, Retention

CLOSE: Final = b"close\n"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Work for the committing process. *sealed_before*: segments with lower numbers are complete. *now_ns*: the time of
    the core's clock."""

    settings: HistorySettings
    sealed_before: int
    now_ns: int

    def to_line(self) -> bytes:
        """Returns the message as a line."""
        settings = self.settings
        fields = {
            **{name: getattr(settings, name) for name in HistorySettings.__slots__ if name not in _OTHERWISE},
            "url": settings.url.render_as_string(hide_password=False),
            "spool": str(settings.spool),
            "retention": {table: [keep.age_s, keep.rows] for table, keep in settings.retention.items()},
        }
        return orjson.dumps([fields, self.sealed_before, self.now_ns]) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Assignment:
        """Returns the message in *line*."""
        fields, sealed_before, now_ns = orjson.loads(line)
        fields["url"] = make_url(fields["url"])
        fields["spool"] = Path(fields["spool"])
        fields["retention"] = {table: Retention(*keep) for table, keep in fields["retention"].items()}
        return cls(HistorySettings(**fields), sealed_before, now_ns)


_OTHERWISE: Final = frozenset({"url", "spool", "retention"})


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

    def to_line(self) -> bytes:
        """Returns the message as a line."""
        return orjson.dumps(dataclasses.asdict(self)) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Report:
        """Returns the message in *line*."""
        return cls(**orjson.loads(line))
