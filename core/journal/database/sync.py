"""The choice of the event for which a decision waits before it leaves the core. It is in a separate module, so that the
command line can import it without the database."""

from __future__ import annotations

from enum import StrEnum


class JournalSync(StrEnum):
    """The moment from which a record counts as durable."""

    FULL = "full"
    """The record is on the disk: it survives a power failure of the machine."""
    WRITTEN = "written"
    """The operating system or the database has the record: it survives the end of the core."""
    OFF = "off"
    """Decisions do not wait for the record."""
