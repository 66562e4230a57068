"""Settings of the journal: where it is, and what a decision waits for before it leaves the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy.engine import URL

from kornel.core.archive.settings import HistorySettingsError, parse_database_url
from kornel.core.journal.sync import JournalSync

OFF: Final = "off"


class JournalSettingsError(ValueError):
    """The settings of the journal cannot be used."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The settings of a journal. ``afresh``: begin with an empty engine, whatever the journal holds.

    ``patience_s``: how long the database may take to answer. ``calls_ahead``: how far the engine may be
    ahead of what is durable. ``gather_s``: how long calls without effects wait for others to be committed with.
    ``longest_pause_s``: between two tries to write.
    """

    url: URL
    sync: JournalSync = JournalSync.FULL
    afresh: bool = False
    patience_s: float = 10.0
    calls_ahead: int = 2_048
    gather_s: float = 0.1
    longest_pause_s: float = 1.0

    @property
    def shared(self) -> bool:
        """Tells whether several cores may share the journal: one leads, and the others follow."""
        return not self.url.drivername.startswith("sqlite")

    @property
    def shown(self) -> str:
        """Returns the address of the journal, without a password."""
        return self.url.render_as_string(hide_password=True)


def journal_settings(
    where: str, sync: JournalSync = JournalSync.FULL, *, afresh: bool = False
) -> JournalSettings | None:
    """Returns the settings for *where*: a path of an SQLite file, a URL, or ``off``, which gives ``None``.

    Raises :class:`JournalSettingsError`.
    """
    if where == OFF:
        return None
    try:
        url = parse_database_url(where, "journal")
    except HistorySettingsError as error:
        raise JournalSettingsError(str(error)) from error
    return JournalSettings(url, sync, afresh)
