"""The end marker of a journal in a file: a file beside it, which has the number of the last record.

A log that has lost its end looks like a shorter one: SQLite takes the first page of its write-ahead log that is damaged
for the end. The marker is written while the log commits the same block, because flushing one after the other would
take twice as long. So it may be one block ahead of the log after a power failure, and has that block, which is then
appended to the log. It has two slots, which are written in turns: one is whole, however a write ends.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kornel.core.journal.content.records import Block
from kornel.core.journal.database.files import check_regular, sync_directory

_MAGIC: Final = b"kornelE1"
_SLOT: Final = struct.Struct("<8s8qi")
_CHECKSUM: Final = struct.Struct("<I")
SLOT_BYTES: Final = 256 * 1024
"""The room of a slot. Larger blocks are not kept in it; their marker is written after them, with a flush of its own."""

_NO_PAYLOAD: Final = -1
_SUFFIX: Final = ".end"


class MarkerDamaged(Exception):
    """The end marker does not say where the log ends."""


class Marked(NamedTuple):
    """The end of a log: its last block with the life of it. Without ``has_payload``, the block has no payload."""

    block: Block
    life: int
    has_payload: bool


class EndMarker:
    """Writes the end marker at *path*. With *durable*, it is flushed. It is used by one thread at a time."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        """Makes the file if it is not there. Raises ``OSError``."""
        self._durable = durable
        self._number = 0
        check_regular(path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A slot that is filled already is written faster: the size of the file does not change.
        size = os.fstat(self._file).st_size
        if size < 2 * SLOT_BYTES:
            self._write_all(bytes(2 * SLOT_BYTES - size), size)
            sync_directory(path.parent)
        self._slots: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._written: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        threading.Thread(target=self._write_slots, name="end marker", daemon=True).start()

    def replace_end(self, block: Block, life: int) -> None:
        """Marks *block* as the end, whatever the marker has said before."""
        for _ in range(2):
            self._write_slot(_encode_slot(block, life, with_payload=False))
            os.fsync(self._file)

    @contextmanager
    def covering(self, block: Block, life: int) -> Iterator[None]:
        """Marks *block* as the end while the caller appends it to the log: at the end of the context, both are done.
        Raises ``OSError``."""
        slot = _encode_slot(block, life, with_payload=self._durable)
        beside = self._durable and len(slot) <= SLOT_BYTES
        error = None
        if beside:
            self._slots.put(slot)
        try:
            yield
        finally:
            if beside:
                error = self._written.get()
        if error is not None:
            raise error
        if not beside:
            self._write_slot(_encode_slot(block, life, with_payload=False))

    def close(self) -> None:
        """Ends the writing."""
        self._slots.put(None)

    def _write_slots(self) -> None:
        while (slot := self._slots.get()) is not None:
            error = None
            try:
                self._write_slot(slot)
            except OSError as failed:
                error = failed
            self._written.put(error)
        os.close(self._file)

    def _write_slot(self, slot: bytes) -> None:
        self._number += 1
        self._write_all(slot, self._number % 2 * SLOT_BYTES)
        if self._durable:
            os.fdatasync(self._file)

    def _write_all(self, data: bytes, at: int) -> None:
        # A disk that is nearly full takes a part, and says so with the next one only.
        while data:
            written = os.pwrite(self._file, data, at)
            data, at = data[written:], at + written


def name_marker(journal: Path) -> Path:
    """Returns the path of the end marker of *journal*."""
    return journal.with_name(journal.name + _SUFFIX)


def read_marker(path: Path) -> Marked | None:
    """Returns the end of the log that the marker at *path* has, or ``None`` if there is none. Raises
    :class:`MarkerDamaged`, and ``OSError``."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            data = file.read(2 * SLOT_BYTES)
    except FileNotFoundError:
        return None
    found = [marked for at in (0, SLOT_BYTES) if (marked := _decode_slot(data[at : at + SLOT_BYTES])) is not None]
    if not found:
        raise MarkerDamaged(f"the end marker {path} is damaged")
    return max(found, key=lambda marked: (marked.block.epoch, marked.block.last))


def _encode_slot(block: Block, life: int, *, with_payload: bool) -> bytes:
    payload = block.payload if with_payload else b""
    numbers = (*block[:-1], life, len(payload) if with_payload else _NO_PAYLOAD)
    slot = _SLOT.pack(_MAGIC, *numbers) + payload
    return slot + _CHECKSUM.pack(zlib.crc32(slot))


def _decode_slot(slot: bytes) -> Marked | None:
    """Returns the end in *slot*, or ``None`` if it is empty or damaged."""
    with suppress(struct.error):
        magic, *numbers, life, length = _SLOT.unpack_from(slot)
        end = _SLOT.size + max(0, length)
        if magic == _MAGIC and _CHECKSUM.unpack_from(slot, end) == (zlib.crc32(slot[:end]),):
            return Marked(Block._make([*numbers, slot[_SLOT.size : end]]), life, length != _NO_PAYLOAD)
    return None
