"""The spool: files with records that the database has not accepted yet. They survive a crash of the process and of the
machine.

A spool is a directory of numbered segments, which are written only at their end. A segment is a sequence of frames: a
header with length, checksum, run, number of the first record and number of records, then the records. Once
:meth:`SpoolWriter.append` has returned, a frame is on the disk. A frame that is incomplete because the process was
killed does not count as stored; the rest of its segment is ignored.

Two processes share the spool without messages about single frames: the core appends, and the committing process reads
and removes. Nothing is appended to a segment once there is a later one. On either side there is one process at a time,
which holds a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader, BufferedWriter
from pathlib import Path
from typing import Final, NamedTuple

from kornel.core.archive.set_aside import SetAside

SEGMENT_BYTES: Final = 4 * 2**20

_HEADER: Final = struct.Struct("<4sIIQQI")
"""The magic number, length of the payload, checksum of everything else, run, first record, records."""
_SUMMED: Final = struct.Struct("<IQQI")
_MAGIC: Final = b"KSP1"
_SUFFIX: Final = ".spool"
_NAME: Final = re.compile(r"([0-9]{16})\.spool", re.ASCII)
_REACH: Final = 10**12
"""The most by which the number of a segment may exceed that of the first segment of the last writer. No writer reaches
it with segments of 4 MiB. It is checked because numbers continue after the highest one in the directory, and must not
outgrow the names of files."""


class SpoolUnusable(Exception):
    """The directory cannot be a spool: another core uses it, or it cannot be accessed."""


class Place(NamedTuple):
    """A position in the spool: a segment, and an offset in it. Positions are ordered as they follow each other."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Records *first* to *first* + *records* - 1 of *run*. ``end`` is the position after it."""

    run: int
    first: int
    records: int
    payload: bytes
    end: Place


