"""Counts the entries of long requests, and splits the requests, before they are parsed.

A parsed entry takes up to a hundred times the memory of its bytes, and only the bytes themselves show how many entries
there are. So a long request is scanned from field to field, without making objects. One with too many entries is
refused at once, and one with many small entries is parsed piece by piece. The pieces together mean the same as the
request: lists keep their order, and for a field that is not a list, the last one counts.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import Message

from kornel.core.service.calls.rpc import parse
from kornel.core.service.streams.resuming import Kind
from kornel.core.service.wire.message_bytes import LENGTH_DELIMITED, encode_field
from kornel.core.service.wire.scheduler_wire import PIECE
from kornel.core.service.wire.status_codes import MalformedMessage, TooLarge
from kornel.si.v1 import si_pb2 as si

SHORT: Final = 32 * 1024
"""The size up to which a request is parsed as a whole: 500 asks. If it consists of empty entries, it takes 3 MiB."""

SHORT_OF_ENTRIES: Final = 4 * 1024
"""The size up to which a request is parsed as a whole if its entries contain entries, which the engine may have to
handle all at once."""

MOST_ENTRIES: Final = 500_000
"""The most entries of one request: more than a shim puts into 16 MiB."""

SPARSE: Final = 32
"""The average size of entries from which a request of ordinary length need not be split."""

LONGEST_ENTRY: Final = 1 << 20
"""The most bytes of one entry, such as a node with all its labels and allocations."""

MOST_WITHIN: Final = 5_000
"""The most allocations reported with one node. The node is added with all of them or not at all, so the engine handles
them without a pause."""

PIECE_BYTES: Final = 64 * 1024
"""The size after which a piece ends, however few entries it has."""

FIELDS_PER_TURN: Final = 5_000
"""The fields scanned before others get their turn, which takes a few milliseconds."""

_WIDTHS: Final = {1: 8, 5: 4}


@dataclass(frozen=True, slots=True)
class Layout:
    """The lists of a request. ``lists``: their fields, in the order in which they take effect.

    ``within``: the fields that contain lists, whose elements are entries of the request like others. ``inner``: the
    field of an entry that is itself a list of entries; 0: there is none. These count as well, but stay together.
    """

    message: type[Message]
    rm_id: int
    lists: tuple[int, ...]
    within: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    inner: int = 0

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The paths of all lists, in the order in which they take effect."""
        nested = [(above, number) for above, numbers in self.within.items() for number in numbers]
        return (*((number,) for number in self.lists), *nested)


LAYOUTS: Final[Mapping[Kind, Layout]] = MappingProxyType(
    {
        # Asks, then releases of asks, then releases, in the order of core.service.wire.scheduler_wire.Decoder.
        Kind.ALLOCATION: Layout(si.AllocationRequest, 3, (4, 1), MappingProxyType({2: (2, 1)})),
        Kind.APPLICATION: Layout(si.ApplicationRequest, 3, (1, 2)),
        Kind.NODE: Layout(si.NodeRequest, 2, (1,), inner=6),
    }
)


async def read_request(kind: Kind, raw: bytes) -> Iterable[Any]:
    """Returns the messages that together mean *raw*, at least one, each with the rmID of the whole.

    Raises :class:`TooLarge` or :class:`MalformedMessage`, as may reading the messages.
    """
    layout = LAYOUTS[kind]
    short = SHORT_OF_ENTRIES if layout.inner else SHORT
    if len(raw) <= short or (len(raw) <= LONGEST_ENTRY and not layout.inner and _is_sparse(raw)):
        return (parse(layout.message, raw),)
    found = await _survey_message(layout, raw)
    if found.entries <= PIECE and len(raw) <= LONGEST_ENTRY:
        return (parse(layout.message, raw),)
    return _yield_messages(layout, found, raw)


def _yield_messages(layout: Layout, found: _Survey, raw: bytes) -> Iterator[Any]:
    given = found.named.get(layout.rm_id, b"")
    empty = True
    for path, piece in _split_entries(layout, found, raw):
        # A message is the concatenation of its fields, so a piece consists of the manager's name and some of the
        # entries.
        message = parse(layout.message, given + (piece if len(path) == 1 else encode_field(path[0], piece)))
        empty = False
        yield message
    if empty:
        yield parse(layout.message, given)


async def pick_field(message: type[Message], name: str, raw: bytes) -> bytes:
    """Returns the part of *raw*, a *message* of any length, that says what its field *name* contains; the whole if it
    is short.

    Raises :class:`TooLarge` if there are too many fields, and :class:`MalformedMessage`.
    """
    if len(raw) <= SHORT:
        return raw
    number = message.DESCRIPTOR.fields_by_name[name].number
    # A field that is not a list may occur several times. All of them count, because a message is merged from them.
    picked: list[bytes] = []
    for steps, (found, start, _, stop) in enumerate(read_fields(raw, 0, len(raw)), 1):
        if found == number:
            picked.append(raw[start:stop])
        if steps > MOST_ENTRIES:
            raise _too_many_entries(message)
        if not steps % FIELDS_PER_TURN:
            await asyncio.sleep(0)
    return b"".join(picked)


