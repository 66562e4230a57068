"""The settings of the journal: its address, and the event for which a decision waits before it leaves the core."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kornel.core.archive.settings import HistorySettingsError, parse_age, parse_database_url, show_database_url
from kornel.core.journal.database.choices import DEFAULT_KEEP, DEFAULT_SNAPSHOT_MINUTES, JournalSync

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

OFF: Final = "off"

_MIB: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class JournalSettingsError(ValueError):
    """The settings of the journal cannot be used."""


@dataclass(frozen=True, slots=True)
class KeptJournal:
    """The part of a journal that is kept, in addition to the part that the next core needs: the greatest age of
    decisions, and the most bytes of all records and snapshots. 0: no limit."""

    age_s: int = 24 * 3_600
    size_bytes: int = 2 * 2**30

    @classmethod
    def parse(cls, text: str) -> KeptJournal:
        """Returns the settings in *text*, which has the form ``AGE[,MIB]``. Raises :class:`JournalSettingsError`."""
        age, comma, mib = text.partition(",")
        try:
            age_s = parse_age(text, age)
        except HistorySettingsError as error:
            raise JournalSettingsError(str(error)) from error
        if not comma:
            return cls(age_s)
        if _MIB.fullmatch(mib) is None:
            raise JournalSettingsError(f"{text!r}: {mib!r} is no number of MiB, expected digits, 0 for any number")
        return cls(age_s, int(mib) * 2**20)


@dataclass(frozen=True, slots=True)
class SnapshotTimes:
    """The times at which snapshots are made: ``every_s`` after the previous one at the latest, if anything has
    happened; earlier if ``every_steps`` records and effects were written since then; but never so soon that the process
    which makes them works for more than the part ``most_work`` of the time."""

    every_s: float = 600.0
    every_steps: int = 50_000
    most_work: float = 0.1
    look_s: float = 1.0
    ending_s: float = 60.0
    """The time that the last snapshot may take when the core ends; 0: none is made then."""
    replayed_steps: int = 2_000
    """The number of records and effects that a core had to replay at its start from which it makes a snapshot soon, so
    that one that is killed again and again does not replay more each time."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The settings of a journal. ``afresh`` says that the core begins with an empty engine, whatever the journal
    contains; ``accept_loss`` that it goes on with a log in a file that has lost its end.

    ``patience_s`` is the time that the database may take to answer. ``calls_ahead`` is the number of calls by which the
    engine may be ahead of the last durable record. ``gather_s`` is the time for which calls without effects wait for
    others, to be committed together. ``longest_pause_s`` is the longest pause between two tries to write.
    """

    url: URL
    sync: JournalSync = JournalSync.FULL
    afresh: bool = False
    accept_loss: bool = False
    patience_s: float = 10.0
    calls_ahead: int = 2_048
    gather_s: float = 0.1
    longest_pause_s: float = 1.0
    kept: KeptJournal = field(default_factory=KeptJournal)
    times: SnapshotTimes = field(default_factory=SnapshotTimes)

    @property
    def shared(self) -> bool:
        """Tells whether several cores may share the journal: one core leads, and the others follow it."""
        return not self.url.drivername.startswith("sqlite")

    @property
    def shown(self) -> str:
        """Returns the address of the journal, without a password."""
        return show_database_url(self.url)


def journal_settings(
    where: str,
    sync: JournalSync = JournalSync.FULL,
    *,
    afresh: bool = False,
    accept_loss: bool = False,
    keep: str = DEFAULT_KEEP,
    snapshot_minutes: float = DEFAULT_SNAPSHOT_MINUTES,
) -> JournalSettings | None:
    """Returns the settings for *where*: the path of an SQLite file, a URL, or ``off``, for which it returns ``None``.

    *keep* has the form ``AGE[,MIB]``. *snapshot_minutes* is the longest time between two snapshots.

    Raises :class:`JournalSettingsError`.
    """
    if where == OFF:
        return None
    try:
        url = parse_database_url(where, "journal")
    except HistorySettingsError as error:
        raise JournalSettingsError(str(error)) from error
    times = SnapshotTimes(every_s=snapshot_minutes * 60)
    if url.drivername.startswith("sqlite"):
        path = Path(str(url.database))
        try:
            # What belongs to the file lies beside it, and SQLite puts its write-ahead log there, too.
            url = url.set(database=str(path.resolve())) if path.is_symlink() else url
        except (OSError, RuntimeError) as error:
            raise JournalSettingsError(f"{where!r} names no file for the journal: {error}") from error
    return JournalSettings(url, sync, afresh, accept_loss, kept=KeptJournal.parse(keep), times=times)
