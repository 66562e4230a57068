"""Reads the history by queries on separate connections: newest records first, a page at a time.

Reading never waits for the writer, and a slow query delays no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.sql.elements import ColumnElement

from kornel.core.archive.database import connect
from kornel.core.archive.settings import HistorySettings
from kornel.core.archive.tables import INDEXED, INDEXED_CHARACTERS, TABLES, beginning_of
from kornel.core.service.wire.status_codes import HistoryUnavailable, InvalidRequest

DEFAULT_PAGE: Final = 100
LARGEST_PAGE: Final = 1_000

_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Page:
    """A page of records from ``since_ns`` until before ``until_ns``, where 0 means no bound. ``after``: the position of
    the last row seen."""

    since_ns: int = 0
    until_ns: int = 0
    size: int = DEFAULT_PAGE
    after: tuple[int, int, int] | None = None

    @classmethod
    def page_for(cls, since_ns: int, until_ns: int, size: int, token: str) -> Page:
        """Returns the page that a request asks for. Raises :class:`InvalidRequest`."""
        if min(since_ns, until_ns, size) < 0:
            raise InvalidRequest("neither a time nor the size of a page can be negative")
        if until_ns and until_ns < since_ns:
            raise InvalidRequest(f"the range ends at {until_ns}, before it begins at {since_ns}")
        return cls(since_ns, until_ns, min(size or DEFAULT_PAGE, LARGEST_PAGE), _place_of(token) if token else None)


def token_of(row: Any) -> str:
    """Returns the token of the page that continues after *row*."""
    return f"{row.at_ns}.{row.run}.{row.seq}"


class HistoryReader:
    """Blocking queries, which have to be called from a thread that may wait."""

    def __init__(self, settings: HistorySettings) -> None:
        self._engine = connect(settings.url, settings.patience_s, read_only=True)
        sqlite = settings.url.drivername.startswith("sqlite")
        self._file = Path(str(settings.url.database)) if sqlite else None

    def read_rows(
        self, table: str, page: Page, conditions: Sequence[ColumnElement[bool]] = ()
    ) -> tuple[Sequence[Any], bool]:
        """Returns a page of *table*, and whether there is more. Raises :class:`HistoryUnavailable`."""
        found = TABLES[table]
        place = (found.c.at_ns, found.c.run, found.c.seq)
        query = sa.select(found).where(*conditions)
        if page.since_ns:
            query = query.where(found.c.at_ns >= page.since_ns)
        if page.until_ns:
            query = query.where(found.c.at_ns < page.until_ns)
        if page.after is not None:
            query = query.where(sa.tuple_(*place) < sa.tuple_(*page.after))
        query = query.order_by(*(column.desc() for column in place)).limit(page.size + 1)
        rows = self.read_query(query)
        return rows[: page.size], len(rows) > page.size

    def read_query(self, query: sa.Select[Any]) -> Sequence[Any]:
        """Returns the rows that *query* finds; none if nothing has ever been stored. Raises
        :class:`HistoryUnavailable`."""
        if self._file is not None and not self._file.exists():
            return ()
        try:
            with self._engine.connect() as connection:
                return connection.execute(query).all()
        except (SQLAlchemyError, OSError) as error:
            if self._is_empty():
                return ()
            cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
            raise HistoryUnavailable(f"the history database does not answer: {' '.join(str(cause).split())}") from error

    def _is_empty(self) -> bool:
        """Tells whether there are no tables yet; they are made with the first record."""
        try:
            return not sa.inspect(self._engine).get_table_names()
        except (SQLAlchemyError, OSError):
            return False

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


def match_column(table: str, **values: str | int | bool) -> list[ColumnElement[bool]]:
    """Returns conditions that columns have *values*; empty ones do not restrict."""
    return [_has_value(table, name, value) for name, value in values.items() if value]


def match_partition(table: str, partition: str) -> list[ColumnElement[bool]]:
    """Returns the condition that the partition has the name *partition*, in full or without its manager; an empty name
    does not restrict."""
    if not partition:
        return []
    column = TABLES[table].c.partition
    if partition.startswith("["):
        return [column == partition]
    return [sa.or_(column == partition, column.endswith(f"]{partition}", autoescape=True))]


def match_any(table: str, value: str, *names: str) -> list[ColumnElement[bool]]:
    """Returns the condition that one of the columns *names* has *value*; an empty value does not restrict."""
    return [sa.or_(*(_has_value(table, name, value) for name in names))] if value else []


def match_queue(table: str, path: str, *names: str) -> list[ColumnElement[bool]]:
    """Returns the condition that one of the columns *names* has the queue *path* or one below; an empty path does not
    restrict."""
    if not path:
        return []
    return [sa.or_(*(sa.or_(_has_value(table, name, path), _is_below(table, name, path)) for name in names))]


def _has_value(table: str, name: str, value: str | int | bool) -> ColumnElement[bool]:
    column = TABLES[table].c[name]
    if name not in INDEXED[table]:
        return column == value
    # An equality would make SQLite put the value in place of the column everywhere, and no longer find the index.
    return sa.and_(beginning_of(column) == str(value)[:INDEXED_CHARACTERS], column >= value, column <= value)


def _is_below(table: str, name: str, path: str) -> ColumnElement[bool]:
    # Texts that begin with "path." lie between "path." and "path/", because / is the next character: an index finds
    # them.
    first, last = f"{path}.", f"{path}/"
    column = TABLES[table].c[name]
    begins = beginning_of(column)
    return sa.and_(
        begins >= first[:INDEXED_CHARACTERS], begins <= last[:INDEXED_CHARACTERS], column > first, column < last
    )


def _place_of(token: str) -> tuple[int, int, int]:
    parts = token.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 19 for part in parts):
        raise InvalidRequest("the page token is not one that this service gives")
    at_ns, run, seq = map(int, parts)
    if max(at_ns, run, seq) > _INT64_MAX:
        raise InvalidRequest("the page token is not one that this service gives")
    return at_ns, run, seq
