"""Records as bytes, and blocks of them.

A block contains the records that are committed at once. Each record is preceded by its length and followed by its
checksum, and all are deflated together. The checksum covers the number and the epoch of the record, and the checksum of
the previous record, so that any change, omission or exchange is noticed. That of the first record of a block also
covers the time of the block and what it says of deliveries. A damaged block is read up to the damage:
:func:`read_block` reports the first record that cannot be trusted.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kornel.core.journal.content.calls import Beginning, CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.commands import decode_command, write_command
from kornel.core.journal.content.inflating import UnfoldsTooFar, inflate_bytes, inflate_sound_part
from kornel.core.service.streams.resuming import Begun, Kind, Receipt, Received
from kornel.core.service.wire.message_bytes import encode_field, encode_varint
from kornel.core.state.options import MOST_ENDED, EngineOptions
from kornel.v1 import journal_pb2 as pb

_PLACE: Final = struct.Struct("<qq")
_HEAD: Final = struct.Struct("<qqq")
_CHECKSUM: Final = struct.Struct("<I")
_STREAMS: Final = {
    Kind.NODE: pb.JOURNAL_STREAM_NODES,
    Kind.APPLICATION: pb.JOURNAL_STREAM_APPLICATIONS,
    Kind.ALLOCATION: pb.JOURNAL_STREAM_ALLOCATIONS,
}
_KINDS: Final = {stream: kind for kind, stream in _STREAMS.items()}
_COMMAND: Final = pb.JournalRecord.DESCRIPTOR.fields_by_name["command"].number
BLOCK_BYTES: Final = 64 * 2**20
"""A block ends with the record with which it has so many bytes before they are deflated."""
_LEVEL: Final = 1
"""The effort of zlib. The first level finds the repetitions already, and higher levels would cost time that the engine
needs."""


class Record(NamedTuple):
    """One record that was read."""

    sequence: int
    epoch: int
    call: EngineCall
    result: CallResult


class Block(NamedTuple):
    """Records that were committed together.

    chain_before, chain  the checksums of the records before the first one, and of the last one
    delivered            when this block was made, the effects of all records up to this one were with the transport
    """

    first: int
    last: int
    epoch: int
    at_ns: int
    chain_before: int
    chain: int
    delivered: int
    payload: bytes


class RecordDamaged(Exception):
    """A record that cannot be trusted. ``sequence`` is the number of the first such record of its block."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"record {sequence}: {reason}")
        self.sequence = sequence
        self.reason = reason


class BlockWriter:
    """Makes blocks of calls, in a new epoch after the existing records. *sequence* and *chain* are the number and
    checksum of the last record."""

    def __init__(self, sequence: int, chain: int, epoch: int) -> None:
        self.sequence = sequence
        self.chain = chain
        self.epoch = epoch

    def make_block(self, calls: Sequence[tuple[EngineCall, CallResult]], delivered: int) -> Block:
        """Returns the next block, which has to be written before any later one. It has all of *calls*, or those at
        their beginning that make :data:`BLOCK_BYTES`."""
        parts: list[bytes] = []
        first, before, epoch = self.sequence + 1, self.chain, self.epoch
        at_ns = calls[0][0].now_ns
        sequence, chain = self.sequence, _begin_chain(self.chain, at_ns, delivered)
        last_ns = size = 0
        for call, result in calls:
            if size >= BLOCK_BYTES:
                break
            message = pb.JournalRecord(call=int(call.kind), after_ns=call.now_ns - last_ns)  # type: ignore[arg-type]
            last_ns = call.now_ns
            if call.budget:
                message.budget = call.budget
            if call.beginning is not None:
                _write_beginning(call.beginning, message.beginning)
            if call.note:
                message.note.MergeFromString(call.note)
            if call.place:
                message.place = call.place
            if isinstance(call.receipt, Received):
                message.received.kind = _STREAMS[call.receipt.kind]
                message.received.entries = call.receipt.entries
            elif call.receipt is not None:
                message.registered.token, message.registered.session = call.receipt
            if result.outcome:
                message.outcome = int(result.outcome)  # type: ignore[assignment]
            if result.effects:
                message.effects = result.effects
                message.effects_checksum = result.effects_sum
            sequence += 1
            raw = message.SerializeToString()
            if call.command is not None:
                raw += encode_field(_COMMAND, write_command(call.command))
            chain = _chain_checksum(raw, sequence, epoch, chain)
            size += len(raw)
            parts += (encode_varint(len(raw)), raw, _CHECKSUM.pack(chain))
        self.sequence, self.chain = sequence, chain
        return Block(first, sequence, epoch, at_ns, before, chain, delivered, zlib.compress(b"".join(parts), _LEVEL))


