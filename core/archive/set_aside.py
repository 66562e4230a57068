"""Sets aside records that the database will never accept, so that an operator can find them and other records are not
delayed.

The directory ``set-aside`` of the spool has them as lines of JSON in ``records.jsonl``, together with files in the
spool whose names are not those of a writer. No program reads them again: an operator reads and removes them. Both sides
of the spool write there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

DIRECTORY: Final = "set-aside"
RECORDS: Final = "records.jsonl"
MOST_BYTES: Final = 16 * 2**20
"""The size of the file beyond which records are only counted, so that a database that refuses everything cannot fill
the disk."""

LONGEST_TEXT: Final = 65_536
"""The most characters of one text of a record that are written."""


class Refused(NamedTuple):
    """A record that the database will never accept, or a frame of the spool that cannot be read (``table`` empty).

    records   the number of records
    """

    table: str
    run: int
    seq: int
    reason: str
    told: Sequence[Any]
    records: int = 1


class SetAside:
    """The directory in *spool*, which is made once there is something to put there."""

    def __init__(self, spool: Path) -> None:
        self.directory: Final = spool / DIRECTORY
        self._counted: tuple[int, int] = (0, 0)
        """The number of lines in the file with records, and its size when they were counted."""

    def put_records(self, refused: Sequence[Refused]) -> None:
        """Appends records to the file as long as there is room. Raises ``OSError``."""
        lines = b"".join(map(_make_line, refused))
        self.directory.mkdir(mode=0o700, exist_ok=True)
        file = os.open(self.directory / RECORDS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < MOST_BYTES:
                _write_all(file, lines)
                os.fsync(file)
        finally:
            os.close(file)

    def move_here(self, path: Path) -> None:
        """Move the file *path* into the directory. Raises ``OSError``."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        path.rename(self.directory / path.name)

    def count_files(self) -> int:
        """Count the records and files in the directory. Raises ``OSError``."""
        found = records = 0
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if entry.name == RECORDS:
                        records = self._count_lines(entry)
                    else:
                        found += 1
        except FileNotFoundError:
            return 0
        return found + records

    def _count_lines(self, entry: os.DirEntry[str]) -> int:
        size = entry.stat().st_size
        lines, before = self._counted
        if size < before:  # The file was emptied or replaced.
            lines, before = 0, 0
        if size != before:
            with open(entry.path, "rb") as file:  # noqa: PTH123 - what an entry has is text
                file.seek(before)
                while block := file.read(2**20):
                    lines += block.count(b"\n")
            self._counted = (lines, size)
        return lines


def _make_line(refused: Refused) -> bytes:
    fields = {**refused._asdict(), "told": [_shorten_value(value) for value in refused.told]}
    return orjson.dumps(fields, default=_text_of) + b"\n"


def _shorten_value(value: Any) -> Any:
    """Return *value* in a form that JSON can express, shortened if it is absurdly long."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()[:LONGEST_TEXT]
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return _text_of(value)


def _text_of(value: Any) -> str:
    try:
        return repr(value).encode(errors="replace").decode()[:LONGEST_TEXT]
    except ValueError:  # Python refuses to write a number with this many digits.
        return f"a {type(value).__name__} that cannot be written down"


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
