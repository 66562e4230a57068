"""Selects the events that a client wants (``kornel.v1.EventFilter``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.history.events import EventDetail, EventType

_QUEUE_APP: Final = int(EventDetail.QUEUE_APP)
_APP_LINK: Final = int(EventDetail.UG_APP_LINK)
_APP: Final = int(EventType.APP)
_NODE: Final = int(EventType.NODE)
_QUEUE: Final = int(EventType.QUEUE)
_REQUEST: Final = int(EventType.REQUEST)
_USERGROUP: Final = int(EventType.USERGROUP)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter for events: all fields that are set must match, and if none is set, every event matches.

    types               numbers of ``si.v1.EventRecord.Type``
    object_prefix       beginning of the object's ID
    application_prefix  beginning of the ID of the application that an event is about or names
    queue               full path: events of this queue, of queues below, and of what is in them
    node_prefix         beginning of a node's ID, in events about nodes
    """

    types: frozenset[int] = frozenset()
    object_prefix: str = ""
    application_prefix: str = ""
    queue: str = ""
    node_prefix: str = ""

    def matches_event(self, event: EventRecorded, queue_of: Callable[[str], str]) -> bool:
        """Tells whether *event* is wanted. *queue_of* returns the path of the queue of an application; empty: it is not
        known."""
        if self.types and event.type not in self.types:
            return False
        if not event.object_id.startswith(self.object_prefix):
            return False
        if self.node_prefix and not (event.type == _NODE and event.object_id.startswith(self.node_prefix)):
            return False
        if not self.application_prefix and not self.queue:
            return True
        application = application_of(event)
        if self.application_prefix and not (application and application.startswith(self.application_prefix)):
            return False
        return not self.queue or is_within(self.queue, _queue_of(event, application, queue_of))


def application_of(event: EventRecorded) -> str:
    """Returns the ID of the application that *event* is about or names; empty: none."""
    if event.type == _APP:
        return event.object_id
    if event.type == _REQUEST or event.detail in (_QUEUE_APP, _APP_LINK):
        return event.reference_id
    return ""


def _queue_of(event: EventRecorded, application: str, queue_of: Callable[[str], str]) -> str:
    """Returns the path of the queue that *event* is about or happened in; empty: none."""
    if event.type == _QUEUE:
        return event.object_id
    if application:
        return queue_of(application)
    return event.reference_id if event.type == _USERGROUP else ""


def is_within(queue: str, path: str) -> bool:
    """Tells whether *path* is *queue* or below it."""
    return path == queue or path.startswith(f"{queue}.")
