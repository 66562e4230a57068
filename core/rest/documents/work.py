"""Asks, allocations and the load of other schedulers (rest.md 4.5, 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from core.rest.compact import compact
from core.rest.documents.values import amounts, present, texts
from core.telling.allocations.allocation_views import AllocationView, AskView, ForeignView


def ask(view: AskView) -> dict[str, Any]:
    """A pending ask."""
    return {
        "allocationKey": view.key,
        **present(
            {
                "allocationTags": texts(view.tags),
                "requestTime": view.created_ns,
                "resource": amounts(view.resources),
                "priority": str(view.priority),
                "requiredNodeId": view.required_node,
                "applicationId": view.application_id,
                "placeholder": view.placeholder,
                "taskGroupName": view.task_group,
                "allocationLog": [
                    {"message": entry.message, "lastOccurrence": entry.last_ns, "count": entry.times}
                    for entry in view.log
                ],
                "triggeredPreemption": view.triggered_preemption,
                "originator": view.originator,
                "schedulingAttempted": view.attempted,
                "triggeredScaleUp": view.scale_up,
            }
        ),
    }


def allocations(views: Sequence[AllocationView]) -> orjson.Fragment | None:
    """A list of allocations, ready to be embedded; ``None``: there are none."""
    return orjson.Fragment(b"[" + joined(views) + b"]") if views else None


def joined(views: Sequence[AllocationView]) -> bytes:
    """What is between the brackets."""
    return b",".join(encoded(views))


def encoded(views: Sequence[AllocationView]) -> list[bytes]:
    """Each for itself; kept until something of it changes."""
    return [view.rendered or _encoded(view) for view in views]


def _encoded(view: AllocationView) -> bytes:
    view.rendered = encoded = compact(orjson.dumps(allocation_fields(view)))
    return encoded


def allocation_fields(view: AllocationView) -> dict[str, Any]:
    """An allocation. It was asked for when it was bound, unless it took the place of a placeholder (4.5, quirk).

    There are many of them, and each is made from scratch, so what most do not have is not even looked at twice.
    """
    requested_ns = view.placeholder_ns or view.bound_ns
    document: dict[str, Any] = {"allocationKey": view.key}
    if view.tags:
        document["allocationTags"] = texts(view.tags)
    if requested_ns:
        document["requestTime"] = requested_ns
    if view.bound_ns:
        document["allocationTime"] = view.bound_ns
    if view.bound_ns != requested_ns:
        document["allocationDelay"] = view.bound_ns - requested_ns
    if view.resources:
        document["resource"] = amounts(view.resources)
    document["priority"] = str(view.priority)
    if view.node_id:
        document["nodeId"] = view.node_id
    document["applicationId"] = view.application_id
    if view.placeholder:
        document["placeholder"] = True
    if view.placeholder_ns:
        document["placeholderUsed"] = True
    if view.task_group:
        document["taskGroupName"] = view.task_group
    if view.preempted:
        document["preempted"] = True
    if view.originator:
        document["originator"] = True
    return document


def foreign(view: ForeignView) -> dict[str, Any]:
    """Load of another scheduler; what is static is never told to leave."""
    return {
        "allocationKey": view.key,
        **present(
            {
                "allocationTags": texts(view.tags),
                "allocationTime": view.since_ns,
                "resource": amounts(view.resources),
                "priority": str(view.priority),
                "nodeId": view.node_id,
                "preemptable": not view.static,
            }
        ),
    }