class SpoolWriter:
    """Writes the spool, in the core. Raises :class:`SpoolUnusable` if *directory* is no spool, or has a writer.

    *limit* is the most bytes that may wait; the last frame may exceed it. Only one thread appends; any thread may
    query.
    """

    def __init__(self, directory: Path, limit: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self._limit = limit
        self._segment_bytes = segment_bytes
        self._guard = threading.Lock()
        self._done = Place(0, 0)
        try:
            _make_directory(directory)
            self._lock = (directory / "lock").open("a+b")
            if not _lock_file(self._lock, wait=False):
                self._lock.close()
                raise SpoolUnusable(f"{directory}: another core writes its history there")
            highest = _read_number(self._lock) + _REACH
            self.odd: Final = tuple(_move_odd_files(directory, highest))
            """The names of files that look like segments but are none. They were set aside."""
            self._sizes = _segment_sizes(directory, highest)
        except OSError as error:
            raise SpoolUnusable(f"{directory}: {error.strerror or error}") from error
        self.first_segment: Final = max(self._sizes, default=0) + 1
        """The first segment of this writer. Nothing is appended to earlier ones."""
        _write_number(self._lock, self.first_segment)
        self._next = self.first_segment
        self._file: int | None = None
        self._writing = 0

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait to be stored elsewhere."""
        with self._guard:
            done = self._done
            return sum(size for number, size in self._sizes.items() if number >= done.segment) - min(
                done.offset, self._sizes.get(done.segment, 0)
            )

    @property
    def full(self) -> bool:
        """Tells whether the spool is full, so that nothing more may be appended."""
        return self.waiting_bytes >= self._limit

    def append(self, run: int, first: int, records: int, payload: bytes) -> None:
        """Write a frame to the disk. Raises ``OSError``; the frame is then not stored, and the next one is not
        affected."""
        checksum = zlib.crc32(payload, zlib.crc32(_SUMMED.pack(len(payload), run, first, records)))
        header = _HEADER.pack(_MAGIC, len(payload), checksum, run, first, records)
        file = self._begin_segment() if self._file is None else self._file
        try:
            _write_all(file, header + payload)
            os.fdatasync(file)
        except OSError:
            # The content of the file is unknown now; readers stop after the last good frame.
            self._end_segment()
            raise
        with self._guard:
            self._sizes[self._writing] += len(header) + len(payload)
            grown = self._sizes[self._writing]
        if grown >= self._segment_bytes:
            self._end_segment()

    def mark_stored(self, place: Place) -> None:
        """Note that everything before *place* is stored elsewhere."""
        with self._guard:
            if place > self._done:
                self._done = place
                for number in list(self._sizes):
                    if number < place.segment and number != self._writing:
                        del self._sizes[number]

    def end_writing(self) -> None:
        """Append nothing more. The directory stays locked until :meth:`close`."""
        if self._file is not None:
            self._end_segment()

    def close(self) -> None:
        """Unlock the directory for another core."""
        self.end_writing()
        self._lock.close()

    def _begin_segment(self) -> int:
        number = self._next
        file = os.open(
            _segment_path(self._directory, number),
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        self._next += 1
        try:
            _sync_names(self._directory)
        except OSError:
            # The next try uses another segment.
            os.close(file)
            _segment_path(self._directory, number).unlink(missing_ok=True)
            raise
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
            empty = not self._sizes[ended]
            if empty or ended < self._done.segment:
                del self._sizes[ended]
        if empty:
            # A full disk must not be filled with empty files.
            _segment_path(self._directory, ended).unlink(missing_ok=True)


class SpoolReader:
    """The committing side: it reads frames in order, from the oldest segment on, and removes those that are stored
    elsewhere.

    *sealed_before*: nothing is appended to segments with lower numbers. The constructor waits for an earlier reader to
    end.
    """

    def __init__(self, directory: Path, sealed_before: int = 0) -> None:
        self._directory = directory
        self._sealed_before = sealed_before
        self._highest = sealed_before + _REACH
        held = os.open(directory / "reader.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = os.fdopen(held, "wb")
        _lock_file(self._lock, wait=True)
        self.place = Place(min(self._list_sizes(), default=sealed_before), 0)
        """The position before which everything is stored elsewhere."""
        self.damaged: set[int] = set()
        """The segments of which a part could not be read."""

    def read(self, most_records: int, *, most_bytes: int = 2**62, ended: bool = False) -> list[Frame]:
        """Returns the oldest waiting frames, up to *most_records* and *most_bytes*, but at least one.

        *ended* says that the writer appends nothing more.
        """
        frames: list[Frame] = []
        records = size = 0
        # The segments are listed before any is read: a segment with a later one now is complete, even if it was not a
        # moment ago.
        numbers = sorted(number for number in self._list_sizes() if number >= self.place.segment)
        for number in numbers:
            start = self.place.offset if number == self.place.segment else 0
            try:
                with _segment_path(self._directory, number).open("rb") as file:
                    for frame in _read_frames(file, number, start):
                        frames.append(frame)
                        records += frame.records
                        size += len(frame.payload)
                        if records >= most_records or size >= most_bytes:
                            return frames
                    good = frames[-1].end.offset if frames and frames[-1].end.segment == number else start
                    if not (ended or number < self._sealed_before or number != numbers[-1]):
                        return frames
                    if _is_damaged(file, good):
                        self.damaged.add(number)
            except FileNotFoundError:
                continue  # The disk was full, and the writer has removed it.
            if not frames:
                self._move_to(Place(number + 1, 0))
        return frames

    @property
    def waiting_bytes(self) -> int:
        """The approximate number of bytes that wait to be stored elsewhere."""
        sizes = self._list_sizes()
        return sum(sizes.values()) - min(self.place.offset, sizes.get(self.place.segment, 0))

    def mark_stored(self, frame: Frame) -> None:
        """Note that *frame* and all frames before it are stored elsewhere."""
        self._move_to(frame.end)

    def close(self) -> None:
        """Unlock the remaining segments for another process."""
        self._lock.close()

    def _move_to(self, place: Place) -> None:
        # It removes only segments that it has read itself: numbers begin again in an empty directory, so segments with
        # lower numbers may belong to a later core.
        for number in self._list_sizes():
            if self.place.segment <= number < place.segment:
                _segment_path(self._directory, number).unlink(missing_ok=True)
        self.place = place

    def _list_sizes(self) -> dict[int, int]:
        return _segment_sizes(self._directory, self._highest)


def _read_number(lock: BufferedRandom) -> int:
    """Returns the number that the last writer has left in its lock file; 0: none."""
    lock.seek(0)
    text = lock.read(16)
    return int(text) if text.isdigit() else 0


def _write_number(lock: BufferedRandom, number: int) -> None:
    """Leaves *number* to the next writer, which otherwise might take the segments after it for odd files."""
    with suppress(OSError):  # A disk that is full will have room again before the numbers are that high.
        lock.truncate(0)
        lock.write(b"%d" % number)
        lock.flush()


def _lock_file(file: BufferedWriter | BufferedRandom, *, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_directory(directory: Path) -> None:
    """Make *directory* and its parents, so that they survive a crash of the machine."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for made in missing:
        with suppress(PermissionError):  # A process that may write to a directory need not be able to open it.
            _sync_names(made.parent)


def _sync_names(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _move_odd_files(directory: Path, highest: int) -> list[str]:
    """Set aside entries with names like those of segments that are no segments of a writer, or no files. Returns the
    names."""
    with os.scandir(directory) as entries:
        odd = [entry.name for entry in entries if entry.name.endswith(_SUFFIX) and _number_of(entry, highest) is None]
    aside = SetAside(directory)
    for name in odd:
        # If it cannot be moved, it is still not read.
        with suppress(OSError):
            aside.move_here(directory / name)
    return odd


def _segment_sizes(directory: Path, highest: int) -> dict[int, int]:
    """Returns the bytes of each segment by its number."""
    sizes = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            number = _number_of(entry, highest)
            if number is not None:
                try:
                    sizes[number] = entry.stat().st_size
                except FileNotFoundError:
                    continue
    return sizes


def _number_of(entry: os.DirEntry[str], highest: int) -> int | None:
    """Return the number of the segment *entry*, or ``None`` if it is no segment in spite of its name."""
    found = _NAME.fullmatch(entry.name)
    if found is None or not entry.is_file(follow_symlinks=False):
        return None
    number = int(found[1])
    return number if number <= highest else None


def _read_frames(file: BufferedReader, number: int, start: int) -> Iterator[Frame]:
    """Yields the complete frames of a segment from *start* up to the first incomplete one."""
    size = os.fstat(file.fileno()).st_size
    file.seek(start)
    at = start
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        magic, length, checksum, run, first, records = _HEADER.unpack(header)
        if magic != _MAGIC or at + _HEADER.size + length > size:
            return
        payload = file.read(length)
        summed = _SUMMED.pack(length, run, first, records)
        if zlib.crc32(payload, zlib.crc32(summed)) != checksum:
            return
        at += _HEADER.size + length
        yield Frame(run, first, records, payload, Place(number, at))


def _is_damaged(file: BufferedReader, good: int) -> bool:
    """Tells whether the rest of *file* after *good* bytes is more than the incomplete frame of a process that was
    killed."""
    file.seek(0, os.SEEK_END)
    size = file.tell()
    file.seek(good)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return not _MAGIC.startswith(header[:4])
    magic, length, *_ = _HEADER.unpack(header)
    return bool(magic != _MAGIC or good + _HEADER.size + length <= size)


def _segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:016d}{_SUFFIX}"


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
