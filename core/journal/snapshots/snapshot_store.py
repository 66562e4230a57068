"""Stores snapshots: next to an SQLite file as files, in PostgreSQL as rows of a table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import URL

from kornel.core.archive.database import connect
from kornel.core.journal.database.files import check_regular, sync_directory
from kornel.core.journal.database.store import STORE_ERRORS
from kornel.core.journal.database.tables import SNAPSHOTS
from kornel.core.journal.snapshots.snapshots import HEAD_BYTES, SnapshotHead, SnapshotUnusable, read_head

_FILE: Final = re.compile(r"(\d{20})\.snapshot")
_SCRATCH: Final = ".new"
MOST_BYTES: Final = 2**31
"""The most bytes of a snapshot. A message, as which its state is read, cannot be longer."""
_TOO_LONG: Final = f"it is longer than {MOST_BYTES // 2**20} MiB"


class KeptSnapshot(NamedTuple):
    """A stored snapshot, and its size in bytes. ``problem`` is the reason why it cannot be used; its head then contains
    only its number."""

    head: SnapshotHead
    size: int
    problem: str = ""

    @property
    def sequence(self) -> int:
        """Returns the number of the record after which it was taken."""
        return self.head.sequence


class SnapshotStore(Protocol):
    """The snapshots of one journal. All methods but :meth:`close` may raise one of
    :data:`kornel.core.journal.database.store.STORE_ERRORS`."""

    def list_snapshots(self) -> list[KeptSnapshot]:
        """Returns all snapshots, the newest first."""

    def read_snapshot(self, sequence: int) -> bytes:
        """Returns the snapshot after record *sequence*. Raises :class:`SnapshotUnusable` if it is gone."""

    def add_snapshot(self, head: SnapshotHead, data: bytes) -> None:
        """Stores *data*, which from then on survives a power failure. It replaces an earlier snapshot for the same
        record."""

    def remove_snapshot(self, sequence: int) -> None:
        """Removes the snapshot after record *sequence*, if there is one."""

    def forget_connections(self) -> None:
        """Drops all connections after a failure."""

    def close(self) -> None:
        """Closes the store."""


def open_snapshots(url: URL, patience_s: float, *, read_only: bool = False) -> SnapshotStore:
    """Returns the snapshots of the journal at *url*; nothing is opened yet. Raises ``ImportError`` without the
    driver."""
    if url.drivername.startswith("sqlite"):
        return SnapshotFiles(Path(f"{url.database}.snapshots"))
    return SnapshotTable(url, patience_s, read_only=read_only)


class SnapshotFiles:
    """Files in a directory, which are named by the record. A file exists completely or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def list_snapshots(self) -> list[KeptSnapshot]:
        """Returns all snapshots, the newest first."""
        found: list[KeptSnapshot] = []
        with suppress(FileNotFoundError):
            for path in self._directory.iterdir():
                if match := _FILE.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        found.append(_look_at(path, int(match[1])))
        return sorted(found, key=lambda each: -each.sequence)

    def read_snapshot(self, sequence: int) -> bytes:
        """Returns the snapshot after record *sequence*. Raises :class:`SnapshotUnusable` if it is gone."""
        path = self._find_path(sequence)
        try:
            check_regular(path)
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError as error:
            raise SnapshotUnusable("it is gone") from error
        if len(data) > MOST_BYTES:
            raise SnapshotUnusable(_TOO_LONG)
        return data

    def add_snapshot(self, head: SnapshotHead, data: bytes) -> None:
        """Stores *data*. A file that could not be written completely is removed."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for left in self._directory.glob(f"*{_SCRATCH}"):
            left.unlink(missing_ok=True)  # A process was killed while it wrote this file.
        path = self._find_path(head.sequence)
        scratch = path.with_name(path.name + _SCRATCH)
        try:
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            scratch.unlink(missing_ok=True)
            raise
        scratch.replace(path)
        sync_directory(self._directory)

    def remove_snapshot(self, sequence: int) -> None:
        """Removes the snapshot after record *sequence*, if there is one."""
        self._find_path(sequence).unlink(missing_ok=True)

    def forget_connections(self) -> None:
        """Does nothing, because there are no connections."""

    def close(self) -> None:
        """Does nothing."""

    def _find_path(self, sequence: int) -> Path:
        return self._directory / f"{sequence:020}.snapshot"


def _look_at(path: Path, sequence: int) -> KeptSnapshot:
    check_regular(path)
    size = path.stat().st_size
    if size > MOST_BYTES:
        return _unusable(sequence, size, _TOO_LONG)
    with path.open("rb") as file:
        begin = file.read(HEAD_BYTES)
    try:
        head = read_head(begin)
    except SnapshotUnusable as error:
        return _unusable(sequence, size, str(error))
    if head.sequence != sequence:
        return _unusable(sequence, size, "its name is not that of its record")
    return KeptSnapshot(head, size)


def _unusable(sequence: int, size: int, problem: str) -> KeptSnapshot:
    return KeptSnapshot(SnapshotHead("", sequence, 0, 0, 0, 0, 0), size, problem)


class SnapshotTable:
    """Rows of a table in the same database as the blocks."""

    def __init__(self, url: URL, patience_s: float, *, read_only: bool = False) -> None:
        self._engine = connect(url, patience_s, read_only=read_only, what="journal snapshots")

    def list_snapshots(self) -> list[KeptSnapshot]:
        """Returns all snapshots, the newest first."""
        columns = (
            SNAPSHOTS.c.sequence,
            sa.func.length(SNAPSHOTS.c.data),
            sa.func.substring(SNAPSHOTS.c.data, 1, HEAD_BYTES),
        )
        query = sa.select(*columns).order_by(SNAPSHOTS.c.sequence.desc())
        found: list[KeptSnapshot] = []
        with self._engine.begin() as connection:
            for sequence, size, begin in connection.execute(query):
                try:
                    found.append(KeptSnapshot(read_head(bytes(begin)), size))
                except SnapshotUnusable as error:
                    found.append(_unusable(sequence, size, str(error)))
        return found

    def read_snapshot(self, sequence: int) -> bytes:
        """Returns the snapshot after record *sequence*. Raises :class:`SnapshotUnusable` if it is gone."""
        query = sa.select(SNAPSHOTS.c.data).where(SNAPSHOTS.c.sequence == sequence)
        with self._engine.begin() as connection:
            data = connection.execute(query).scalar()
        if data is None:
            raise SnapshotUnusable("it is gone")
        return bytes(data)

    def add_snapshot(self, head: SnapshotHead, data: bytes) -> None:
        """Stores *data*. It replaces an earlier snapshot for the same record."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(SNAPSHOTS).where(SNAPSHOTS.c.sequence == head.sequence))
            connection.execute(sa.insert(SNAPSHOTS).values(sequence=head.sequence, data=data))

    def remove_snapshot(self, sequence: int) -> None:
        """Removes the snapshot after record *sequence*, if there is one."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(SNAPSHOTS).where(SNAPSHOTS.c.sequence == sequence))

    def forget_connections(self) -> None:
        """Drops all connections, so that the next use opens new ones."""
        self._engine.dispose()

    def close(self) -> None:
        """Closes the connections to the database."""
        with suppress(*STORE_ERRORS):
            self._engine.dispose()


@contextmanager
def opened_snapshots(url: URL, patience_s: float, *, read_only: bool = False) -> Iterator[SnapshotStore]:
    """Yields the snapshots of the journal at *url*, and closes them at the end."""
    snapshots = open_snapshots(url, patience_s, read_only=read_only)
    try:
        yield snapshots
    finally:
        snapshots.close()
