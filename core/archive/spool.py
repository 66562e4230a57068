"""What the database has not taken yet, in files that survive the process and the machine.

A spool is a directory of segments, numbered, written only at their end. A segment is a row of frames: a header with
length, checksum, run, number of the first record and number of records, then the records. What :meth:`Spool.append`
has returned for is on the disk. A frame that was cut short when the process died was never promised to anybody; it and
what follows in its segment are left out.

One process at a time: the directory is locked. One thread appends, one reads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SEGMENT_BYTES: Final = 4 * 2**20

_HEADER: Final = struct.Struct("<4sIIQQI")
"""Magic, length of the payload, checksum of everything else, run, first record, records."""
_MAGIC: Final = b"KSP1"
_SUFFIX: Final = ".spool"


class SpoolUnusable(Exception):
    """The directory cannot be a spool: somebody else's, or out of reach."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Records *first* to *first* + *records* - 1 of *run*. ``end``: where it ends in segment ``segment``."""

    run: int
    first: int
    records: int
    payload: bytes
    segment: int
    end: int


class Spool:
    """Frames, first in first out. Raises :class:`SpoolUnusable` if *directory* is none.

    *limit*: bytes of frames that wait at most; the last one may reach past it.
    """

    def __init__(self, directory: Path, limit: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self._limit = limit
        self._segment_bytes = segment_bytes
        self._guard = threading.Lock()
        self.damaged = 0
        """Segments of which a part could not be read."""
        self._sizes: dict[int, int] = {}
        """Good bytes of each segment, the oldest first."""
        self._read = 0
        """Bytes of the oldest segment that were done with."""
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = (directory / "lock").open("wb")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._lock.close()
                raise SpoolUnusable(f"{directory}: another core writes its history there") from error
            self._find_segments()
        except OSError as error:
            raise SpoolUnusable(f"{directory}: {error.strerror or error}") from error
        self._next = max(self._sizes, default=0) + 1
        self._file: int | None = None
        self._writing = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of frames that are not done with."""
        with self._guard:
            return sum(self._sizes.values()) - self._read

    @property
    def full(self) -> bool:
        """No more is taken."""
        return self.waiting_bytes >= self._limit

    def append(self, run: int, first: int, records: int, payload: bytes) -> None:
        """Put a frame on the disk. Raises ``OSError``; then it is not there, and the next one is not affected."""
        head = struct.pack("<IQQI", len(payload), run, first, records)
        header = _HEADER.pack(_MAGIC, len(payload), zlib.crc32(payload, zlib.crc32(head)), run, first, records)
        file = self._begin_segment() if self._file is None else self._file
        try:
            _write_all(file, header + payload)
            os.fdatasync(file)
        except OSError:
            # What the file holds now is unknown; readers stop at the last good frame.
            self._end_segment()
            raise
        with self._guard:
            self._sizes[self._writing] += len(header) + len(payload)
            grown = self._sizes[self._writing]
        if grown >= self._segment_bytes:
            self._end_segment()

    def read(self, most_records: int, *, after: Frame | None = None) -> list[Frame]:
        """The oldest frames that are not done with, those behind *after*, of *most_records* or a single one."""
        frames: list[Frame] = []
        room = most_records
        with self._guard:
            segments = deque(self._sizes.items())
            start = self._read
        if after is not None:
            while segments and segments[0][0] < after.segment:
                segments.popleft()
            start = after.end
        while segments and room > 0:
            number, size = segments.popleft()
            for frame in self._frames(number, start, size):
                frames.append(frame)
                room -= frame.records
                if room <= 0:
                    break
            start = 0
        return frames

    def done(self, frame: Frame) -> None:
        """*frame* and all before it are stored elsewhere."""
        with self._guard:
            gone = [number for number in self._sizes if number < frame.segment]
            self._read = frame.end
            if frame.end >= self._sizes[frame.segment] and frame.segment != self._writing:
                gone.append(frame.segment)
                self._read = 0
            for number in gone:
                del self._sizes[number]
        for number in gone:
            self._path(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the directory to somebody else. A segment that was done with to its end goes."""
        if self._file is not None:
            self._end_segment()
        with self._guard:
            empty = [number for number, size in self._sizes.items() if size == self._read and len(self._sizes) == 1]
        for number in empty:
            self._path(number).unlink(missing_ok=True)
        self._lock.close()

    def _find_segments(self) -> None:
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            if not path.stem.isdecimal():
                continue
            size, good = path.stat().st_size, 0
            number = int(path.stem)
            for frame in self._frames(number, 0, size):
                good = frame.end
            if good:
                self._sizes[number] = good
            else:
                path.unlink()
            if good < size and not self._cut_short(path, good, size):
                self.damaged += 1

    def _cut_short(self, path: Path, good: int, size: int) -> bool:
        """Whether what follows *good* bytes is the beginning of one frame, as a process leaves it that was killed."""
        with path.open("rb") as file:
            file.seek(good)
            header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return _MAGIC.startswith(header[:4])
        magic, length, *_ = _HEADER.unpack(header)
        return bool(magic == _MAGIC and good + _HEADER.size + length > size)

    def _frames(self, number: int, start: int, size: int) -> Iterator[Frame]:
        """Whole frames of a segment from *start* up to *size* bytes, up to the first that is not whole."""
        if start >= size:
            return
        with self._path(number).open("rb") as file:
            file.seek(start)
            at = start
            while at < size:
                header = file.read(_HEADER.size)
                if len(header) < _HEADER.size:
                    return
                magic, length, checksum, run, first, records = _HEADER.unpack(header)
                if magic != _MAGIC or at + _HEADER.size + length > size:
                    return
                payload = file.read(length)
                head = struct.pack("<IQQI", length, run, first, records)
                if len(payload) < length or zlib.crc32(payload, zlib.crc32(head)) != checksum:
                    return
                at += _HEADER.size + length
                yield Frame(run, first, records, payload, number, at)

    def _begin_segment(self) -> int:
        number = self._next
        file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._next += 1
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._file = file
        with self._guard:
            self._writing = number
            self._sizes[number] = 0
        return file

    def _end_segment(self) -> None:
        assert self._file is not None
        os.close(self._file)
        self._file = None
        with self._guard:
            ended, self._writing = self._writing, 0
            done = self._sizes[ended] == (self._read if len(self._sizes) == 1 else 0)
            if done:
                del self._sizes[ended]
                if not self._sizes:
                    self._read = 0
        if done:
            self._path(ended).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:016d}{_SUFFIX}"


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
