"""The event history of queues and of the limits that the configuration states for them (protocol.md 14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.state.history import event_texts
from kornel.shared.readable_amounts import format_quantities

if TYPE_CHECKING:
    from kornel.core.domain.reasons import Outcome
    from kornel.core.model.queues import Queue
    from kornel.core.model.shapes import ResourceTypes
    from kornel.core.model.users import QueueLimits
    from kornel.core.state.history.event_log import EventLog

IS_LEAF: Final = "leaf queue: true"
IS_PARENT: Final = "leaf queue: false"


class QueueSettings(NamedTuple):
    """The settings and the state of a queue, kept to be compared with what they are after a change."""

    queue: Queue
    leaf: bool
    guaranteed: Mapping[int, int]
    max: Mapping[int, int]
    limits: QueueLimits


def settings_of(queue: Queue) -> QueueSettings:
    """Returns the settings and the state of *queue* as they are now, to be compared with later ones."""
    return QueueSettings(queue, queue.leaf, queue.guaranteed, queue.max, queue.limits)


class QueueRecorder:
    """Records what happens to queues."""

    __slots__ = ("_log", "_say", "_types")

    def __init__(self, log: EventLog, types: ResourceTypes) -> None:
        self._log: Final = log
        self._say: Final = log.add
        self._types: Final = types

    def queue_created(self, queue: Queue) -> None:
        """Records that *queue* is new."""
        self._say(EventType.QUEUE, queue.path, EventChange.ADD, _kind_of(queue))

    def queue_removed(self, queue: Queue) -> None:
        """Records that *queue* is gone."""
        self._say(EventType.QUEUE, queue.path, EventChange.REMOVE, _kind_of(queue))

    def take_record_steps(self, before: Mapping[str, QueueSettings], now: Mapping[str, Queue]) -> Iterator[None]:
        """Records every difference between the queues, by path, before and after a configuration came into force.
        Yields after each queue."""
        for path, settings in before.items():
            if path not in now:
                self.queue_removed(settings.queue)
            yield
        for path, queue in now.items():
            yield
            known = before.get(path)
            if known is None:
                self.queue_created(queue)
                self._limits_applied(queue, None)
                continue
            if known.leaf is not queue.leaf:
                message = IS_LEAF if queue.leaf else IS_PARENT
                self._say(EventType.QUEUE, path, EventChange.SET, EventDetail.QUEUE_TYPE, message=message)
            self.amounts_changed(known, queue)
            self._limits_applied(queue, known.limits)

    def amounts_changed(self, before: QueueSettings, queue: Queue) -> None:
        """Records how the max and the guaranteed amounts of *queue* differ from what they were *before*, if they do."""
        if queue.max != before.max:
            amounts = self._types.to_resources(queue.max)
            self._say(EventType.QUEUE, queue.path, EventChange.SET, EventDetail.QUEUE_MAX, resources=amounts)
        if queue.guaranteed != before.guaranteed:
            amounts = self._types.to_resources(queue.guaranteed)
            self._say(EventType.QUEUE, queue.path, EventChange.SET, EventDetail.QUEUE_GUARANTEED, resources=amounts)

    def quota_enforced(self, queue: Queue, outcome: Outcome, detail: str) -> None:
        """Records that preemption for the max of *queue* has run and ended as *outcome* says (preemption.md D.9)."""
        self._about_quota(queue, f"Preemption for the max of queue {queue.path} ended {outcome}: {detail}")

    def quota_timer_set(self, queue: Queue, before_ns: int | None, start_ns: int | None) -> None:
        """Records that the start of preemption for the max of *queue* moved from *before_ns* to *start_ns*; ``None``:
        never."""
        if start_ns == before_ns:
            return
        moved = before_ns is not None
        self._about_quota(queue, event_texts.describe_timer(queue, start_ns, self._log.now_ns, moved=moved))

    def came_above_max(self, queue: Queue, over: Mapping[int, int]) -> None:
        """Records that *queue* holds more than its max from now on, by the amounts *over*."""
        self._about_quota(
            queue, f"Queue {queue.path} is {format_quantities(self._types.to_resources(over))} above its max"
        )

    def is_within_max(self, queue: Queue) -> None:
        """Records that *queue* holds no more than its max, or no longer has a max."""
        self._about_quota(queue, f"Queue {queue.path} is not above its max any more")

    def _about_quota(self, queue: Queue, message: str) -> None:
        amounts = self._types.to_resources(queue.max)
        self._say(
            EventType.QUEUE,
            queue.path,
            EventChange.SET,
            EventDetail.QUEUE_PREEMPTION,
            resources=amounts,
            message=message,
        )

    def _limits_applied(self, queue: Queue, before: QueueLimits | None) -> None:
        """Records the limits of *queue*, even if they are unchanged, because each configuration applies them again
        (rest.md E32)."""
        users, groups = before if before is not None else ({}, {})
        for detail, was, now in (
            (EventDetail.UG_USER_LIMIT, users, queue.limits.users),
            (EventDetail.UG_GROUP_LIMIT, groups, queue.limits.groups),
        ):
            for name in was:
                if name not in now:
                    self._say(EventType.USERGROUP, name, EventChange.REMOVE, detail, queue.path)
            for name in now:
                self._say(EventType.USERGROUP, name, EventChange.SET, detail, queue.path)


def _kind_of(queue: Queue) -> EventDetail:
    return EventDetail.NONE if queue.managed else EventDetail.QUEUE_DYNAMIC
