"""Opens, migrates and writes the history database as its only writer, and keeps it from growing."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.pool import NullPool, QueuePool

from kornel.core.archive.records import decode_batch
from kornel.core.archive.set_aside import Refused
from kornel.core.archive.settings import SECOND_NS, Retention
from kornel.core.archive.spool import Frame
from kornel.core.archive.tables import TABLES

PRUNED_AT_ONCE: Final = 1_000
"""The most rows of a table that are removed in one transaction, so that other transactions do not wait long for it."""

AGE_STEP_NS: Final = 3_600 * SECOND_NS
"""The largest difference in age between rows that one pass removes for their age.

Whatever the clock says, rows are removed over hours and not at once, so that an operator can notice.
"""

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_MIGRATION_LOCK: Final = 0x6B6F726E656C  # any number that no other program uses

_ASKED_AGAIN_S: Final = 0.01
_GRACE_S: Final = 0.5
"""The time that a server has beyond its own timeout to say that an answer has taken too long."""
_CHECKPOINT_MS: Final = 2_000
"""The time for which closing waits for readers of the file: less than the core waits for its committing process."""

_STATES_OF_RECORDS: Final = ("21", "22", "23", "54")
"""The classes of SQLSTATE that are about values: cardinality, data, constraints, and limits of the program.

Class 54 covers index entries that are too long, which the driver reports as an operational error.
"""


class DatabaseTooNew(Exception):
    """The tables were changed by a later version of Kornel."""


def concerns_records(error: Exception) -> bool:
    """Tells whether *error* is about a record's values, so that the database will never accept the record.

    Any other error may be over at the next attempt: a lock, a full disk, a server that is away.
    """
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    if isinstance(error, DBAPIError):
        state = getattr(cause, "sqlstate", None)
        if state is not None:
            return str(state)[:2] in _STATES_OF_RECORDS
        # Errors are compared by name, which is the same for both drivers, because one of them may not be installed.
        names = {each.__name__ for each in type(cause).__mro__}
        return bool(names & {"DataError", "IntegrityError", "ProgrammingError"}) and not error.connection_invalidated
    # The driver could not even write the value for the database.
    return isinstance(cause, ValueError | TypeError | OverflowError)


def reason_of(error: Exception) -> str:
    """Returns *error* in one line, without the hints of drivers and the statement that SQLAlchemy adds."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(cause).split())[:300] or type(cause).__name__
    return text.encode(errors="replace").decode()


def connect(
    url: URL, patience_s: float, *, read_only: bool = False, durable: bool = True, what: str = "history"
) -> Engine:
    """Returns an engine for *url*; nothing is opened yet. Raises ``ImportError`` without the driver.

    *durable*: commits survive a power failure. *what*: the kind of data, which the database shows in its list of
    connections.
    """
    if url.drivername.startswith("sqlite"):
        return _configure_sqlite(url, patience_s, read_only=read_only, durable=durable)
    milliseconds = int(patience_s * 1_000)
    # The spool drops committed records, so they have to be on the server's disk, whatever the role's default is.
    on_disk = "on" if durable else "off"
    settings = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} -c synchronous_commit={on_disk}"
    # The server ends a transaction whose client has given it up, and finds out about a client that is gone.
    settings += f" -c idle_in_transaction_session_timeout={milliseconds}"
    settings += " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
    if read_only:
        settings += " -c default_transaction_read_only=on"
    engine = sa.create_engine(
        url,
        paramstyle="format",
        poolclass=QueuePool,
        pool_size=2 if read_only else 1,
        max_overflow=0,
        pool_pre_ping=read_only,
        connect_args={
            "connect_timeout": max(2, int(patience_s)),
            "options": settings,
            "application_name": f"kornel {what}" + (" queries" if read_only else ""),
            # This detects a server that disappeared without closing the connection.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 2 * milliseconds,
        },
    )

    def watch(connection: Any, _record: Any) -> None:
        _watch_answers(connection, patience_s + _GRACE_S)

    # It comes first: SQLAlchemy asks the first connection about the server.
    sa.event.listen(engine, "connect", watch, insert=True)
    return engine


