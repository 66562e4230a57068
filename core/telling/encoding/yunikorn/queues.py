"""Writes queues (rest.md 4.4)."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.telling.encoding.documents import Document, always, apart, if_any, listed, nested
from kornel.core.telling.encoding.records import made
from kornel.core.telling.encoding.values import (
    AMOUNTS,
    COUNT,
    DURATION,
    FLAG,
    INT32,
    PERCENTS,
    SETTINGS,
    TEXT,
    TEXTS,
    TIME_NS,
    WHOLE,
    one_of,
    percents_of,
)
from kornel.core.telling.queues.above_max import AboveMax
from kornel.core.telling.queues.queue_views import QueueView, TemplateView, WastedWork

_TEMPLATE: Final = Document(
    "",
    TemplateView,
    {
        "maxApplications": if_any(COUNT, "max_applications"),
        "maxResource": if_any(AMOUNTS, "max"),
        "guaranteedResource": if_any(AMOUNTS, "guaranteed"),
        "properties": if_any(SETTINGS, "properties"),
    },
)

_ABOVE_MAX: Final = Document(
    "",
    AboveMax,
    {
        "resource": if_any(AMOUNTS, "above", promised=True),
        "leaving": if_any(AMOUNTS, "leaving"),
        "since": if_any(TIME_NS, "since_ns"),
        "course": if_any(TEXT, "course", promised=True),
        "protectedBy": if_any(TEXTS, "protected"),
    },
    left_out=("path", "due_ns"),
)

_WASTED_WORK: Final = Document(
    "WastedWork",
    WastedWork,
    {"kind": always(TEXT, "kind"), "resourceSeconds": if_any(AMOUNTS, "resources", promised=True)},
)

QUEUE: Final = Document(
    "Queue",
    QueueView,
    lambda queue: {
        "queuename": always(TEXT, "path"),
        "status": always(one_of("Active", "Draining", "Stopped"), "status"),
        # Only some documents have this field; write_queue adds it.
        "partition": always(TEXT, made(str)),
        "isLeaf": always(FLAG, "leaf"),
        "isManaged": always(FLAG, "managed"),
        "currentPriority": always(INT32, "priority"),
        "sortingPolicy": always(one_of("fifo", "fair"), "sort_policy"),
        "prioritySorting": always(FLAG, "sort_by_priority"),
        "preemptionEnabled": always(FLAG, "preemption_enabled"),
        "isPreemptionFence": always(FLAG, "preemption_fence"),
        "preemptionDelay": always(DURATION, "preemption_delay_ns"),
        "quotaPreemptionDelay": always(DURATION, "quota_preemption_delay_ns"),
        "isPriorityFence": always(FLAG, "priority_fence"),
        "isQuotaPreemptionRunning": always(FLAG, "quota_running"),
        "unschedAskBackoff": always(COUNT, "backoff"),
        "askBackoffDelay": always(DURATION, "backoff_delay_ns"),
        "pendingResource": if_any(AMOUNTS, "pending"),
        "maxResource": if_any(AMOUNTS, "max"),
        "guaranteedResource": if_any(AMOUNTS, "guaranteed"),
        "allocatedResource": if_any(AMOUNTS, "used"),
        "preemptingResource": if_any(AMOUNTS, "preempting"),
        "headroom": if_any(AMOUNTS, "headroom"),
        "properties": if_any(SETTINGS, "properties"),
        "parent": if_any(TEXT, "parent"),
        "template": if_any(nested(_TEMPLATE), "template"),
        "childNames": if_any(TEXTS, "children"),
        "absUsedCapacity": if_any(PERCENTS, made(percents_of, "used", "max")),
        "maxRunningApps": if_any(COUNT, "max_applications"),
        "runningApps": if_any(COUNT, "running_applications"),
        "allocatingAcceptedApps": if_any(TEXTS, "allocating"),
        "priorityOffset": if_any(WHOLE, "priority_offset"),
        "quotaPreemptionStartTime": if_any(TIME_NS, "quota_due_ns"),
        "aboveMax": if_any(nested(_ABOVE_MAX), "above"),
        "wastedWork": if_any(listed(_WASTED_WORK), "wasted"),
        "children": apart(listed(queue)),
    },
    left_out=("applications", "preempted", "preempted_allocations"),
)


def write_queue(view: QueueView, partition: str = "") -> dict[str, Any]:
    """Returns the document of one queue without its children."""
    document = QUEUE.write(view)
    document["partition"] = partition
    return document


class QueueTree:
    """Nests the documents of queues in those of their parents; parents have to be added before their children.

    *partition*: the name that the first queue shows, as in YuniKorn; empty: it shows none.
    """

    def __init__(self, partition: str = "") -> None:
        self._partition = partition
        self._top: dict[str, Any] | None = None
        self._known: dict[str, dict[str, Any]] = {}

    def add(self, view: QueueView) -> None:
        """Adds a queue. A queue without its parent is left out, because the parent was removed while the tree was being
        read."""
        document = write_queue(view, self._partition if self._top is None else "")
        if self._top is None:
            self._top = document
        elif view.parent in self._known:
            self._known[view.parent].setdefault("children", []).append(document)
        else:
            return
        self._known[view.path] = document

    def to_document(self) -> dict[str, Any] | None:
        """Returns the first queue with all others in it; ``None``: there was none."""
        return self._top
