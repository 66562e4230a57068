"""Writes entries of the event history, with numbers for codes and without empty fields (rest.md 5)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.resources import Resources, clamp_int64
from kornel.core.telling.encoding.documents import Document, Kind, always, apart, copy_compact, if_any, listed
from kornel.core.telling.encoding.values import ANYTHING, COUNT, TEXT, TIME_NS, write_with

_CODE: Final = write_with(COUNT, int)


def _encode_resource(amounts: Resources | None) -> dict[str, Any]:
    """Returns ``{}``, or ``resources`` with an object for each type, whose ``value`` is absent if it is 0."""
    if not amounts:
        return {}
    return {"resources": {name: {"value": clamp_int64(amount)} if amount else {} for name, amount in amounts.items()}}


EVENT: Final = Document(
    "Event",
    EventRecorded,
    {
        "type": if_any(COUNT, "type"),
        "objectID": if_any(TEXT, "object_id"),
        "message": if_any(TEXT, "message"),
        "timestampNano": always(TIME_NS, "at_ns"),
        "eventChangeType": if_any(_CODE, "change"),
        "eventChangeDetail": if_any(_CODE, "detail"),
        "referenceID": if_any(TEXT, "reference_id"),
        "resource": always(write_with(ANYTHING, _encode_resource), "resources"),
    },
)


def encode_event_line(event: EventRecorded) -> bytes:
    """Returns *event* on a line of its own. Streams keep many of them."""
    return copy_compact(orjson.dumps(EVENT.write(event), option=orjson.OPT_APPEND_NEWLINE))


class EventBatch(NamedTuple):
    """The head of a batch of events, written before the events."""

    instance: str
    lowest_id: int
    highest_id: int


EVENT_BATCH: Final = Document(
    "EventBatch",
    EventBatch,
    {
        "InstanceUUID": always(TEXT, "instance"),
        "LowestID": always(COUNT, "lowest_id"),
        "HighestID": always(COUNT, "highest_id"),
        "EventRecords": apart(Kind({**listed(EVENT).schema, "type": ["array", "null"]}), promised=True),
    },
)
