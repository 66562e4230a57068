"""Snapshots as bytes. A snapshot contains the engines of all places in their state after one record of a journal, with
everything that a core needs to continue from there.

The bytes are, in this order: eight that are the same in every snapshot, the length of the head, the head
(``JournalSnapshot``), the deflated state of each place (``SnapshotState``), and a CRC-32 of everything before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.content.inflating import UnfoldsTooFar, inflate_bytes
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.replay import EngineMaker, Replay, ReplayedPlace, ReplayNotes
from kornel.core.snapshot.engines import restore_engine, write_engine
from kornel.core.snapshot.reading import SnapshotUnreadable
from kornel.core.state.options import EngineOptions
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
    delivered    number of the record up to which the transport had accepted all responses
    """

    version: str
    sequence: int
    epoch: int
    life: int
    chain: int
    at_ns: int
    delivered: int


def write_snapshot(head: SnapshotHead, replay: Replay) -> bytes:
    """Returns a snapshot of the places of *replay*, whose last replayed record is that of *head*.

    Raises :class:`kornel.core.snapshot.writing.WorkUnderWay`.
    """
    assert replay.places, "a life begins with an engine"
    replay.drop_delivered()
    states = [
        zlib.compress(write_engine(place.engine, place.take_notes()._asdict()).SerializeToString(), _LEVEL)
        for place in replay.places.values()
    ]
    places = [
        journal_pb2.JournalSnapshotPlace(place=place.number, effects_checksum=place.effects_sum, size=len(state))
        for place, state in zip(replay.places.values(), states, strict=True)
    ]
    message = journal_pb2.JournalSnapshot(
        version=head.version,
        sequence=head.sequence,
        epoch=head.epoch,
        life=head.life,
        chain=head.chain,
        at_ns=head.at_ns,
        delivered=head.delivered,
        places=places,
        last_place=replay.last_place,
    )
    written = message.SerializeToString()
    assert len(_MAGIC) + _LENGTH.size + len(written) <= HEAD_BYTES, "versions are short"
    parts = [_MAGIC, _LENGTH.pack(len(written)), written, *states]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([*parts, _LENGTH.pack(checksum)])


def read_head(data: bytes) -> SnapshotHead:
    """Returns the head of a snapshot that begins with *data*. Raises :class:`SnapshotUnusable`."""
    message = _parse_head(data)
    return SnapshotHead(
        message.version,
        message.sequence,
        message.epoch,
        message.life,
        message.chain,
        message.at_ns,
        message.delivered,
    )


def list_places(data: bytes) -> list[int]:
    """Returns the numbers of the places in a snapshot that begins with *data*. Raises :class:`SnapshotUnusable`."""
    return [place.place for place in _parse_head(data).places] or [0]


def check_snapshot(data: bytes) -> SnapshotHead:
    """Returns the head of the snapshot *data*. Raises :class:`SnapshotUnusable` if it is damaged."""
    checksum = data[-_LENGTH.size :]
    if len(data) <= HEAD_BYTES // 64 or checksum != _LENGTH.pack(zlib.crc32(memoryview(data)[: -_LENGTH.size])):
        raise SnapshotUnusable("its checksum does not hold")
    return read_head(data)


def restore_snapshot(data: bytes, replay: Replay, *, make_engine: EngineMaker = RecordingEngine.begin_empty) -> None:
    """Has *replay* continue after the record of the snapshot *data*, with the places in it and engines of
    *make_engine*.

    Raises :class:`SnapshotUnusable`; *replay* is then as before.
    """
    head = check_snapshot(data)
    message = _parse_head(data)
    places: list[ReplayedPlace] = []
    for at, deflated in _split_states(data, message):
        if replay.only is not None and at.place != replay.only:
            continue
        engine = make_engine(Beginning(head.version, False, EngineOptions()), at.place)
        state = snapshot_pb2.SnapshotState()
        try:
            state.ParseFromString(inflate_bytes(deflated))
            besides = restore_engine(engine, state)
        except (zlib.error, UnfoldsTooFar, DecodeError, SnapshotUnreadable) as error:
            raise SnapshotUnusable(str(error)) from error
        places.append(ReplayedPlace.restore(engine, at.effects_checksum, _read_notes(besides[0])))
    replay.start_from(places, head.at_ns, head.delivered, message.last_place)


def _split_states(
    data: bytes, message: journal_pb2.JournalSnapshot
) -> Iterator[tuple[journal_pb2.JournalSnapshotPlace, memoryview]]:
    """Yields each place of the snapshot *data*, whose head is *message*, with its deflated state."""
    states = memoryview(data)[_find_head(data).stop : -_LENGTH.size]
    if not message.places:
        yield journal_pb2.JournalSnapshotPlace(effects_checksum=message.effects_checksum), states
        return
    begin = 0
    for place in message.places:
        yield place, states[begin : begin + place.size]
        begin += place.size


def _read_notes(fields: dict[str, Any]) -> ReplayNotes:
    return ReplayNotes(**{name: fields[name] for name in ReplayNotes._fields if name in fields})


def _parse_head(data: bytes) -> journal_pb2.JournalSnapshot:
    message = journal_pb2.JournalSnapshot()
    try:
        message.ParseFromString(data[_find_head(data)])
    except DecodeError as error:
        raise SnapshotUnusable("its head cannot be read") from error
    return message


def _find_head(data: bytes) -> slice:
    begin = len(_MAGIC) + _LENGTH.size
    if len(data) < begin or not data.startswith(_MAGIC):
        raise SnapshotUnusable("it is no snapshot")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if begin + length > min(len(data), HEAD_BYTES):
        raise SnapshotUnusable("its head cannot be read")
    return slice(begin, begin + length)
