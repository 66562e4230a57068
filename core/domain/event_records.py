"""Keeps events that always occur together as one record until they are read.

A placement is three events: its room on the node, the usage of its user, the allocation of its application. A busy core
makes tens of thousands of placements a second, and few of their events are ever read, so they are one record until
then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Final

from kornel.core.domain.effects import Effect, EventRecorded, PlacementRecorded
from kornel.core.domain.events import EventChange, EventDetail, EventType

EVENTS_OF_PLACEMENT: Final = 3

_KINDS: Final = frozenset({EventRecorded, PlacementRecorded})

_ADD: Final = int(EventChange.ADD)
_APP, _NODE, _USERGROUP = int(EventType.APP), int(EventType.NODE), int(EventType.USERGROUP)
_APP_ALLOC, _NODE_ALLOC = int(EventDetail.APP_ALLOC), int(EventDetail.NODE_ALLOC)
_UG_USER_RESOURCE: Final = int(EventDetail.UG_USER_RESOURCE)


def select_records(effects: Iterable[Effect]) -> list[EventRecorded | PlacementRecorded]:
    """Returns those *effects* that are events, or records of several."""
    found = list(effects)
    return list(compress(found, map(_KINDS.__contains__, map(type, found))))  # type: ignore[arg-type]  # _KINDS says so


def unpack_effects(effects: Iterable[Effect]) -> list[Effect]:
    """Returns *effects* with the events that records of several stand for, as if each had been recorded by itself."""
    found: list[Effect] = []
    for effect in effects:
        if type(effect) is not PlacementRecorded:
            found.append(effect)
            continue
        at_ns, key, application_id, node_id, user, queue, held = effect
        found += (
            EventRecorded(_NODE, node_id, key, _ADD, _NODE_ALLOC, at_ns, held, ""),
            EventRecorded(_USERGROUP, user, queue, _ADD, _UG_USER_RESOURCE, at_ns, held, ""),
            EventRecorded(_APP, application_id, key, _ADD, _APP_ALLOC, at_ns, held, ""),
        )
    return found
