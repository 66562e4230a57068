"""Defines what the command line lets people choose of a journal, apart from all that needs the database."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

DEFAULT_KEEP: Final = "1d,2048"
"""The part of a journal that is kept by default: a day, and at most 2 GiB."""

DEFAULT_SNAPSHOT_MINUTES: Final = 10.0
"""The longest time between two snapshots by default."""


class JournalSync(StrEnum):
    """The moment from which a record counts as durable."""

    FULL = "full"
    """The record is on the disk: it survives a power failure of the machine."""
    WRITTEN = "written"
    """The operating system or the database has the record: it survives the end of the core."""
    OFF = "off"
    """Decisions do not wait for the record."""


class JournalUnusable(Exception):
    """The journal cannot be written, or the engine cannot be made from it."""
