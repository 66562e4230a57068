"""Applications (rest.md 4.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from core.rest.documents.values import amounts, present, rfc3339
from core.rest.documents.work import allocations, ask, joined
from core.telling.applications.application_views import (
    NOTHING_SPENT,
    ApplicationParts,
    ApplicationView,
    PlaceholderView,
    Spent,
    SpentView,
)

NEVER_STARTED_MS: Final = -62135596800000
"""What stands for the start of an application that never ran: Go's zero time."""


def application(view: ApplicationView, *, summary: bool = False) -> dict[str, Any]:
    """One application. *summary*: without its asks and allocations.

    ``startTime`` is in milliseconds, all other times in nanoseconds. ``lastStateChangeTime`` is what the web page of
    YuniKorn looks for and upstream never sends.
    """
    return {
        "applicationID": view.application_id,
        "partition": view.partition,
        "queueName": view.queue,
        "applicationState": view.state,
        "startTime": view.started_ns // 10**6 if view.started_ns else NEVER_STARTED_MS,
        "resourceHistory": _history(view.spent),
        **present(
            {
                "usedResource": amounts(view.used),
                "maxUsedResource": amounts(view.max_used),
                "pendingResource": amounts(view.pending),
                "submissionTime": view.submitted_ns,
                "finishedTime": view.finished_ns,
                "user": view.user,
                "groups": list(view.groups),
                "rejectedMessage": view.rejected,
                "stateLog": [{"time": entry.at_ns, "applicationState": entry.state} for entry in view.states],
                "lastStateChangeTime": view.states[-1].at_ns if view.states else 0,
                "placeholderData": [_placeholder(data) for data in view.placeholders],
                "hasReserved": bool(view.reservations),
                "reservations": list(view.reservations),
                "maxRequestPriority": view.priority,
                "backoffDeadline": rfc3339(view.backoff_until_ns) if view.backoff_until_ns else "",
                "requests": [] if summary else [ask(pending) for pending in view.asks],
                "allocations": None if summary else allocations(view.allocations),
            }
        ),
    }


def head(view: ApplicationView) -> bytes:
    """One application without its asks and allocations, as JSON."""
    return orjson.dumps(application(view, summary=True))


def told(parts: ApplicationParts) -> Iterator[bytes]:
    """One application as :func:`application` has it, as pieces of JSON."""
    yield parts.head[:-1]
    opening = b',"requests":['
    for asks in parts.asks:
        yield opening + b",".join([orjson.dumps(ask(view)) for view in asks])
        opening = b","
    end = b"]" if opening == b"," else b""
    opening = end + b',"allocations":['
    for allocated in parts.allocations:
        yield opening + joined(allocated)
        opening, end = b",", b"]"
    yield end + b"}"


def _placeholder(data: PlaceholderView) -> dict[str, Any]:
    return present(
        {
            "taskGroupName": data.task_group,
            "count": data.made,
            "minResource": amounts(data.resources),
            "replaced": data.replaced,
            "timedout": data.timed_out,
        }
    )


def _history(spent: SpentView) -> dict[str, Any]:
    if spent is NOTHING_SPENT:
        return {}
    return present(
        {
            "resourceUsage": _spent(spent.real),
            "preemptedResource": _spent(spent.preempted),
            "placeholderResource": _spent(spent.placeholder),
        }
    )


def _spent(spent: Spent) -> dict[str, dict[str, int]]:
    return {instance_type: amounts(spent[instance_type]) for instance_type in sorted(spent)}
