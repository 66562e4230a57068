"""Queues (rest.md 4.4)."""

from __future__ import annotations

from typing import Any

from core.domain.secrets import without_secrets
from core.rest.documents.values import amounts, duration, percents, present
from core.telling.queues.above_max import AboveMax
from core.telling.queues.queue_views import QueueView, TemplateView


class QueueTree:
    """Queues, each nested in the one above; to be fed with parents before their children.

    *partition*: shown on the first one only, as upstream does; empty: not even there.
    """

    def __init__(self, partition: str = "") -> None:
        self._partition = partition
        self._top: dict[str, Any] | None = None
        self._known: dict[str, dict[str, Any]] = {}

    def add(self, view: QueueView) -> None:
        """One more queue. One whose parent is not there is left out: it went while the tree was being read."""
        document = queue(view, self._partition if self._top is None else "")
        if self._top is None:
            self._top = document
        elif view.parent in self._known:
            self._known[view.parent].setdefault("children", []).append(document)
        else:
            return
        self._known[view.path] = document

    def document(self) -> dict[str, Any] | None:
        """The first queue with all others in it; ``None``: there was none."""
        return self._top


def queue(view: QueueView, partition: str = "") -> dict[str, Any]:
    """One queue without those below."""
    return {
        "queuename": view.path,
        "status": view.status,
        "partition": partition,
        "isLeaf": view.leaf,
        "isManaged": view.managed,
        "currentPriority": view.priority,
        "sortingPolicy": view.sort_policy,
        "prioritySorting": view.sort_by_priority,
        "preemptionEnabled": view.preemption_enabled,
        "isPreemptionFence": view.preemption_fence,
        "preemptionDelay": duration(view.preemption_delay_ns),
        "quotaPreemptionDelay": duration(view.quota_preemption_delay_ns),
        "isPriorityFence": view.priority_fence,
        "isQuotaPreemptionRunning": view.quota_running,
        "unschedAskBackoff": view.backoff,
        "askBackoffDelay": duration(view.backoff_delay_ns),
        **present(
            {
                "pendingResource": amounts(view.pending),
                "maxResource": amounts(view.max),
                "guaranteedResource": amounts(view.guaranteed),
                "allocatedResource": amounts(view.used),
                "preemptingResource": amounts(view.preempting),
                "headroom": amounts(view.headroom),
                "properties": without_secrets(dict(sorted(view.properties.items()))),
                "parent": view.parent,
                "template": _template(view.template) if view.template is not None else None,
                "childNames": list(view.children),
                "absUsedCapacity": percents(view.used, view.max),
                "maxRunningApps": view.max_applications,
                "runningApps": view.running_applications,
                "allocatingAcceptedApps": list(view.allocating),
                "priorityOffset": view.priority_offset,
                "quotaPreemptionStartTime": view.quota_due_ns,
                "aboveMax": _above_max(view.above) if view.above is not None else None,
            }
        ),
    }


def _above_max(found: AboveMax) -> dict[str, Any]:
    return present(
        {
            "resource": amounts(found.above),
            "leaving": amounts(found.leaving),
            "since": found.since_ns,
            "course": found.course,
            "protectedBy": list(found.protected),
        }
    )


def _template(template: TemplateView) -> dict[str, Any]:
    return present(
        {
            "maxApplications": template.max_applications,
            "maxResource": amounts(template.max),
            "guaranteedResource": amounts(template.guaranteed),
            "properties": without_secrets(dict(sorted(template.properties.items()))),
        }
    )
