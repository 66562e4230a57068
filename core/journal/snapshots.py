"""Snapshots as bytes. A snapshot contains an engine in its state after one record of a journal, with everything that a
core needs to continue from there.

The bytes are, in this order: eight that are the same in every snapshot, the length of the head, the head
(``JournalSnapshot``), the deflated state (``SnapshotState``), and a CRC-32 of everything before it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from kornel.core.journal.replay import Replay, ReplayNotes
from kornel.core.partition.engine import Engine
from kornel.core.snapshot.engines import restore_engine, write_engine
from kornel.core.snapshot.reading import SnapshotUnreadable
from kornel.v1 import journal_pb2, snapshot_pb2

_MAGIC: Final = b"kornelS1"
_LENGTH: Final = struct.Struct("<I")
_LEVEL: Final = 1
HEAD_BYTES: Final = 4_096
"""The most bytes of a head. To learn the record of a snapshot, it is enough to read this many bytes."""


class SnapshotUnusable(Exception):
    """A snapshot that is damaged, or that this version cannot read."""


class SnapshotHead(NamedTuple):
    """The record after which a snapshot was taken, which is the last one of its block, and the state of the journal
    there.

    version      of the core that wrote the record
    life         number of the record with which the engine began empty
    chain        checksum of the record
    at_ns        the core's time at the record
    effects_sum  sum of the effects of the epoch so far
    delivered    number of the record up to which the transport had accepted all responses
    """

    version: str
    sequence: int
    epoch: int
    life: int
    chain: int
    at_ns: int
    effects_sum: int
    delivered: int


def write_snapshot(head: SnapshotHead, replay: Replay) -> bytes:
    """Returns a snapshot of the engine of *replay*, whose last replayed record is that of *head*.

    Raises :class:`kornel.core.snapshot.writing.WorkUnderWay`.
    """
    assert replay.engine is not None, "a life begins with an engine"
    state = write_engine(replay.engine, replay.take_notes()._asdict())
    message = journal_pb2.JournalSnapshot(
        version=head.version,
        sequence=head.sequence,
        epoch=head.epoch,
        life=head.life,
        chain=head.chain,
        at_ns=head.at_ns,
        effects_checksum=head.effects_sum,
        delivered=head.delivered,
    )
    written = message.SerializeToString()
    assert len(_MAGIC) + _LENGTH.size + len(written) <= HEAD_BYTES, "versions are short"
    parts = [_MAGIC, _LENGTH.pack(len(written)), written, zlib.compress(state.SerializeToString(), _LEVEL)]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([*parts, _LENGTH.pack(checksum)])


def read_head(data: bytes) -> SnapshotHead:
    """Returns the head of a snapshot that begins with *data*. Raises :class:`SnapshotUnusable`."""
    message = journal_pb2.JournalSnapshot()
    try:
        message.ParseFromString(data[_find_head(data)])
    except DecodeError as error:
        raise SnapshotUnusable("its head cannot be read") from error
    return SnapshotHead(
        message.version,
        message.sequence,
        message.epoch,
        message.life,
        message.chain,
        message.at_ns,
        message.effects_checksum,
        message.delivered,
    )


def check_snapshot(data: bytes) -> SnapshotHead:
    """Returns the head of the snapshot *data*. Raises :class:`SnapshotUnusable` if it is damaged."""
    checksum = data[-_LENGTH.size :]
    if len(data) <= HEAD_BYTES // 64 or checksum != _LENGTH.pack(zlib.crc32(memoryview(data)[: -_LENGTH.size])):
        raise SnapshotUnusable("its checksum does not hold")
    return read_head(data)


def restore_snapshot(data: bytes, engine: Engine) -> ReplayNotes:
    """Gives *engine*, which has to be new, the state in the snapshot *data*, and returns the notes in the snapshot.

    Raises :class:`SnapshotUnusable`; *engine* is then as good as new.
    """
    check_snapshot(data)
    state = snapshot_pb2.SnapshotState()
    try:
        state.ParseFromString(zlib.decompress(memoryview(data)[_find_head(data).stop : -_LENGTH.size]))
        besides = restore_engine(engine, state)
    except (zlib.error, DecodeError, SnapshotUnreadable) as error:
        raise SnapshotUnusable(str(error)) from error
    return _read_notes(besides[0])


def _read_notes(fields: dict[str, Any]) -> ReplayNotes:
    return ReplayNotes(**{name: fields[name] for name in ReplayNotes._fields if name in fields})


def _find_head(data: bytes) -> slice:
    begin = len(_MAGIC) + _LENGTH.size
    if len(data) < begin or not data.startswith(_MAGIC):
        raise SnapshotUnusable("it is no snapshot")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if begin + length > min(len(data), HEAD_BYTES):
        raise SnapshotUnusable("its head cannot be read")
    return slice(begin, begin + length)
