"""Passes events out of the engine, as effects with the time of the current command or cycle (protocol.md 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kornel.core.domain.effects import Effect, EventRecorded, PlacementRecorded
from kornel.core.domain.events import EventChange, EventDetail, EventType, shorten_event_text
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
        at_ns = self._callbacks.now_ns
        fields = (kind, object_id, reference_id, change, detail, at_ns, resources, message)
        # The constructor of a named tuple would double the cost of an event, and each allocation causes several.
        self._append(_new(EventRecorded, fields))

    def add_placement(self, *fields: str | Resources) -> None:
        """Records a placement that happens now. *fields* are the fields of a :class:`PlacementRecorded` that follow its
        time."""
        self._append(_new(PlacementRecorded, (self._callbacks.now_ns, *fields)))
