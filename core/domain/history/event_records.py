"""Keeps events that occur together or one after the other as one record until they are read.

A placement is three events: its room on the node, the usage of its user, the allocation of its application; another one
says that its ask was added, and four that it ended. A busy core adds and places tens of thousands of asks a second, and
few of these events are ever read, so those of a whole call are one record until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import not_
from typing import Any, Final, TypeAlias

from kornel.core.domain.effects import AsksRecorded, Effect, EventRecorded, PlacementsRecorded, RemovalsRecorded
from kornel.core.domain.history.events import EventChange, EventDetail, EventType

EVENTS_OF_PLACEMENT: Final = 3
EVENTS_OF_REMOVAL: Final = 4
ASK_VALUES: Final = 3
PLACEMENT_VALUES: Final = 6
REMOVAL_VALUES: Final = 7
"""The number of values in a record for each ask, placement and removal; the last of them are amounts."""

RECORDS: Final = frozenset({EventRecorded, AsksRecorded, PlacementsRecorded, RemovalsRecorded})
"""The types of effects that are events, or records of several."""

RUNS: Final = RECORDS - {EventRecorded}
"""The types of records of several."""

EventsRecorded: TypeAlias = EventRecorded | AsksRecorded | PlacementsRecorded | RemovalsRecorded

_ADD, _REMOVE = int(EventChange.ADD), int(EventChange.REMOVE)
_APP, _NODE, _USERGROUP = int(EventType.APP), int(EventType.NODE), int(EventType.USERGROUP)
_APP_REQUEST, _REQUEST_CANCEL = int(EventDetail.APP_REQUEST), int(EventDetail.REQUEST_CANCEL)
_APP_ALLOC, _NODE_ALLOC = int(EventDetail.APP_ALLOC), int(EventDetail.NODE_ALLOC)
_UG_USER_RESOURCE: Final = int(EventDetail.UG_USER_RESOURCE)


def select_records(effects: Iterable[Effect]) -> list[EventsRecorded]:
    """Returns those *effects* that are events, or records of several events."""
    found = list(effects)
    return list(compress(found, map(RECORDS.__contains__, map(type, found))))  # type: ignore[arg-type]  # RECORDS says so


def select_runs(effects: Iterable[Any]) -> list[Any]:
    """Returns those *effects* that are records of several events."""
    found = list(effects)
    return list(compress(found, map(RUNS.__contains__, map(type, found))))


def leave_out_records(effects: Iterable[Effect]) -> list[Effect]:
    """Returns *effects* without events and records of several."""
    found = list(effects)
    return list(compress(found, map(not_, map(RECORDS.__contains__, map(type, found)))))


def count_all_events(records: Sequence[EventsRecorded]) -> int:
    """Returns the number of events that *records* are or stand for, without a step of Python for each that is one."""
    runs = select_runs(records)
    return len(records) - len(runs) + sum(map(count_events, runs))


def count_events(record: Effect) -> int:
    """Returns the number of events in *record*: several for a record of several, and 0 for another effect."""
    if type(record) is AsksRecorded:
        return len(record.values) // ASK_VALUES
    if type(record) is PlacementsRecorded:
        return len(record.values) // PLACEMENT_VALUES * EVENTS_OF_PLACEMENT
    if type(record) is RemovalsRecorded:
        return len(record.values) // REMOVAL_VALUES * EVENTS_OF_REMOVAL
    return int(type(record) is EventRecorded)


def unpack_effects(effects: Iterable[Effect]) -> list[Effect]:
    """Returns *effects* with the events that records of several stand for, as if each had been recorded by itself."""
    found: list[Effect] = []
    for effect in effects:
        if type(effect) is AsksRecorded:
            found += _unpack_asks(*effect)
        elif type(effect) is PlacementsRecorded:
            found += _unpack_placements(*effect)
        elif type(effect) is RemovalsRecorded:
            found += _unpack_removals(*effect)
        else:
            found.append(effect)
    return found


def split_columns(values: Sequence[Any], width: int) -> list[Sequence[Any]]:
    """Returns the columns of the rows of *width* values that follow each other in *values*."""
    return [values[at::width] for at in range(width)]


def _unpack_asks(at_ns: int, values: Sequence[Any]) -> Iterator[EventRecorded]:
    for application_id, key, wanted in zip(*split_columns(values, ASK_VALUES), strict=True):
        yield EventRecorded(_APP, application_id, key, _ADD, _APP_REQUEST, at_ns, wanted, "")


def _unpack_placements(at_ns: int, values: Sequence[Any]) -> Iterator[EventRecorded]:
    for key, application_id, node_id, user, queue, held in zip(*split_columns(values, PLACEMENT_VALUES), strict=True):
        yield EventRecorded(_NODE, node_id, key, _ADD, _NODE_ALLOC, at_ns, held, "")
        yield EventRecorded(_USERGROUP, user, queue, _ADD, _UG_USER_RESOURCE, at_ns, held, "")
        yield EventRecorded(_APP, application_id, key, _ADD, _APP_ALLOC, at_ns, held, "")


def _unpack_removals(at_ns: int, values: Sequence[Any]) -> Iterator[EventRecorded]:
    columns = split_columns(values, REMOVAL_VALUES)
    for key, application_id, node_id, user, queue, detail, held in zip(*columns, strict=True):
        yield EventRecorded(_USERGROUP, user, queue, _REMOVE, _UG_USER_RESOURCE, at_ns, held, "")
        yield EventRecorded(_APP, application_id, key, _REMOVE, detail, at_ns, held, "")
        yield EventRecorded(_NODE, node_id, key, _REMOVE, _NODE_ALLOC, at_ns, held, "")
        yield EventRecorded(_APP, application_id, key, _REMOVE, _REQUEST_CANCEL, at_ns, held, "")
