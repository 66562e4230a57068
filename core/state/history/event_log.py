"""Passes events out of the engine, as effects with the time of the current command or cycle (protocol.md 14).

Nearly all events are about asks that are added, placements that are made and allocations that end, one after the other.
Those of a call that no other event comes between are one effect, with the values of all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kornel.core.domain.effects import AsksRecorded, Effect, EventRecorded, PlacementsRecorded, RemovalsRecorded
from kornel.core.domain.history.events import EventChange, EventDetail, EventType, shorten_event_text
from kornel.core.domain.resources import Resources

if TYPE_CHECKING:
    from kornel.core.model.callbacks import Callbacks

_new: Final = tuple.__new__


class EventLog:
    """Appends events to the effects of a partition. ``resources`` are absent where the contract names none."""

    __slots__ = ("_append", "_callbacks")

    def __init__(self, effects: list[Effect], callbacks: Callbacks) -> None:
        self._append: Final = effects.append
        self._callbacks: Final = callbacks

    @property
    def callbacks(self) -> Callbacks:
        """The record that has the time, and the last record of events, to which further ones may be added."""
        return self._callbacks

    @property
    def now_ns(self) -> int:
        """The time with which events are recorded now."""
        return self._callbacks.now_ns

    def add(
        self,
        kind: EventType,
        object_id: str,
        change: EventChange,
        detail: EventDetail = EventDetail.NONE,
        reference_id: str = "",
        resources: Resources | None = None,
        message: str = "",
    ) -> None:
        """Records an event that happens now."""
        if message:
            message = shorten_event_text(message)
        callbacks = self._callbacks
        callbacks.asks_recorded = callbacks.placements_recorded = callbacks.removals_recorded = None
        fields = (kind, object_id, reference_id, change, detail, callbacks.now_ns, resources, message)
        # The constructor of a named tuple would double the cost of an event, and each allocation causes several.
        self._append(_new(EventRecorded, fields))

    def begin_asks(self, application_id: str, key: str, resources: Resources) -> None:
        """Records an ask that is added now: by itself if another event came last, since others do not follow it
        everywhere, and otherwise as the first of an :class:`AsksRecorded`."""
        callbacks = self._callbacks
        values = callbacks.asks_recorded
        if values is None:
            self.add(EventType.APP, application_id, EventChange.ADD, EventDetail.APP_REQUEST, key, resources)
            callbacks.asks_recorded = []
        else:
            values += (application_id, key, resources)
            self._append(AsksRecorded(callbacks.now_ns, values))

    def begin_placements(self) -> list[str | Resources]:
        """Returns the values of a :class:`PlacementsRecorded` of the present time; the values of placements are
        added to them."""
        values: list[str | Resources] = []
        self._callbacks.end_recording()
        self._callbacks.placements_recorded = values
        self._append(PlacementsRecorded(self._callbacks.now_ns, values))
        return values

    def begin_removals(self) -> list[str | int | Resources]:
        """Returns the values of a :class:`RemovalsRecorded` that happens now, to which those of allocations are
        added."""
        values: list[str | int | Resources] = []
        self._callbacks.end_recording()
        self._callbacks.removals_recorded = values
        self._append(RemovalsRecorded(self._callbacks.now_ns, values))
        return values
