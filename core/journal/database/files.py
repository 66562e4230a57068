"""Checks the files of a journal, which somebody else may have made, before they are used. Locks and flushes them."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import struct
from pathlib import Path
from typing import Final

MOST_ROW_BYTES: Final = 256 * 2**20
"""The most bytes of a value that SQLite reads, of an expression that it computes, and of a statement."""

_LOCKED_BYTE: Final = 2**62
"""SQLite locks some bytes from the 2**30th on."""


def check_regular(path: Path) -> None:
    """Raises ``OSError`` if there is something else than a regular file at *path*: a pipe would be waited for without
    end, and a device has no end."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def lock_byte(file: int) -> None:
    """Locks one byte of the open *file* for as long as it is open, far behind all that SQLite locks. Raises
    ``BlockingIOError`` if another descriptor has it locked.

    A lock of the whole file would keep SQLite out wherever the two kinds of locks know of each other, as over NFS.
    """
    # The fields of "struct flock": type, whence, start, length, process.
    lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some sandboxes have no such locks.
            raise


def sync_directory(directory: Path) -> None:
    """Flushes *directory*, so that the names of new files are on the disk."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def check_tables(connection: sqlite3.Connection) -> None:
    """Raises ``OSError`` if the database has something else than tables with plain columns and their indexes. A view or
    a trigger, a computed column or a module of SQLite would do what whoever made the file wants, and for as long."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_ROW_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    tables = []
    for kind, name, made in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind not in ("table", "index") or str(made).upper().startswith("CREATE VIRTUAL"):
            raise OSError(errno.EINVAL, f"it has a {kind} {name!r}, and a journal has plain tables only")
        if kind == "table":
            tables.append(name)
    for name in tables:
        # Of a plain column the last number is 0.
        if any(column[-1] for column in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,))):
            raise OSError(errno.EINVAL, f"it has computed columns in {name!r}, and a journal has plain tables only")
