"""Asks, allocations and the load of other schedulers (rest.md 4.5, 4.6)."""

from __future__ import annotations

from typing import Any

import orjson

from core.domain.views import AllocationView, AskView, ForeignView
from core.rest.documents.values import amounts, present, texts


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


def allocation(view: AllocationView) -> orjson.Fragment:
    """As :func:`allocation_fields`, encoded once for all readers until something of it changes."""
    rendered = view.rendered
    if rendered is None:
        rendered = view.rendered = orjson.dumps(allocation_fields(view))
    return orjson.Fragment(rendered)


def allocation_fields(view: AllocationView) -> dict[str, Any]:
    """An allocation. It was asked for when it was bound, unless it took the place of a placeholder (4.5, quirk)."""
    requested_ns = view.placeholder_ns or view.bound_ns
    return {
        "allocationKey": view.key,
        **present(
            {
                "allocationTags": texts(view.tags),
                "requestTime": requested_ns,
                "allocationTime": view.bound_ns,
                "allocationDelay": view.bound_ns - requested_ns,
                "resource": amounts(view.resources),
                "priority": str(view.priority),
                "nodeId": view.node_id,
                "applicationId": view.application_id,
                "placeholder": view.placeholder,
                "placeholderUsed": view.placeholder_ns > 0,
                "taskGroupName": view.task_group,
                "preempted": view.preempted,
                "originator": view.originator,
            }
        ),
    }


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