def read_block(block: Block) -> Iterator[Record]:
    """Yields the records of *block* in order. Raises :class:`RecordDamaged` at the first record that cannot be
    trusted."""
    sequence, chain, now_ns = block.first - 1, _begin_chain(block.chain_before, block.at_ns, block.delivered), 0
    sums: dict[int, int] = {}
    for raw in _read_parts(block):
        if sequence == block.last and chain == block.chain:
            break  # Only the end of the compressed bytes is damaged: by their own checksums all records are intact.
        sequence += 1
        if raw is None:
            raise RecordDamaged(max(block.first, min(sequence, block.last)), "it cannot be read")
        chain = _chain_checksum(raw[:-4], sequence, block.epoch, chain)
        if sequence == block.first and raw[-4:] != _CHECKSUM.pack(chain):
            # Earlier cores did not cover the numbers beside the records.
            chain = _chain_checksum(raw[:-4], sequence, block.epoch, block.chain_before)
        if raw[-4:] != _CHECKSUM.pack(chain):
            raise RecordDamaged(sequence, "its checksum does not hold")
        message = pb.JournalRecord()
        try:
            message.ParseFromString(raw[:-4])
        except DecodeError as error:
            raise RecordDamaged(sequence, "it is no message") from error
        now_ns += message.after_ns
        if message.effects:
            sums[message.place] = message.effects_checksum
        try:
            call = _read_call(message, now_ns)
        except ValueError as error:
            raise RecordDamaged(sequence, str(error)) from error
        result = CallResult(CallOutcome(message.outcome), message.effects, sums.get(message.place, 0))
        yield Record(sequence, block.epoch, call, result)
    if sequence != block.last or chain != block.chain:
        raise RecordDamaged(max(block.first, min(sequence + 1, block.last)), "its block does not end as it says")


def _read_call(message: pb.JournalRecord, now_ns: int) -> EngineCall:
    command = decode_command(message.command) if message.HasField("command") else None
    beginning = _read_beginning(message.beginning) if message.HasField("beginning") else None
    note = message.note.SerializeToString() if message.HasField("note") else b""
    return EngineCall(
        CallKind(message.call),
        now_ns,
        command,
        message.budget,
        beginning,
        _read_receipt(message),
        note,
        message.place,
    )


def _read_receipt(message: pb.JournalRecord) -> Receipt | None:
    if message.HasField("registered"):
        return Begun(message.registered.token, message.registered.session)
    if message.HasField("received"):
        return Received(_KINDS[message.received.kind], message.received.entries)
    return None


def _write_beginning(beginning: Beginning, message: pb.JournalBeginning) -> None:
    message.version = beginning.version
    message.afresh = beginning.afresh
    options = beginning.options
    if options.reservation_delay_ns is not None:
        message.reservation_delay_ns = options.reservation_delay_ns
    message.reservation_percent = options.reservation_percent
    message.ended = options.ended


def _read_beginning(message: pb.JournalBeginning) -> Beginning:
    delay_ns = message.reservation_delay_ns if message.HasField("reservation_delay_ns") else None
    # A core that did not write it remembered as many as a core does by default.
    ended = message.ended if message.HasField("ended") else MOST_ENDED
    return Beginning(message.version, message.afresh, EngineOptions(delay_ns, message.reservation_percent, ended))


def _begin_chain(before: int, at_ns: int, delivered: int) -> int:
    """Returns the checksum from which that of the first record of a block is computed."""
    return zlib.crc32(_HEAD.pack(before, at_ns, delivered))


def _chain_checksum(raw: bytes, sequence: int, epoch: int, before: int) -> int:
    return zlib.crc32(raw, zlib.crc32(_PLACE.pack(sequence, epoch), before))


def _read_parts(block: Block) -> Iterator[bytes | None]:
    """Yields the bytes of one record after the other, each with its checksum, and at the end ``None`` if there are
    further bytes that cannot be read."""
    inflated, whole = _inflate_payload(block)
    at, end = 0, len(inflated)
    while at < end:
        length = shift = 0
        while True:
            if at == end or shift > 35:
                yield None
                return
            byte = inflated[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        length += _CHECKSUM.size
        if at + length > end:
            yield None
            return
        yield inflated[at : at + length]
        at += length
    if not whole:
        yield None


def _inflate_payload(block: Block) -> tuple[bytes, bool]:
    """Returns the part of the payload of *block* that can be inflated, and whether this is all of it."""
    try:
        try:
            return inflate_bytes(block.payload), True
        except zlib.error:
            return inflate_sound_part(block.payload), False
    except UnfoldsTooFar as error:
        raise RecordDamaged(block.first, str(error)) from error
