"""Reads requests with asks of the most common form from their bytes, without making an object of protobuf for each ask.

Programs write fields in the order of their numbers, so the bytes of an ask begin with its key, and the resources follow
if it has neither tags nor an ID. The bytes after the key are read once and remembered, so for each further ask of the
same application and size only the key has to be read. A request of any other form, or with any mistake, is left to the
general reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kornel.core.domain.commands import AllocationSpec
from kornel.core.service.calls.rpc import parse
from kornel.core.service.calls.wire_pieces import LONGEST_ENTRY, SHORT, SPARSE, read_fields
from kornel.core.service.wire.scheduler_wire import UNTAGGED, Decoder, PartitionNames, read_plain, read_policy
from kornel.core.service.wire.status_codes import MalformedMessage
from kornel.si.v1 import si_pb2 as si

REMEMBERED: Final = 16_384
"""The most asks, different apart from their keys, that are remembered for one manager. When there are more, the older
half is forgotten."""

LONGEST_REMEMBERED: Final = 512
"""The most bytes of an ask, without its key, that are remembered. Names that a shim sends only once may be of any
length."""

MANAGERS_REMEMBERED: Final = 16

_KEYS: Final = {bytes([0x0A, length]): length + 2 for length in range(0x80)}
"""The possible beginnings of an ask with a key of less than 128 bytes, each with the position after the key."""
_RESOURCES: Final = 0x2A
"""The first byte of the next field, which has the resources."""
_MOST_IN_TWO: Final = 0x3FFF
"""The greatest length that two bytes can express."""
_FIRST_AFTER_RESOURCES, _ID = 6, 13
"""The lowest number of a field after the resources, and the number of a field that no plain ask has."""

_APPLICATION: Final = bytes([si.Allocation.DESCRIPTOR.fields_by_name["applicationID"].number << 3 | 2])
"""The first byte of the field with the application's ID."""
_NOTHING_ELSE: Final = (0, "", "", False, False, True, False, *UNTAGGED)
"""The fields of a spec after its resources, if the ask has no other field than the ID of its application."""

_new: Final = tuple.__new__

_Fields = tuple[Any, ...]
"""The fields of a spec after its key."""


class PlainAsks(NamedTuple):
    """A request whose asks have been read. ``message`` contains everything else in it."""

    message: si.AllocationRequest
    specs: tuple[AllocationSpec, ...]

    @property
    def rmID(self) -> str:
        """The ID of the resource manager, under the same name as in the message."""
        return self.message.rmID


class PlainReader:
    """Reads plain asks, and leaves everything else to *decoder*, with which it shares the known resources."""

    def __init__(self, decoder: Decoder, is_registered: Callable[[str], bool] = lambda _: True) -> None:
        """Makes a reader that remembers asks of managers which *is_registered* accepts by name."""
        self._decoder = decoder
        self._is_registered = is_registered
        self._managers: dict[str, _Known] = {}

    def read(self, raw: bytes) -> PlainAsks | None:
        """Returns the request *raw*, or ``None`` if it has to be read in the general way. Raises the errors of
        :func:`kornel.core.service.calls.rpc.parse` for mistakes outside the asks."""
        if len(raw) > LONGEST_ENTRY:
            return None
        try:
            sliced = _SLICED.FromString(raw)
        except DecodeError:
            return None
        entries = list(sliced.allocations)
        if not entries or (len(raw) > SHORT and len(entries) * SPARSE > len(raw)):
            return None
        sliced.ClearField("allocations")
        message = parse(si.AllocationRequest, sliced.SerializeToString())
        specs = self._read_entries(entries, message.rmID)
        return None if specs is None else PlainAsks(message, tuple(specs))

    def _read_entries(self, entries: Iterable[bytes], rm_id: str) -> list[AllocationSpec] | None:
        known = self._managers.get(rm_id)
        if known is None:
            known = _Known(self._decoder, rm_id)
            if self._is_registered(rm_id):
                if len(self._managers) >= MANAGERS_REMEMBERED:
                    self._managers.clear()
                self._managers[rm_id] = known
        specs: list[AllocationSpec] = []
        keys = _KEYS
        try:
            for entry in entries:
                behind = keys[entry[:2]]
                specs.append(_new(AllocationSpec, (entry[2:behind].decode(), *known[entry[behind:]])))
        except (LookupError, UnicodeDecodeError, DecodeError, MalformedMessage, _NotPlain):
            return None
        return specs


class _Known(dict[bytes, _Fields]):
    """The fields of one manager's asks after their keys, by their bytes. Bytes that are looked up for the first time
    are read and added; they raise an error if no plain ask has them."""

    def __init__(self, decoder: Decoder, rm_id: str) -> None:
        super().__init__()
        self._decoder = decoder
        self._names = PartitionNames(rm_id)
        self._rests: dict[bytes, tuple[_Fields, _Fields]] = {}
        """The fields before and after the resources, by the bytes after the resources. Asks of one application share
        them."""

    def __missing__(self, raw: bytes) -> _Fields:
        start, length = 2, raw[1]
        if length > 0x7F:
            start, length = 3, length & 0x7F | raw[2] << 7
        end = start + length
        size, rest = raw[start:end], raw[end:]
        if raw[0] != _RESOURCES or length > _MOST_IN_TWO or end > len(raw):
            raise _NotPlain
        resources = self._decoder.resources_known.get(size)
        if resources is None:
            resources = self._decoder.read_resources(size, si.Resource.FromString(size))
        found = self._rests.get(rest)
        if found is None:
            found = self._read_rest(rest)
            if len(rest) <= LONGEST_REMEMBERED:
                _forget_half(self._rests)
                self._rests[rest] = found
        names, others = found
        fields = (*names, resources, *others)
        if len(raw) <= LONGEST_REMEMBERED:
            _forget_half(self)
            self[raw] = fields
        return fields

    def _read_rest(self, raw: bytes) -> tuple[_Fields, _Fields]:
        if raw[:1] == _APPLICATION and raw[1] <= 0x7F and raw[1] + 2 == len(raw):
            # Usually no other field follows. This is fast, as there may be many applications with a single ask each.
            return (raw[2:].decode(), self._names[""]), _NOTHING_ELSE
        if any(number < _FIRST_AFTER_RESOURCES or number == _ID for number, *_ in read_fields(raw, 0, len(raw))):
            raise _NotPlain
        message = si.Allocation.FromString(raw)
        names = message.applicationID, self._names[message.partitionName]
        others = (
            *read_plain(message),
            *read_policy(message),
        )
        return names, others + UNTAGGED


def _forget_half(known: dict[bytes, Any]) -> None:
    """Forget the older half of *known* if it is full."""
    if len(known) >= REMEMBERED:
        for oldest in list(islice(known, REMEMBERED // 2)):
            del known[oldest]


class _NotPlain(Exception):
    """The bytes of an ask are not of the form that is read here."""


def _make_sliced() -> Any:
    """Returns the type of an ``AllocationRequest`` whose asks stay bytes and whose other fields are unknown."""
    file = descriptor_pb2.FileDescriptorProto(name="kornel/sliced_request.proto", package="kornel", syntax="proto3")
    file.message_type.add(name="SlicedRequest").field.add(
        name="allocations",
        number=si.AllocationRequest.DESCRIPTOR.fields_by_name["allocations"].number,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("kornel.SlicedRequest"))


_SLICED: Final = _make_sliced()
