"""Translates between messages of ``kornel.v1.EventService`` and the engine's values.

A busy core records tens of thousands of events a second. Building messages only to serialise them costs three times as
much as writing their bytes, so this module writes the bytes; tests compare them with those of the messages.

Rules: protocol.md 2.6, 14.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.resources import Resources, clamp_int64
from kornel.core.service.wire.event_filter import EventFilter
from kornel.core.service.wire.message_bytes import encode_varint
from kornel.v1 import events_pb2 as pb

_SHAPES_KEPT: Final = 1_024
_LONGEST_KEPT: Final = 4_096


class EventEncoder:
    """Writes events, and remembers the bytes of amounts: equal requests share them."""

    def __init__(self) -> None:
        self._shapes: dict[Resources, bytes] = {}

    def encode(self, number: int, event: EventRecorded) -> bytes:
        """Returns *event* as one more entry of ``WatchEventsResponse.events``."""
        record = bytearray()
        if event.type:
            record += b"\x08" + encode_varint(event.type)
        if event.object_id:
            record += _encode_text(b"\x12", event.object_id)
        if event.message:
            record += _encode_text(b"\x2a", event.message)
        if event.at_ns:
            record += b"\x30" + encode_varint(event.at_ns)
        if event.change:
            record += b"\x38" + encode_varint(event.change)
        if event.detail:
            record += b"\x40" + encode_varint(event.detail)
        if event.reference_id:
            record += _encode_text(b"\x4a", event.reference_id)
        if event.resources is not None:
            record += self._encode_amounts(event.resources)
        content = b"\x12" + encode_varint(len(record)) + record
        if number:
            content = b"\x08" + encode_varint(number) + content
        return b"\x0a" + encode_varint(len(content)) + content

    def _encode_amounts(self, resources: Resources) -> bytes:
        """Returns *resources* as field ``resource`` of a record."""
        known = self._shapes.get(resources)
        if known is not None:
            return known
        entries = b""
        for name, amount in resources.items():
            value = clamp_int64(amount)
            quantity = b"\x08" + encode_varint(value) if value else b""
            entry = _encode_text(b"\x0a", name) + b"\x12" + encode_varint(len(quantity)) + quantity
            entries += b"\x0a" + encode_varint(len(entry)) + entry
        encoded = b"\x52" + encode_varint(len(entries)) + entries
        if len(encoded) <= _LONGEST_KEPT:
            if len(self._shapes) >= _SHAPES_KEPT:
                self._shapes.clear()
            self._shapes[resources] = encoded
        return encoded


def encode_position(next_id: int) -> bytes:
    """Returns the bytes of ``WatchEventsResponse.next_id``."""
    return b"\x10" + encode_varint(next_id) if next_id else b""


def decode_filter(message: pb.EventFilter) -> EventFilter:
    """Returns the filter in *message*, which says which events a client wants."""
    return EventFilter(
        types=frozenset(message.types),
        object_prefix=message.object_prefix,
        application_prefix=message.application_prefix,
        queue=message.queue,
        node_prefix=message.node_prefix,
    )


def _encode_text(tag: bytes, text: str) -> bytes:
    content = text.encode()
    return tag + encode_varint(len(content)) + content