def _is_sparse(raw: bytes) -> bool:
    """Tells whether *raw* has at most one field in :data:`SPARSE` bytes, and no long one; false when in doubt.

    Every large request of a well-behaved shim is checked here, so only the usual form of a field is examined: an
    element of a list with less than 16 KiB.
    """
    at, end, left = 0, len(raw), len(raw) // SPARSE
    try:
        while at < end:
            left -= 1
            if left < 0 or raw[at] & 0x87 != LENGTH_DELIMITED:
                return False
            size = raw[at + 1]
            at += 2
            if size > 0x7F:
                high = raw[at]
                if high > 0x7F:
                    return False
                size = size & 0x7F | high << 7
                at += 1
            at += size
    except IndexError:
        return False
    return at == end


class _Survey:
    """The positions of a request's entries: by path of their field, runs of entries as (start, end, entries)."""

    def __init__(self) -> None:
        self.entries = 0
        self.runs: dict[tuple[int, ...], array[int]] = {}
        self.named: dict[int, bytes] = {}
        """The last occurrence of each field that is not a list, with its tag."""

    def add(self, path: tuple[int, ...], start: int, end: int, entries: int) -> None:
        """Note that an entry of *path*, which counts as *entries* entries, is between *start* and *end*."""
        self.entries += entries
        runs = self.runs.get(path)
        if runs is None:
            runs = self.runs[path] = array("L")
        if runs and runs[-2] == start and runs[-1] + entries <= PIECE and end - runs[-3] <= PIECE_BYTES:
            runs[-2] = end
            runs[-1] += entries
        else:
            runs.extend((start, end, entries))


async def _survey_message(layout: Layout, raw: bytes) -> _Survey:
    found, lists = _Survey(), frozenset(layout.paths)
    walked = 0
    for steps, (path, start, content, stop) in enumerate(_walk_fields(layout, raw), 1):
        walked += 1
        if path in lists:
            entries, looked_at = _count_entries(raw, content, stop, layout)
            walked += looked_at
            found.add(path, start, stop, entries)
        elif path == (layout.rm_id,):
            found.named[layout.rm_id] = raw[start:stop]
        if max(steps, found.entries) > MOST_ENTRIES:
            raise _too_many_entries(layout.message)
        if walked >= FIELDS_PER_TURN:
            walked = 0
            await asyncio.sleep(0)
    return found


def _too_many_entries(message: type[Message]) -> TooLarge:
    return TooLarge(f"more than {MOST_ENTRIES:,} entries in one {message.DESCRIPTOR.name}; send several")


def _walk_fields(layout: Layout, raw: bytes) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """Yields the path, start, start of the content and end of each field of *raw*, and of the fields within those that
    contain lists."""
    for number, start, content, stop in read_fields(raw, 0, len(raw)):
        yield (number,), start, content, stop
        if number in layout.within:
            for inner, begun, held, ended in read_fields(raw, content, stop):
                yield (number, inner), begun, held, ended


def _count_entries(raw: bytes, start: int, end: int, layout: Layout) -> tuple[int, int]:
    """Returns as how many entries the one between *start* and *end* counts, with those within it, and how many of its
    fields were looked at."""
    if end - start > LONGEST_ENTRY:
        raise TooLarge(f"an entry of more than {LONGEST_ENTRY:,} bytes in one {layout.message.DESCRIPTOR.name}")
    if not layout.inner:
        return 1, 0
    numbers = [number for number, *_ in read_fields(raw, start, end)]
    within = numbers.count(layout.inner)
    if within > MOST_WITHIN:
        raise TooLarge(
            f"a node with more than {MOST_WITHIN:,} allocations of its own in one {layout.message.DESCRIPTOR.name}"
        )
    return 1 + within, len(numbers)


def _split_entries(layout: Layout, found: _Survey, raw: bytes) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yields entries of one field, up to :data:`PIECE` or :data:`PIECE_BYTES` of them at a time, in order of effect."""
    for path in layout.paths:
        runs = found.runs.pop(path, None)
        some: list[bytes] = []
        entries = size = 0
        for place in range(0, len(runs or ()), 3):
            start, end, count = runs[place : place + 3]  # type: ignore[index]  # as long as it is there
            if some and (entries + count > PIECE or size + end - start > PIECE_BYTES):
                yield path, b"".join(some)
                some, entries, size = [], 0, 0
            some.append(raw[start:end])
            entries += count
            size += end - start
        if some:
            yield path, b"".join(some)


def read_fields(raw: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the number, start, start of the content and end of each field between *at* and *end*. Reads only
    prefixes."""
    try:
        while at < end:
            start = at
            tag = raw[at]
            at += 1
            if tag > 0x7F:
                tag, at = _read_varint(raw, start)
            kind = tag & 7
            if kind == LENGTH_DELIMITED:
                size = raw[at]
                at += 1
                if size > 0x7F:
                    size, at = _read_varint(raw, at - 1)
                content, at = at, at + size
            elif kind:
                content, at = at, at + _WIDTHS[kind]
            else:
                content = at
                _, at = _read_varint(raw, at)
            if at > end:
                break
            yield tag >> 3, start, content, at
        else:
            return
    except (IndexError, KeyError):
        pass
    raise MalformedMessage("the fields of the request are longer than the request")


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
