"""The choice of what a decision waits for before it leaves the core; by itself, as the command line needs no database
for it."""

from __future__ import annotations

from enum import StrEnum


class JournalSync(StrEnum):
    """The moment from which a record counts as durable."""

    FULL = "full"
    """The record is on the disk: it survives that the machine loses power."""
    WRITTEN = "written"
    """The operating system or the database has it: it survives the end of the core."""
    OFF = "off"
    """Nobody waits for it."""
