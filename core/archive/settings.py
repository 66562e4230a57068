"""Defines the settings of the history: where it is, how much of it is kept, and how much may wait."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kornel.core.archive.defaults import DEFAULT_SPOOL_BYTES
from kornel.core.archive.state_files import find_own_place

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SECOND_NS: Final = 10**9
DAY_S: Final = 86_400

OFF: Final = "off"
LEAST_SPOOL_BYTES: Final = 2**20
DEFAULT_QUEUE_RECORDS: Final = 200_000
DEFAULT_QUEUE_BYTES: Final = 64 * 2**20

_DRIVERS: Final = MappingProxyType(
    {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
)
_EXTRAS: Final = MappingProxyType({"postgresql+psycopg": "postgres"})
"""The extras of this distribution that install the drivers; a driver that is missing here comes with Python."""
_SHOWN: Final = frozenset(("host", "port", "hostaddr", "dbname", "user", "sslmode", "target_session_attrs"))
"""The settings in the query of a URL whose values are shown: no other one is, because it may be or hold a secret."""
_ASSIGNMENT: Final = re.compile(r"(?:^|\s)(?:host|user|password|dbname|service|passfile)\s*=", re.IGNORECASE)
_AGE: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)", re.ASCII)
_ROWS: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_UNITS: Final = MappingProxyType({"s": 1, "m": 60, "h": 3_600, "d": DAY_S})


class HistorySettingsError(ValueError):
    """The settings of the history contradict themselves or cannot be read."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds on what a table keeps. ``age_s``: the age in seconds at which rows are removed; ``rows``: the most
    rows. 0: no bound."""

    age_s: int = 0
    rows: int = 0


DEFAULT_RETENTION: Final[Mapping[str, Retention]] = MappingProxyType(
    {
        "applications": Retention(90 * DAY_S, 1_000_000),
        "preemptions": Retention(90 * DAY_S, 1_000_000),
        "events": Retention(7 * DAY_S, 2_000_000),
        "configurations": Retention(0, 10_000),
        "usage": Retention(90 * DAY_S, 2_000_000),
    }
)


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """The settings of the history. ``url``: the address of the database. ``spool``: the directory for records that it
    has not accepted yet.

    ``spool_bytes``: the most bytes that may wait there; ``queue_records``, ``queue_bytes``: the most records and bytes
    that may wait in memory before that. ``commit_wait_s``: the time for which the writer collects records before it
    commits. ``patience_s``: the time after which a database that does not answer counts as out of reach. ``silence_s``:
    the time for which it may accept nothing while records wait. ``steady_s``: the time for which clocks must have run
    evenly before rows are removed because of their age.
    """

    url: URL
    spool: Path
    retention: Mapping[str, Retention] = field(default_factory=lambda: DEFAULT_RETENTION)
    spool_bytes: int = DEFAULT_SPOOL_BYTES
    queue_records: int = DEFAULT_QUEUE_RECORDS
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    commit_wait_s: float = 0.2
    patience_s: float = 10.0
    longest_pause_s: float = 10.0
    silence_s: float = 30.0
    prune_every_s: float = 30.0
    steady_s: float = 600.0

    @property
    def missing_driver_hint(self) -> str:
        """Returns how to install the driver of the database."""
        extra = _EXTRAS.get(self.url.drivername)
        return f"install the driver: pip install 'kornel[{extra}]'" if extra else "its driver is a part of Python"

    @property
    def shown(self) -> str:
        """Returns the address of the history, without a password."""
        return show_database_url(self.url)


def history_settings(
    where: str,
    keep: Sequence[str] = (),
    spool: Path | None = None,
    spool_bytes: int = DEFAULT_SPOOL_BYTES,
    *,
    address: str = "",
) -> HistorySettings | None:
    """Returns the settings for *where*: a path of an SQLite file, a URL, or ``off``, which gives ``None``.

    *keep*: ``TABLE=AGE[,ROWS]`` each. *spool* absent: beside the SQLite file, else that of the core at *address* in the
    state directory. Raises :class:`HistorySettingsError`.
    """
    if where == OFF:
        return None
    url = parse_database_url(where)
    if spool_bytes < LEAST_SPOOL_BYTES:
        raise HistorySettingsError(f"a spool of {spool_bytes} bytes is too small, at least {LEAST_SPOOL_BYTES}")
    if spool is None:
        in_file = url.drivername.startswith("sqlite")
        spool = Path(f"{url.database}.spool") if in_file else find_own_place(state_directory(), "spool", "", address)
    return HistorySettings(url, spool, parse_retention(keep), spool_bytes)


def state_directory() -> Path:
    """Returns the directory in which this user's services keep state: that of the systemd unit, or else that of the XDG
    rules."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "kornel"
    except RuntimeError:  # The user has no home, as in some containers.
        return Path("/var/lib/kornel")


