"""Estimates how much memory events take that are kept.

What counts is what would not be there without them: names that shims make up, and amounts of many types. Of placements,
asks and removals only the keys and the amounts count, because what else they name is known anyway, or was named by
other events that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, compress, repeat
from operator import attrgetter, is_, is_not, itemgetter
from sys import getsizeof
from typing import Any, Final

from kornel.core.domain.effects import AsksRecorded, EventRecorded, PlacementsRecorded, RemovalsRecorded
from kornel.core.domain.history.event_records import ASK_VALUES, PLACEMENT_VALUES, REMOVAL_VALUES, EventsRecorded
from kornel.core.domain.resources import amounts_of

TYPE_SIZE: Final = 128
"""The bytes of one amount: its place in two tables, and the number."""

EMPTY_NAME_SIZE: Final = getsizeof("")

_NAMES: Final = tuple(
    itemgetter(EventRecorded._fields.index(field)) for field in ("object_id", "reference_id", "message")
)
_AMOUNTS: Final = itemgetter(EventRecorded._fields.index("resources"))
_VALUES: Final = attrgetter("values")
_KEY_AND_AMOUNTS: Final = (
    (AsksRecorded, ASK_VALUES, 1),
    (PlacementsRecorded, PLACEMENT_VALUES, 0),
    (RemovalsRecorded, REMOVAL_VALUES, 0),
)
"""The records of several events, each with the number of values of one row and the place of the key; the amounts come
last."""


def measure_records(records: Sequence[EventsRecorded]) -> int:
    """Returns about how many bytes *records* take."""
    single = _select_type(records, EventRecorded)
    size = sum(_measure_names(list(map(name, single))) for name in _NAMES) + _measure_amounts(
        list(map(_AMOUNTS, single))
    )
    for kind, width, key in _KEY_AND_AMOUNTS:
        values = list(chain.from_iterable(map(_VALUES, _select_type(records, kind))))
        size += _measure_names(values[key::width]) + _measure_amounts(values[width - 1 :: width])
    return size


def _select_type(records: Sequence[EventsRecorded], kind: type) -> list[Any]:
    return list(compress(records, map(is_, map(type, records), repeat(kind))))


def _measure_names(names: Sequence[str]) -> int:
    """Returns at least the bytes of *names*. One text of all is measured, many times as fast as each by itself; if one
    of them has wide characters, all count as if they had."""
    return len(names) * EMPTY_NAME_SIZE + getsizeof("".join(names))


def _measure_amounts(amounts: Sequence[Any]) -> int:
    """Returns the bytes of *amounts*, those of equal demands only once: such demands share an object."""
    distinct = filter(partial(is_not, None), dict(zip(map(id, amounts), amounts, strict=True)).values())
    types = list(chain.from_iterable(map(amounts_of, distinct)))
    return _measure_names(types) + TYPE_SIZE * len(types)
