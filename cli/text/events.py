"""Writes events as lines for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from google.protobuf.descriptor import EnumDescriptor

from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_quantities
from kornel.cli.text.tables import wrap_text
from kornel.shared.visible import write_visibly
from kornel.si.v1.si_pb2 import EventRecord
from kornel.v1.events_pb2 import Event

_MILLISECOND_NS: Final = 1_000_000
_FURTHER: Final = " " * 8


def render_event(event: Event) -> str:
    """Returns *event* in one line: ID, time in UTC, what happened to what, and the details.

    In a narrow terminal it is wrapped, and further lines are indented.
    """
    record = event.record
    words = [
        f"{event.id:>7}",
        _format_time(record.timestampNano),
        f"{name_of(EventRecord.Type.DESCRIPTOR, record.type):<9}",
        record.objectID or "-",
        name_of(EventRecord.ChangeType.DESCRIPTOR, record.eventChangeType),
    ]
    if record.eventChangeDetail:
        words.append(name_of(EventRecord.ChangeDetail.DESCRIPTOR, record.eventChangeDetail))
    if record.referenceID:
        words.append(record.referenceID)
    if record.resource.resources:
        words.append(format_quantities({name: amount.value for name, amount in record.resource.resources.items()}))
    if record.message:
        words.append(f'"{record.message}"')
    return join_lines(wrap_text(write_visibly(" ".join(words)), hanging=_FURTHER))


def _format_time(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, 1_000 * _MILLISECOND_NS)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // _MILLISECOND_NS:03}Z"


def name_of(enum: EnumDescriptor, number: int) -> str:
    """Returns the name of *number*, or the number itself if it comes from a newer core and has no name here."""
    value = enum.values_by_number.get(number)
    return value.name if value is not None else str(number)
