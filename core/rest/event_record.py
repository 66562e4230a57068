"""An entry of the event history as REST writes it: numbers for codes, nothing that is empty (rest.md 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from core.domain.effects import EventRecorded
from core.domain.resources import clamp
from core.rest.compact import compact


def event_document(event: EventRecorded) -> dict[str, Any]:
    """*event* with the names of upstream."""
    document: dict[str, Any] = {"type": event.type} if event.type else {}
    if event.object_id:
        document["objectID"] = event.object_id
    if event.message:
        document["message"] = event.message
    document["timestampNano"] = event.at_ns
    if event.change:
        document["eventChangeType"] = int(event.change)
    if event.detail:
        document["eventChangeDetail"] = int(event.detail)
    if event.reference_id:
        document["referenceID"] = event.reference_id
    document["resource"] = _resource(event.resources) if event.resources else {}
    return document


def event_line(event: EventRecorded) -> bytes:
    """*event* on a line of its own. Streams keep many of them."""
    return compact(orjson.dumps(event_document(event), option=orjson.OPT_APPEND_NEWLINE))


def _resource(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {"resources": {name: {"value": clamp(amount)} if amount else {} for name, amount in amounts.items()}}