def default_history(address: str) -> str:
    """Returns the SQLite file that the core at *address* uses if nothing else is said."""
    return str(find_own_place(state_directory(), "history", ".db", address))


def parse_retention(keep: Sequence[str]) -> Mapping[str, Retention]:
    """Returns the defaults with the changes in *keep*. Raises :class:`HistorySettingsError`."""
    kept = dict(DEFAULT_RETENTION)
    for entry in keep:
        table, equals, bounds = entry.partition("=")
        if table not in kept or not equals:
            tables = ", ".join(kept)
            raise HistorySettingsError(f"{entry!r}: expected TABLE=AGE[,ROWS], with TABLE one of {tables}")
        age, _, rows = bounds.partition(",")
        kept[table] = Retention(parse_age(entry, age), _parse_rows(entry, rows))
    return MappingProxyType(kept)


def parse_age(entry: str, text: str) -> int:
    """Returns the age *text* of the setting *entry* in seconds, 0 for any. Raises :class:`HistorySettingsError`."""
    if text == "0":
        return 0
    found = _AGE.fullmatch(text)
    if found is None:
        raise HistorySettingsError(f"{entry!r}: {text!r} is no age, expected for instance 36h or 7d, or 0 for any")
    return int(found[1]) * _UNITS[found[2]]


def _parse_rows(entry: str, text: str) -> int:
    if not text:
        return 0
    if _ROWS.fullmatch(text) is None:
        raise HistorySettingsError(f"{entry!r}: {text!r} is no number of rows, expected digits, 0 for any number")
    return int(text)


def show_database_url(url: URL) -> str:
    """Returns *url* without the password, and without any value of its query that could contain one."""
    query = {name: value if name in _SHOWN else "***" for name, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True)


def parse_database_url(where: str, what: str = "history") -> URL:
    """Returns the database that *where*, a file or a URL, names for *what*. Raises :class:`HistorySettingsError`."""
    from sqlalchemy.engine import URL, make_url  # noqa: PLC0415 - a core without a database need not import it
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    if "://" not in where:
        if _ASSIGNMENT.search(where):
            raise HistorySettingsError(f"the {what} needs a path or a URL, not settings with names, like password=...")
        if "@" in where.partition(":")[2]:  # A user and password, in what was meant as a URL.
            raise HistorySettingsError(f"the {what} needs a path or a URL; a URL has :// behind its scheme")
        if not where or where.endswith("/"):
            raise HistorySettingsError(f"{where!r} names no file for the {what}")
        return URL.create("sqlite+pysqlite", database=str(Path(where).absolute()))
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        # The message of the error would contain the text, and with it a password.
        raise HistorySettingsError(f"the URL of the {what} database cannot be read") from None
    if "@" in (url.host or ""):
        raise HistorySettingsError(f"the URL of the {what} database has several @; write one in a password as %40")
    known = _DRIVERS.get(url.drivername, url.drivername)
    if known not in _DRIVERS.values():
        raise HistorySettingsError(
            f"{url.drivername!r} is no database the {what} can be in, expected sqlite or postgresql"
        )
    if known == "sqlite+pysqlite" and (not url.database or url.database == ":memory:"):
        raise HistorySettingsError(f"a {what} in memory would be lost, name a file")
    return url.set(drivername=known)