def _watch_answers(connection: Any, patience_s: float) -> None:
    """Has *connection* closed, with an error, when an answer is waited for and nothing comes for *patience_s* seconds.

    The server's own timeouts do not help where something in between keeps a connection open and answers nothing.
    """
    wait, error = connection.wait, connection.__class__.OperationalError

    def watch(answer: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        # The driver wakes up ten times a second, also if nothing has come.
        deadline_s = time.monotonic() + patience_s
        try:
            wanted = next(answer)
            while True:
                ready = yield wanted
                if ready:
                    deadline_s = time.monotonic() + patience_s
                elif time.monotonic() >= deadline_s:
                    connection.pgconn.finish()
                    raise error(f"the database has not answered for {patience_s:g} s")
                wanted = answer.send(ready)
        except StopIteration as end:
            return end.value

    connection.wait = lambda answer, *args, **named: wait(watch(answer), *args, **named)


def _configure_sqlite(url: URL, patience_s: float, *, read_only: bool, durable: bool) -> Engine:
    engine = sa.create_engine(
        url,
        poolclass=NullPool if read_only else QueuePool,
        connect_args={"timeout": patience_s, "check_same_thread": False},
    )

    def open_to_read(*_: Any) -> sqlite3.Connection:
        # A connection that could write copies the write-ahead log when it is closed, up to its first damaged page.
        where = f"file:{quote(str(Path(str(url.database)).absolute()))}?mode=ro"
        return sqlite3.connect(where, timeout=patience_s, check_same_thread=False, uri=True)

    def opened(connection: Any, _record: Any) -> None:
        # Otherwise the driver would begin transactions itself, but not for changes of tables.
        connection.isolation_level = None
        cursor = connection.cursor()
        if read_only:
            cursor.execute("PRAGMA query_only = 1")
        else:
            _write_ahead(cursor, patience_s)
            # With FULL, commits survive a power failure.
            cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        cursor.close()

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    sa.event.listen(engine, "do_connect", open_to_read if read_only else lambda *_: _make_private_file(url))
    sa.event.listen(engine, "connect", opened)
    sa.event.listen(engine, "begin", begun)
    return engine


def _make_private_file(url: URL) -> None:
    """Makes the file of *url*, unless it is there. It contains configurations and names of users, which other users of
    the machine must not read; SQLite would make it readable, and its log has the same mode.

    A file that is there is not opened: closing it would drop the locks that other connections of this process have.
    """
    with suppress(OSError):  # SQLite then says what is wrong.
        os.close(os.open(str(url.database), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _write_ahead(cursor: sqlite3.Cursor, patience_s: float) -> None:
    # While another connection writes, SQLite refuses this change at once, whatever timeout was set.
    deadline = time.monotonic() + patience_s
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_ASKED_AGAIN_S)


class Database:
    """The database. Every method may raise ``SQLAlchemyError`` or ``OSError`` when it does not answer."""

    def __init__(self, url: URL, patience_s: float) -> None:
        self._url = url
        self._engine = connect(url, patience_s)
        self._is_sqlite = url.drivername.startswith("sqlite")
        self._ready = False
        insert = _insert_tuples if self._is_sqlite else _insert_arrays
        self._inserts = tuple(insert(table) for table in TABLES.values())

    def prepare_tables(self) -> None:
        """Make the tables, or migrate them to this version. Raises :class:`DatabaseTooNew`."""
        if self._ready:
            return
        if self._is_sqlite:
            Path(str(self._url.database)).parent.mkdir(parents=True, exist_ok=True)
        with self._engine.begin() as connection:
            ready = _are_current(connection)
        if not ready:
            self._migrate_tables()
        self._ready = True

    def _migrate_tables(self) -> None:
        with self._engine.begin() as connection:
            if not self._is_sqlite:
                # A new index on millions of rows takes longer than any answer may.
                for timeout in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.execute(sa.text(f"SET LOCAL {timeout} = 0"))
                del vars(connection.connection.driver_connection)["wait"]
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            upgrade_tables(connection, _MIGRATIONS)
        if not self._is_sqlite:
            self._engine.dispose()  # Later answers have a deadline again.

    def store_frames(self, frames: Sequence[Frame]) -> tuple[int, list[Refused]]:
        """Commit *frames* in one transaction. Returns the number of records, and those that the database will never
        accept."""
        batches: list[list[tuple[Any, ...]]] = [[] for _ in TABLES]
        unread: list[Refused] = []
        for frame in frames:
            run = frame.run
            try:
                rows = [
                    (table, (run, seq, *values))
                    for seq, (table, values) in enumerate(decode_batch(frame.payload), frame.first)
                ]
                if len(rows) != frame.records:
                    raise ValueError(f"it has {len(rows)} records, and should have {frame.records}")
                told = [(batches[table], row) for table, row in rows]
            except Exception as error:  # noqa: BLE001 - the checksum is right, so the frame will never be readable
                reason = f"the frame cannot be read: {type(error).__name__}: {error}"
                unread.append(Refused("", run, frame.first, reason, [frame.payload], frame.records))
            else:
                for batch, row in told:
                    batch.append(row)
        records = sum(map(len, batches)) + sum(each.records for each in unread)
        try:
            with self._engine.begin() as connection:
                for insert, batch in zip(self._inserts, batches, strict=True):
                    if batch:
                        insert(connection, batch)
        except Exception as error:
            if not concerns_records(error):
                raise
            return records, unread + self._store_apart(batches)
        return records, unread

    def _store_apart(self, batches: list[list[tuple[Any, ...]]]) -> list[Refused]:
        """Commit the records of *batches* that the database accepts, so that a record that it will never accept does
        not delay the others."""
        refused: list[Refused] = []
        with self._engine.begin() as connection:
            for name, insert, rows in zip(TABLES, self._inserts, batches, strict=True):
                # A refused batch is halved until single records are left, so a few bad records among thousands cost few
                # attempts.
                waiting = [rows] if rows else []
                while waiting:
                    part = waiting.pop()
                    savepoint = connection.begin_nested()
                    try:
                        with savepoint:
                            insert(connection, part)
                    except Exception as error:
                        if not concerns_records(error):
                            raise
                        if len(part) > 1:
                            half = len(part) // 2
                            waiting += [part[half:], part[:half]]
                        else:
                            run, seq, *told = part[0]
                            refused.append(Refused(name, run, seq, reason_of(error), told))
        return refused

    def close(self) -> None:
        """Leave a complete file: SQLite copies its write-ahead log only when the last connection is closed.

        A reader in the middle of a query delays that until it has read, or until the time is up.
        """
        if self._is_sqlite and self._ready:
            connection = self._engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_MS}")
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                cursor.close()
            finally:
                connection.close()
        self.forget_connections()

    def prune_step(self, retention: Mapping[str, Retention], now_ns: int | None) -> Callable[[], bool]:
        """Returns a function that removes some rows that are too old at *now_ns*, or too many; it returns false when
        nothing is left to remove.

        *now_ns* ``None``: the time is not known, so nothing counts as too old.
        """
        bounds: dict[str, tuple[int, int, int]] = {}
        with self._engine.begin() as connection:
            for name, keep in retention.items():
                bound = _find_bound(connection, TABLES[name], keep, now_ns)
                if bound is not None:
                    bounds[name] = bound
        return lambda: self._prune_step(bounds)

    def _prune_step(self, bounds: dict[str, tuple[int, int, int]]) -> bool:
        for name, bound in list(bounds.items()):
            table = TABLES[name]
            place = sa.tuple_(table.c.at_ns, table.c.run, table.c.seq)
            old = (
                sa.select(table.c.run, table.c.seq)
                .where(place < sa.tuple_(*bound))
                .order_by(table.c.at_ns, table.c.run, table.c.seq)
                .limit(PRUNED_AT_ONCE)
            )
            with self._engine.begin() as connection:
                gone = connection.execute(sa.delete(table).where(sa.tuple_(table.c.run, table.c.seq).in_(old)))
            if gone.rowcount < PRUNED_AT_ONCE:
                del bounds[name]
        return bool(bounds)

    def forget_connections(self) -> None:
        """Drop all connections after a failure, so that the next use opens new ones and checks the tables again.

        The address may belong to another database by then.
        """
        self._engine.dispose()
        self._ready = False


_ARRAYS: Final[Mapping[type, str]] = {
    sa.BigInteger: "bigint[]",
    sa.Integer: "integer[]",
    sa.Boolean: "boolean[]",
    sa.Text: "text[]",
}

_Insert: TypeAlias = Callable[[Connection, list[tuple[Any, ...]]], None]
"""Inserts rows into a table, except rows that are there already."""


def _insert_tuples(table: sa.Table) -> _Insert:
    # The statement is compiled once and takes plain tuples, which halves the cost of a row.
    statement = str(sqlite.insert(table).on_conflict_do_nothing().compile(dialect=sqlite.dialect()))

    def insert(connection: Connection, rows: list[tuple[Any, ...]]) -> None:
        connection.exec_driver_sql(statement, rows)

    return insert


def _insert_arrays(table: sa.Table) -> _Insert:
    """Returns an insert with an array for each column: one statement and one response for any number of rows."""
    names = ", ".join(f'"{name}"' for name in table.c.keys())  # noqa: SIM118 - a collection of columns
    arrays = ", ".join(f"%b::{_ARRAYS[type(column.type)]}" for column in table.c)
    # The names are those of this package's tables.
    statement = f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"  # noqa: S608

    def insert(connection: Connection, rows: list[tuple[Any, ...]]) -> None:
        connection.exec_driver_sql(statement, tuple(map(list, zip(*rows, strict=True))))

    return insert


def _find_bound(
    connection: Connection, table: sa.Table, keep: Retention, now_ns: int | None
) -> tuple[int, int, int] | None:
    """Returns the place of the oldest row that stays, as time, run and sequence number; ``None``: all may stay."""
    bounds: list[tuple[int, int, int]] = []
    if keep.age_s and now_ns is not None:
        oldest_ns = connection.execute(sa.select(sa.func.min(table.c.at_ns))).scalar()
        if oldest_ns is not None:
            bounds.append((min(now_ns - keep.age_s * SECOND_NS, oldest_ns + AGE_STEP_NS), 0, 0))
    if keep.rows:
        columns = (table.c.at_ns, table.c.run, table.c.seq)
        newest_first = [column.desc() for column in columns]
        last = connection.execute(sa.select(*columns).order_by(*newest_first).offset(keep.rows - 1).limit(1)).first()
        if last is not None:
            bounds.append((last[0], last[1], last[2]))
    return max(bounds, default=None)


def _are_current(connection: Connection) -> bool:
    """Tells whether the tables are those of this version."""
    from alembic.migration import MigrationContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    found = MigrationContext.configure(connection, opts={"version_table": "history_version"}).get_current_heads()
    return found == tuple(ScriptDirectory(str(_MIGRATIONS)).get_heads())


def upgrade_tables(connection: Connection, migrations: Path) -> None:
    """Makes the tables of *migrations*, or brings them to this version. Raises :class:`DatabaseTooNew`."""
    # Alembic takes a while to import, and only a serving core needs it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise DatabaseTooNew(
            f"this version cannot use the tables ({error}); were they written by a later version?"
        ) from error
