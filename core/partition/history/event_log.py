"""Where events go: among the effects, with the time of the command or cycle under way (protocol.md 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from core.domain.effects import Effect, EventRecorded
from core.domain.events import MESSAGE_LIMIT, EventChange, EventDetail, EventType, shortened
from core.domain.resources import Resources

if TYPE_CHECKING:
    from core.model.callbacks import Callbacks


class EventLog:
    """Appends events to the effects of a partition. ``resources`` are absent where the contract names none."""

    __slots__ = ("_callbacks", "_effects")

    def __init__(self, effects: list[Effect], callbacks: Callbacks) -> None:
        self._effects: Final = effects
        self._callbacks: Final = callbacks

    @property
    def now_ns(self) -> int:
        """When everything happens that is recorded now."""
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
        """It happened now."""
        at_ns = self._callbacks.now_ns
        if len(message) > MESSAGE_LIMIT:
            message = shortened(message)
        self._effects.append(EventRecorded(kind, object_id, reference_id, change, detail, at_ns, resources, message))
