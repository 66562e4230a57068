"""Defines the vocabulary of the event history: the numbers of ``si.v1.EventRecord`` (protocol.md 2.6, 14)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.commands import TerminationType

MESSAGE_LIMIT: Final = 1_024
"""The most characters of a message; a longer one is cut (protocol.md 14)."""


class EventType(IntEnum):
    """The kinds of objects that events are about."""

    REQUEST = 1
    APP = 2
    NODE = 3
    QUEUE = 4
    USERGROUP = 5


class EventChange(IntEnum):
    """The kinds of changes."""

    NONE = 0
    SET = 1
    ADD = 2
    REMOVE = 3


class EventDetail(IntEnum):
    """The parts of an object, or reasons. Members that nothing records are part of the contract all the same."""

    NONE = 0
    REQUEST_CANCEL = 100
    REQUEST_ALLOC = 101
    REQUEST_TIMEOUT = 102
    APP_ALLOC = 200
    APP_REQUEST = 201
    APP_REJECT = 202
    APP_NEW = 203
    APP_ACCEPTED = 204
    APP_RUNNING = 206
    APP_COMPLETING = 207
    APP_COMPLETED = 208
    APP_FAILING = 209
    APP_FAILED = 210
    APP_RESUMING = 211
    APP_EXPIRED = 212
    APP_CANNOTRUN_QUEUE = 213
    APP_RUNNABLE_QUEUE = 214
    APP_CANNOTRUN_QUOTA = 215
    APP_RUNNABLE_QUOTA = 216
    NODE_DECOMISSION = 300
    NODE_SCHEDULABLE = 302
    NODE_ALLOC = 303
    NODE_CAPACITY = 304
    NODE_OCCUPIED = 305
    NODE_RESERVATION = 306
    QUEUE_CONFIG = 400
    QUEUE_DYNAMIC = 401
    QUEUE_TYPE = 402
    QUEUE_MAX = 403
    QUEUE_GUARANTEED = 404
    QUEUE_APP = 405
    QUEUE_ALLOC = 406
    QUEUE_PREEMPTION = 407
    ALLOC_CANCEL = 500
    ALLOC_PREEMPT = 501
    ALLOC_TIMEOUT = 502
    ALLOC_REPLACED = 503
    ALLOC_NODEREMOVED = 504
    UG_USER_LIMIT = 600
    UG_GROUP_LIMIT = 601
    UG_APP_LINK = 602
    UG_USER_RESOURCE = 603
    UG_GROUP_RESOURCE = 604


STATE_DETAILS: Final[Mapping[AppState, EventDetail]] = MappingProxyType(
    {
        AppState.NEW: EventDetail.APP_NEW,
        AppState.ACCEPTED: EventDetail.APP_ACCEPTED,
        AppState.RUNNING: EventDetail.APP_RUNNING,
        AppState.REJECTED: EventDetail.APP_REJECT,
        AppState.COMPLETING: EventDetail.APP_COMPLETING,
        AppState.COMPLETED: EventDetail.APP_COMPLETED,
        AppState.FAILING: EventDetail.APP_FAILING,
        AppState.FAILED: EventDetail.APP_FAILED,
        AppState.RESUMING: EventDetail.APP_RESUMING,
        AppState.EXPIRED: EventDetail.APP_EXPIRED,
    }
)
"""The details by which events name the state that an application entered."""

_REMOVALS: Final[Mapping[int | None, EventDetail]] = MappingProxyType(
    {
        None: EventDetail.ALLOC_NODEREMOVED,
        TerminationType.TIMEOUT: EventDetail.ALLOC_TIMEOUT,
        TerminationType.PREEMPTED_BY_SCHEDULER: EventDetail.ALLOC_PREEMPT,
        TerminationType.PLACEHOLDER_REPLACED: EventDetail.ALLOC_REPLACED,
    }
)


def removal_detail(termination: int | None) -> EventDetail:
    """Returns how events say why an allocation ended. ``None``: its node was removed; unknown numbers: the shim stopped
    it."""
    return _REMOVALS.get(termination, EventDetail.ALLOC_CANCEL)


def shorten_event_text(message: str) -> str:
    """Returns *message* as an event may carry it."""
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 3] + "..."
