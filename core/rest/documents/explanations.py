"""Explanations, and decisions to preempt: ours, not YuniKorn's, with the names of ``kornel.v1`` in this style."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.domain.effects import PreemptionDecided, VictimRecord
from core.domain.reasons import Outcome
from core.preemption.registry import allowed_by
from core.rest.documents.values import amounts, clamped, present
from core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    Blocker,
    LostWork,
    PreemptedWork,
    PreemptionOutlook,
    Report,
)


def explanation(found: Report) -> dict[str, Any]:
    """One of ``ask``, ``application`` and ``lost``."""
    if isinstance(found, AskReport):
        return {"ask": _ask(found)}
    if isinstance(found, ApplicationReport):
        return {"application": _application(found)}
    assert isinstance(found, LostWork)
    return {"lost": _preempted(found.preempted)}


def decision(number: int, next_event: int, decided: PreemptionDecided) -> dict[str, Any]:
    """An attempt to preempt. *number*: its place among all decisions; *next_event*: of the event that came next."""
    return {
        "id": number,
        "nextEventID": next_event,
        "time": decided.at_ns,
        "kind": decided.kind,
        "outcome": decided.outcome,
        **present(
            {
                "law": allowed_by(decided.kind) if decided.victims and decided.outcome is not Outcome.WITHDRAWN else "",
                "allocationKey": decided.key,
                "applicationID": decided.application_id,
                "queueName": decided.queue,
                "nodeID": decided.node_id,
                "detail": decided.detail,
                "victims": _victims(decided.victims),
            }
        ),
    }


def _ask(found: AskReport) -> dict[str, Any]:
    return {
        "allocationKey": found.key,
        "applicationID": found.application_id,
        "queueName": found.queue,
        "state": found.state,
        "priority": found.priority,
        "fittingNodes": found.fitting_nodes,
        **present(
            {
                "nodeID": found.node_id,
                "resource": amounts(found.resources),
                "requestTime": found.created_ns,
                "blockers": [_blocker(blocker) for blocker in found.blockers],
                "position": _position(found),
                "preemption": _outlook(found.preemption) if found.preemption is not None else None,
                "preempted": _preempted(found.preempted) if found.preempted is not None else None,
                "failures": [
                    {"message": text, "count": times, "lastOccurrence": at_ns} for text, times, at_ns in found.failures
                ],
            }
        ),
    }


def _position(found: AskReport) -> dict[str, int] | None:
    place = found.position
    if place is None:
        return None
    return {
        "application": place.application,
        "applicationOf": place.application_of,
        "queue": place.leaf,
        "queueOf": place.leaf_of,
        "partition": place.partition,
        "partitionOf": place.partition_of,
    }


def _blocker(blocker: Blocker) -> dict[str, Any]:
    return {
        "kind": blocker.kind,
        "level": blocker.level,
        "name": blocker.name,
        **present(
            {
                "detail": blocker.detail,
                "shortages": [
                    {
                        "type": short.type,
                        "limit": clamped(short.limit),
                        "used": clamped(short.used),
                        "asked": clamped(short.asked),
                        "short": clamped(short.short),
                    }
                    for short in blocker.shortages
                ],
                "nodes": blocker.nodes,
                "permanent": blocker.permanent,
                "until": blocker.until_ns,
            }
        ),
    }


def _outlook(found: PreemptionOutlook) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        **present(
            {
                "blockedBy": found.blocked_by,
                "outcome": found.outcome,
                "detail": found.detail,
                "notBefore": found.not_before_ns,
                "nodeID": found.node_id,
                "victims": _victims(found.victims),
                "protections": [
                    {"law": law, "queues": queues, "allocations": allocations, "example": example}
                    for law, queues, allocations, example in found.protected
                ],
            }
        ),
    }


def _preempted(found: PreemptedWork) -> dict[str, Any]:
    return {
        "victim": _victim(found.victim),
        "time": found.at_ns,
        "kind": found.kind,
        **present(
            {
                "takenBy": found.taken_by,
                "takenByApplicationID": found.taken_by_application,
                "takenByQueue": found.taken_by_queue,
                "law": found.law,
                "reason": found.reason,
                "alternatives": found.alternatives,
            }
        ),
    }


def _application(found: ApplicationReport) -> dict[str, Any]:
    return {
        "applicationID": found.application_id,
        "queueName": found.queue,
        "state": found.state,
        "user": found.user,
        "pendingAsks": found.pending,
        "allocations": found.allocations,
        "groupCount": found.kinds,
        **present(
            {
                "usedResource": amounts(found.used),
                "groups": [{"size": group.size, "first": _ask(group.first)} for group in found.asks],
                "preempted": [_preempted(work) for work in found.preempted],
            }
        ),
    }


def _victims(victims: Iterable[VictimRecord]) -> list[dict[str, Any]]:
    return [_victim(victim) for victim in victims]


def _victim(victim: VictimRecord) -> dict[str, Any]:
    return {
        "allocationKey": victim.key,
        "applicationID": victim.application_id,
        "queueName": victim.queue,
        "nodeID": victim.node_id,
        "priority": victim.adjusted_priority,
        **present({"resource": amounts(victim.resources)}),
    }
