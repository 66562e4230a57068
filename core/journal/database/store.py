"""The database of a journal: blocks are appended, read in order, and removed from the beginning."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from kornel.core.archive.database import connect, reason_of, upgrade_tables
from kornel.core.journal.content.records import Block
from kornel.core.journal.database.end_marker import EndMarker, Marked, MarkerDamaged, name_marker, read_marker
from kornel.core.journal.database.files import check_regular, check_tables, lock_byte
from kornel.core.journal.database.tables import BLOCKS, LEASE

RowT = TypeVar("RowT", bound=Sequence[Any])

STORE_ERRORS: Final = (SQLAlchemyError, OSError, UnicodeError)
"""The errors with which a database fails; the next try may succeed. SQLite quotes damaged bytes in its messages, which
the driver cannot decode, and some names of hosts cannot be encoded."""

READ_AT_ONCE: Final = 256
FETCHED_BYTES: Final = 64 * 2**20
"""The blocks that are fetched with one query are at most so many, and end with the one that has so many bytes."""

PRUNED_AT_ONCE: Final = 200

ABOUT_LOSS: Final = (
    "with --journal-accept-loss a core goes on with what is there; shims that do not say what they have received have"
    " to register again then"
)

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_MIGRATION_LOCK: Final = 0x6B6F726E656D  # any number that nothing else uses


_FENCED: Final = """
INSERT INTO journal_blocks (first, last, epoch, life, at_ns, chain_before, chain, delivered, payload)
SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s
FROM journal_lease AS lease
LEFT JOIN (SELECT last, chain FROM journal_blocks ORDER BY first DESC LIMIT 1) AS ending ON true
WHERE lease.epoch = %s AND COALESCE(ending.last, 0) + 1 = %s AND COALESCE(ending.chain, 0) = %s
"""
"""Appends a block if the lease has its epoch and the journal ends with the record before it."""


class StoreTaken(Exception):
    """Another core writes this journal, and has continued it after the last record of this core."""


class StoreMoved(StoreTaken):
    """This core holds the lease, but the journal has another end than expected."""


class LogCut(Exception):
    """The log in a file does not have the record that its end marker says: what is lost was confirmed."""


class StoreEnd(NamedTuple):
    """The end of a store: the last record, epoch, life and so on of its last block."""

    sequence: int = 0
    epoch: int = 0
    life: int = 0
    at_ns: int = 0
    chain: int = 0
    delivered: int = 0


class JournalStore:
    """A journal's database. All methods but :meth:`close` may raise one of :data:`STORE_ERRORS`."""

    def __init__(
        self, url: URL, patience_s: float, *, durable: bool = True, read_only: bool = False, fenced: bool = False
    ) -> None:
        """Prepares the store without opening it. Raises ``ImportError`` without the driver.

        *fenced* says that several cores share the PostgreSQL database, of which only the core whose epoch is in the
        lease may write.
        """
        self._url = url
        self._patience_s = patience_s
        self._fenced = fenced
        self._is_sqlite = url.drivername.startswith("sqlite")
        self._path = Path(str(url.database))
        """The file of an SQLite journal."""
        self._durable = durable
        self._read_only = read_only
        self._engine = connect(url, patience_s, read_only=read_only, durable=durable, what="journal")
        if self._is_sqlite:
            sa.event.listen(self._engine, "do_connect", lambda *_: self._check_files(), insert=True)
            sa.event.listen(self._engine, "connect", lambda connection, _: check_tables(connection), insert=True)
        dialect = sqlite.dialect() if self._is_sqlite else postgresql.dialect(paramstyle="format")  # type: ignore[no-untyped-call]
        self._insert = str(BLOCKS.insert().compile(dialect=dialect))
        self._locks: list[int] = []
        self._marker: EndMarker | None = None

    def open(self, *, accept_loss: bool = False) -> str:
        """Make the tables, or bring them to this version. Returns what of a log in a file is lost, which only
        *accept_loss* allows; empty: nothing.

        Raises :class:`StoreTaken` while another core uses the file, :class:`LogCut`, and
        :class:`kornel.core.archive.database.DatabaseTooNew`.
        """
        if self._read_only:
            if self._is_sqlite:
                self._check_files()
            if self._is_sqlite and not self._path.exists():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._path))
            return ""
        lost = ""
        if self._is_sqlite:
            self._prepare_file()
            # SQLite would write a damaged log over. So this comes before anything is opened to be written.
            lost = self.find_loss()
            if lost and not accept_loss:
                raise LogCut(f"{lost}: {ABOUT_LOSS}")
        with self._engine.begin() as connection:
            if not self._is_sqlite:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            upgrade_tables(connection, _MIGRATIONS)
        if self._is_sqlite:
            if self._durable:
                # The core before may have ended between a flush that failed and its repetition.
                self._flush_log("PASSIVE")
            self._begin_marking(None if lost else self._read_marker())
        return lost

    def _check_files(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal", ".lock"):
            check_regular(self._path.with_name(self._path.name + suffix))
        check_regular(name_marker(self._path))
        if self._read_only and (said := self._find_headless_log()):
            raise OSError(errno.EIO, said, str(self._path))

    def _find_headless_log(self) -> str:
        """Returns what is wrong if the file is empty, and its write-ahead log is not: SQLite would remove the log."""
        with suppress(FileNotFoundError):
            if self._path.with_name(f"{self._path.name}-wal").stat().st_size and not self._path.stat().st_size:
                return "the file is empty, and its write-ahead log is not"
        return ""

    def _prepare_file(self) -> None:
        path = self._path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._check_files()
        # Cores that come by the same name meet at the first lock, those that come by a hard link at the second. The
        # second one is no lock of SQLite's, which the process would lose with any other descriptor that it closes.
        for locked, lock in ((path.with_name(f"{path.name}.lock"), _lock_file), (path, lock_byte)):
            # It contains configurations and names of users, which other users must not read.
            held = os.open(locked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._locks.append(held)
            try:
                lock(held)
            except BlockingIOError:
                raise StoreTaken(f"another core writes {path}") from None

    def _read_marker(self) -> Marked | None:
        try:
            return read_marker(name_marker(self._path))
        except MarkerDamaged:
            if self._has_had_marker():
                raise
            return None  # Nothing was marked yet: a core ended, or the disk was full, while the marker was made.

    def find_loss(self) -> str:
        """Returns what a log in a file has lost at its end, as its end marker says; empty: nothing."""
        if not self._is_sqlite:
            return ""
        if said := self._find_headless_log():
            return said
        if not self._read_only:
            # SQLite leaves the write-ahead log as it is if the only connections to it just read.
            with closing(JournalStore(self._url, self._patience_s, read_only=True)) as reading:
                return reading.find_loss()
        try:
            marked = self._read_marker()
        except MarkerDamaged as error:
            return str(error)
        with self._engine.begin() as connection:
            tables = sa.text("SELECT 1 FROM sqlite_master WHERE name = 'journal_blocks'")
            end = self.find_end() if connection.execute(tables).first() else StoreEnd()
        ends = f"the log ends at record {end.sequence}, and"
        if marked is None:
            return f"{ends} its end marker is missing" if self._has_had_marker() else ""
        block = marked.block
        if end.sequence < block.last:
            is_next = marked.has_payload and (end.sequence + 1, end.chain) == (block.first, block.chain_before)
            return "" if is_next else f"{ends} its end marker says {block.last}"
        if block.last and self.find_chain(block.last) != block.chain:
            return f"{ends} has another record {block.last} than its end marker"
        return ""

    def _begin_marking(self, marked: Marked | None) -> None:
        """Marks the end of the log from here on. A block that the marker has, and the log does not, is appended: after
        a power failure, either may be ahead of the other."""
        if marked is not None and marked.has_payload and self.find_end().sequence < marked.block.last:
            self.append_block(marked.block, marked.life)
        end = self.find_end()
        self._marker = EndMarker(name_marker(self._path), durable=self._durable)
        last = Block(end.sequence, end.sequence, end.epoch, end.at_ns, 0, end.chain, end.delivered, b"")
        self._marker.replace_end(last, end.life)
        if not self._has_had_marker():
            self._execute_alone("PRAGMA user_version = 1", ())
            with suppress(OSError):  # From now on the file says so by every name that it has.
                self._flush_log("PASSIVE")

    def _has_had_marker(self) -> bool:
        with self._engine.begin() as connection:
            return bool(connection.execute(sa.text("PRAGMA user_version")).scalar())

    def find_end(self) -> StoreEnd:
        """Returns the end of the store; in an empty store all numbers are 0."""
        columns = (BLOCKS.c.last, BLOCKS.c.epoch, BLOCKS.c.life, BLOCKS.c.at_ns, BLOCKS.c.chain, BLOCKS.c.delivered)
        with self._engine.begin() as connection:
            row = connection.execute(sa.select(*columns).order_by(BLOCKS.c.first.desc()).limit(1)).first()
        return StoreEnd(*_check_types(row)) if row is not None else StoreEnd()

    def append_block(self, block: Block, life: int) -> None:
        """Commit *block*. Raises :class:`StoreTaken` if another core has written records with its numbers, or holds the
        lease.

        It may be called again with the same block after an error; the block is then stored only once.
        """
        row = (
            block.first, block.last, block.epoch, life, block.at_ns, block.chain_before, block.chain, block.delivered,
            block.payload,
        )  # fmt: skip
        fence = (block.epoch, block.first, block.chain_before) if self._fenced else ()
        with self._marker.covering(block, life) if self._marker is not None else nullcontext():
            if not self._execute_alone(_FENCED if self._fenced else self._insert, (*row, *fence)):
                self._find_own(block)

    def _execute_alone(self, statement: str, values: tuple[Any, ...]) -> int:
        """Executes *statement*, which commits by itself. Returns the number of rows that it has written: none, if one
        of its numbers was there.

        A core that is stopped in the middle leaves no open transaction. The driver is called directly, because a
        transaction of SQLAlchemy takes ten times as long in the interpreter, for which the event loop has to wait.
        """
        driver = self._engine.dialect.loaded_dbapi
        pooled: PoolProxiedConnection | None = None
        try:
            pooled = self._engine.raw_connection()
            connection: Any = pooled.driver_connection
            if not self._is_sqlite:
                connection.autocommit = True
            written = int(connection.execute(statement, values).rowcount)
            if not self._is_sqlite:
                connection.autocommit = False
        except driver.Error as error:
            if pooled is not None:
                pooled.invalidate()
            if isinstance(error, driver.IntegrityError):
                return 0
            raise DBAPIError(statement, None, error) from error
        pooled.close()
        return written

    def _find_own(self, block: Block) -> None:
        """Raises an error unless the journal contains *block* already, on the disk: it does if only the answer to its
        commit was lost."""
        with self._engine.begin() as connection:
            found = connection.execute(sa.select(BLOCKS).where(BLOCKS.c.first == block.first)).first()
            lease = connection.execute(sa.select(LEASE.c.epoch, LEASE.c.address)).first() if self._fenced else None
        if found is not None and found.chain == block.chain and found.epoch == block.epoch:
            if self._is_sqlite:
                self._flush_log("TRUNCATE")
            return
        if lease is None or lease.epoch > block.epoch:
            at = f" at {lease.address}" if lease is not None and lease.address else ""
            raise StoreTaken(f"another core{at} writes this journal since record {block.first}")
        last = self.find_end().sequence
        raise StoreMoved(
            f"the database holds records up to {last}, and this core has made those up to {block.first - 1}"
        )

    def _flush_log(self, mode: str) -> None:
        """Copies the write-ahead log into the file, and flushes the file. Raises ``OSError`` while somebody reads; in
        the *mode* PASSIVE only if the reader began before the last commit.

        A flush of the log that fails may leave its contents in the kernel's memory only, where they can be read and
        are not written again.
        """
        driver = self._engine.dialect.loaded_dbapi
        try:
            with closing(self._engine.raw_connection()) as connection:
                busy, written, copied = connection.cursor().execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except driver.Error as error:
            raise DBAPIError("PRAGMA wal_checkpoint", None, error) from error
        if busy or written != copied:
            raise OSError(errno.EBUSY, "the last commit cannot be flushed while somebody reads the journal")

    def read_blocks(self, first: int = 1) -> Iterator[tuple[Block, int]]:
        """Yields the blocks from the one with record *first* on, each with its life."""
        at = first
        while True:
            found = self.fetch_blocks(at, READ_AT_ONCE)
            if not found:
                return
            yield from found
            at = found[-1][0].last + 1

    def fetch_blocks(self, first: int, most: int) -> list[tuple[Block, int]]:
        """Returns at most *most* blocks from the one with record *first* on, each with its life. There are fewer if
        they are large, and none only at the end."""
        # The key finds this block; without it, each query would search all blocks from the first one on.
        before = sa.select(sa.func.max(BLOCKS.c.first)).where(BLOCKS.c.first <= first).scalar_subquery()
        query = sa.select(BLOCKS).where(BLOCKS.c.first >= sa.func.coalesce(before, first), BLOCKS.c.last >= first)
        found: list[tuple[Block, int]] = []
        size = 0
        with self._engine.begin() as connection:
            for row in connection.execute(query.order_by(BLOCKS.c.first).limit(most)):
                found.append((_make_block(row), row.life))
                size += len(found[-1][0].payload)
                if size > FETCHED_BYTES:
                    break
        return found

    def find_life(self, sequence: int) -> int:
        """Returns the life of record *sequence*, or 0 if the record is not there."""
        query = sa.select(BLOCKS.c.life).where(BLOCKS.c.first <= sequence).order_by(BLOCKS.c.first.desc()).limit(1)
        with self._engine.begin() as connection:
            return int(connection.execute(query).scalar() or 0)

    def find_chain(self, sequence: int) -> int | None:
        """Returns the checksum of record *sequence*, or ``None`` if the record is not there or not the last one of its
        block."""
        query = sa.select(BLOCKS.c.last, BLOCKS.c.chain).where(BLOCKS.c.first <= sequence)
        with self._engine.begin() as connection:
            row = connection.execute(query.order_by(BLOCKS.c.first.desc()).limit(1)).first()
        return int(row.chain) if row is not None and row.last == sequence else None

    def count_bytes(self) -> tuple[int, int, int]:
        """Returns the first stored record, the number of blocks, and their bytes."""
        query = sa.select(sa.func.min(BLOCKS.c.first), sa.func.count(), sa.func.sum(sa.func.length(BLOCKS.c.payload)))
        with self._engine.begin() as connection:
            first, blocks, size = connection.execute(query).one()
        return int(first or 0), int(blocks), int(size or 0)

    def count_payload(self, first: int, before: int) -> int:
        """Returns the bytes of the blocks from the one with record *first* up to record *before*, or to the end if
        *before* is 0."""
        query = sa.select(sa.func.sum(sa.func.length(BLOCKS.c.payload))).where(BLOCKS.c.first >= first)
        if before:
            query = query.where(BLOCKS.c.first < before)
        with self._engine.begin() as connection:
            return int(connection.execute(query).scalar() or 0)

    def check_file(self) -> str:
        """Returns what is wrong with the structure of an SQLite file, or an empty text. PostgreSQL sees to its own
        files.

        Rows that the structure has lost are missing at the end without a trace in the other rows.
        """
        if not self._is_sqlite:
            return ""
        with self._engine.begin() as connection:
            found = connection.execute(sa.text("PRAGMA quick_check(1)")).scalars().all()
        return "" if found == ["ok"] else "; ".join(" ".join(str(text).split()) for text in found)

    def prune_before(self, sequence: int) -> int:
        """Removes the blocks that end before *sequence*, a few at a time. Returns their number."""
        removed = 0
        while True:
            old = sa.select(BLOCKS.c.first).where(BLOCKS.c.last < sequence).order_by(BLOCKS.c.first)
            with self._engine.begin() as connection:
                gone = connection.execute(sa.delete(BLOCKS).where(BLOCKS.c.first.in_(old.limit(PRUNED_AT_ONCE))))
            removed += gone.rowcount
            if gone.rowcount < PRUNED_AT_ONCE:
                return removed

    def forget_connections(self) -> None:
        """Drop all connections after a failure, so that the next use opens new ones."""
        self._engine.dispose()

    def close(self) -> None:
        """Close the connections to the database."""
        with suppress(*STORE_ERRORS):
            self._engine.dispose()
        if self._marker is not None:
            self._marker.close()
            self._marker = None
        while self._locks:
            os.close(self._locks.pop())


def _lock_file(file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def describe_error(error: Exception) -> str:
    """Returns *error*, an error of a store, in one line."""
    if isinstance(error, OSError):
        return str(error)
    return reason_of(error)


def is_full(error: Exception) -> bool:
    """Tells whether *error* says that there is no room. Then only the operator can help; another address of the
    database would have no room either."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return True
    return str(getattr(cause, "sqlstate", "") or "") in {"53100", "54023"}


def _make_block(row: Row[Any]) -> Block:
    *_, payload = _check_types(row)
    return Block(row.first, row.last, row.epoch, row.at_ns, row.chain_before, row.chain, row.delivered, bytes(payload))


def _check_types(row: RowT) -> RowT:
    """Returns *row*. Raises ``OSError`` for a value of another type than its column's, which SQLite does not prevent in
    a damaged file."""
    if not all(isinstance(value, int | bytes | memoryview) for value in row):
        raise OSError(errno.EIO, "a row of the journal is damaged")
    return row
