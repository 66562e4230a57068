"""Writes applications, their asks and their allocations (rest.md 4.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from kornel.core.domain.application_states import AppState, StateEntry
from kornel.core.model.not_placed import Failure
from kornel.core.telling.allocations.allocation_views import AllocationView, AskView
from kornel.core.telling.applications.application_views import (
    ApplicationParts,
    ApplicationView,
    PlaceholderView,
    ShortfallView,
    Spent,
    SpentView,
)
from kornel.core.telling.encoding.documents import Document, Kind, always, copy_compact, if_any, listed, nested
from kornel.core.telling.encoding.records import made
from kornel.core.telling.encoding.values import (
    AMOUNTS,
    COUNT,
    DATE_TIME,
    FLAG,
    PRIORITY,
    TAGS,
    TEXT,
    TEXTS,
    TIME_NS,
    TRUTH,
    WHOLE,
    one_of,
    write_amounts,
)

NEVER_STARTED_MS: Final = -62135596800000
"""The value that stands for the start of an application that never ran: Go's zero time."""


def _requested_ns(placeholder_ns: int, created_ns: int) -> int:
    """Returns when an allocation was asked for: when its ask was created, or the placeholder that it replaced."""
    return placeholder_ns or created_ns


def _delay_ns(placeholder_ns: int, created_ns: int, bound_ns: int) -> int:
    return bound_ns - (placeholder_ns or created_ns)


ASK: Final = Document(
    "Ask",
    AskView,
    {
        "allocationKey": always(TEXT, "spec.key"),
        "allocationTags": if_any(TAGS, "spec.tags"),
        "requestTime": if_any(TIME_NS, "created_ns"),
        "resource": if_any(AMOUNTS, "resources"),
        "priority": always(PRIORITY, "spec.priority", promised=False),
        "requiredNodeId": if_any(TEXT, "spec.required_node"),
        "applicationId": if_any(TEXT, "spec.application_id"),
        "placeholder": if_any(FLAG, "spec.placeholder"),
        "taskGroupName": if_any(TEXT, "spec.task_group"),
        "allocationLog": if_any(
            listed(
                Document(
                    "",
                    Failure,
                    {
                        "message": always(TEXT, "message"),
                        "lastOccurrence": always(TIME_NS, "last_ns"),
                        "count": always(COUNT, "times"),
                    },
                )
            ),
            "log",
        ),
        "triggeredPreemption": if_any(FLAG, "triggered_preemption"),
        "originator": if_any(FLAG, "spec.originator"),
        "schedulingAttempted": if_any(FLAG, "attempted"),
        "triggeredScaleUp": if_any(FLAG, "scale_up"),
    },
    left_out=("reserved_node",),
)

ALLOCATION: Final = Document(
    "Allocation",
    AllocationView,
    {
        "allocationKey": always(TEXT, "spec.key"),
        "allocationTags": if_any(TAGS, "tags"),
        "requestTime": if_any(TIME_NS, made(_requested_ns, "placeholder_ns", "created_ns")),
        "allocationTime": if_any(TIME_NS, "bound_ns"),
        "allocationDelay": if_any(
            Kind({"type": "integer", "description": "Nanoseconds."}),
            made(_delay_ns, "placeholder_ns", "created_ns", "bound_ns"),
        ),
        "resource": if_any(AMOUNTS, "resources"),
        "priority": always(PRIORITY, "spec.priority", promised=False),
        "nodeId": if_any(TEXT, "node_id"),
        "applicationId": always(TEXT, "spec.application_id", promised=False),
        "placeholder": if_any(FLAG, "spec.placeholder"),
        "placeholderUsed": if_any(TRUTH, "placeholder_ns"),
        "taskGroupName": if_any(TEXT, "spec.task_group"),
        "preempted": if_any(FLAG, "preempted"),
        "originator": if_any(FLAG, "spec.originator"),
    },
    left_out=("rendered",),
)


def encode_allocations(views: Sequence[AllocationView]) -> list[bytes]:
    """Returns the JSON of each allocation, which is kept until the allocation changes."""
    return [view.rendered or _encode_allocation(view) for view in views]


def join_allocations(views: Sequence[AllocationView]) -> bytes:
    """Returns the JSON of a list of allocations without its brackets."""
    return b",".join(encode_allocations(views))


def _encode_allocation(view: AllocationView) -> bytes:
    view.rendered = encoded = copy_compact(orjson.dumps(ALLOCATION.write(view)))
    return encoded


def _embed_allocations(views: Sequence[AllocationView]) -> orjson.Fragment:
    return orjson.Fragment(b"[" + join_allocations(views) + b"]")


ALLOCATIONS: Final = Kind(listed(ALLOCATION).schema, _embed_allocations)
"""Lists of allocations, each of which is encoded once."""


def _write_spent(spent: Spent) -> dict[str, dict[str, int]]:
    return {instance_type: write_amounts(spent[instance_type]) for instance_type in sorted(spent)}


_SPENT: Final = Kind({"type": "object", "additionalProperties": AMOUNTS.schema}, _write_spent)

RESOURCE_HISTORY: Final = Document(
    "ResourceHistory",
    SpentView,
    {
        "resourceUsage": if_any(_SPENT, "real"),
        "preemptedResource": if_any(_SPENT, "preempted"),
        "placeholderResource": if_any(_SPENT, "placeholder"),
    },
    description="By type of instance: amounts times seconds.",
)


def _started_ms(started_ns: int) -> int:
    return started_ns // 10**6 if started_ns else NEVER_STARTED_MS


def _last_change_ns(states: Sequence[StateEntry]) -> int:
    return states[-1].at_ns if states else 0


APPLICATION: Final = Document(
    "Application",
    ApplicationView,
    {
        "applicationID": always(TEXT, "application_id"),
        "partition": always(TEXT, "partition"),
        "queueName": always(TEXT, "queue"),
        "applicationState": always(one_of(*AppState), "state"),
        # This time is in milliseconds, whereas all other times are in nanoseconds.
        "startTime": always(
            Kind({"type": "integer", "description": "Milliseconds since the Unix epoch; negative: never ran."}),
            made(_started_ms, "started_ns"),
        ),
        "resourceHistory": always(nested(RESOURCE_HISTORY), "spent"),
        "usedResource": if_any(AMOUNTS, "used"),
        "maxUsedResource": if_any(AMOUNTS, "max_used"),
        "pendingResource": if_any(AMOUNTS, "pending"),
        "submissionTime": if_any(TIME_NS, "submitted_ns"),
        "finishedTime": if_any(TIME_NS, "finished_ns"),
        "user": if_any(TEXT, "user"),
        "groups": if_any(TEXTS, "groups"),
        "rejectedMessage": if_any(TEXT, "rejected"),
        "stateLog": if_any(
            listed(
                Document(
                    "",
                    StateEntry,
                    {"time": always(TIME_NS, "at_ns"), "applicationState": always(TEXT, "state")},
                )
            ),
            "states",
        ),
        # The web page of YuniKorn reads this field, but YuniKorn never sends it.
        "lastStateChangeTime": if_any(TIME_NS, made(_last_change_ns, "states")),
        "placeholderData": if_any(
            listed(
                Document(
                    "",
                    PlaceholderView,
                    {
                        "taskGroupName": if_any(TEXT, "task_group"),
                        "count": if_any(COUNT, "made"),
                        "minResource": if_any(AMOUNTS, "resources"),
                        "replaced": if_any(COUNT, "replaced"),
                        "timedout": if_any(COUNT, "timed_out"),
                    },
                )
            ),
            "placeholders",
        ),
        "belowMinimum": if_any(
            listed(
                Document(
                    "",
                    ShortfallView,
                    {
                        "taskGroupName": always(TEXT, "task_group"),
                        "running": always(COUNT, "running"),
                        "needed": always(COUNT, "needed"),
                    },
                )
            ),
            "shortfalls",
        ),
        "hasReserved": if_any(TRUTH, "reservations"),
        "reservations": if_any(TEXTS, "reservations"),
        "maxRequestPriority": if_any(WHOLE, "priority"),
        "backoffDeadline": if_any(DATE_TIME, "backoff_until_ns"),
        "requests": if_any(listed(ASK), "asks"),
        "allocations": if_any(ALLOCATIONS, "allocations"),
    },
    left_out=("placeholder", "tags"),
)

write_application: Final = APPLICATION.write
write_application_summary: Final = APPLICATION.writing_without("requests", "allocations")


def encode_head(view: ApplicationView) -> bytes:
    """Returns the JSON of one application without its asks and allocations."""
    return orjson.dumps(write_application_summary(view))


def encode_parts(parts: ApplicationParts) -> Iterator[bytes]:
    """Yields the JSON of one application in pieces, which together are what :data:`APPLICATION` writes."""
    yield parts.head[:-1]
    opening = b',"requests":['
    for asks in parts.asks:
        yield opening + b",".join([orjson.dumps(ASK.write(view)) for view in asks])
        opening = b","
    end = b"]" if opening == b"," else b""
    opening = end + b',"allocations":['
    for allocated in parts.allocations:
        yield opening + join_allocations(allocated)
        opening, end = b",", b"]"
    yield end + b"}"
