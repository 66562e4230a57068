"""The answers of the core as lines of a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kornel.core.domain.application_states import AppEvent
from kornel.core.domain.commands import TerminationType
from kornel.core.domain.devices import GIVEN_TAG
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationRemoved,
    ApplicationUpdated,
    AskReleased,
    Effect,
    EventRecorded,
    NodeAccepted,
    NodeRejected,
    PlacementVoid,
    PredicatesAsked,
    PreemptionDecided,
    PreemptionNotice,
    PreemptionNoticeWithdrawn,
    PreemptionPredicatesAsked,
    Released,
    SchedulingFailed,
)
from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.domain.names import full_partition_name
from kornel.core.domain.reasons import Outcome
from tests.scenarios.language import RM, fold, shown

_DEFAULT_EVENTS: Final = frozenset(event.value for event in AppEvent)


def describe(effects: Sequence[Effect]) -> list[str]:
    """Effects, one line each, but for those that no shim hears of."""
    preemptors = {
        (victim.application_id, victim.key): effect.key or effect.queue
        for effect in effects
        if isinstance(effect, PreemptionDecided)
        for victim in effect.victims
    }
    return [_describe(effect, preemptors) for effect in effects if not isinstance(effect, ApplicationRemoved)]


def _describe(effect: Effect, preemptors: dict[tuple[str, str], str]) -> str:
    match effect:
        case NodeAccepted(node_id):
            return f"accept node {node_id}"
        case NodeRejected(node_id, reason):
            return f"reject node {node_id} {_token(reason)}".replace("  ", " - ")
        case ApplicationAccepted(application_id):
            return f"accept app {application_id}"
        case ApplicationRejected(application_id, reason):
            return f"reject app {application_id} {_token(reason)}".replace("  ", " - ")
        case ApplicationUpdated(application_id, state, _, message):
            why = "" if message in _DEFAULT_EVENTS else f" {message}"
            return f"app {application_id} {state}{why}"
        case Allocated(spec, node_id, _, tags):
            which = f" with {dict(tags)[GIVEN_TAG]}" if tags else ""
            return f"allocate {_instance(spec.key, spec.instance)} on {node_id}{which}"
        case Released(partition, application_id, key, termination, _, instance):
            preemptor = preemptors.get((application_id, key))
            by = f" for={preemptor}" if preemptor and termination == TerminationType.PREEMPTED_BY_SCHEDULER else ""
            where = "" if partition == full_partition_name(RM, "") else f" partition={partition}"
            return f"release {_instance(key, instance)} {TerminationType(termination).name}{by}{where}"
        case AskReleased(_, _, key, termination, _):
            return f"release-ask {key} {TerminationType(termination).name}"
        case AllocationRejected(key, _, reason, legacy):
            return f"reject {key or '-'} {_token(reason)}{' legacy' if legacy else ''}"
        case PredicatesAsked(key=key, node_ids=node_ids, allocate=allocate, dependent=dependent, after=after):
            how = ("" if allocate else " later") + (" in turn" if dependent else "")
            awaited = "" if after is None else f" after {after.key} on {after.node_id}"
            return f"may {key} run on {','.join(node_ids)}{how}{awaited}"
        case PlacementVoid(key=key):
            return f"not placed {key}"
        case PreemptionPredicatesAsked(key=key, node_id=node_id, victims=victims, start_index=start):
            return f"may {key} run on {node_id} without {','.join(victims)} start={start}"
        case SchedulingFailed(key=key):
            return f"scale up for {key}"
        case EventRecorded():
            return _event(effect)
        case PreemptionDecided(kind="by-hand", queue=queue, outcome=outcome, detail=detail):
            return f"decide {queue} {outcome}: {detail}"
        case PreemptionDecided(kind="quota", queue=queue, outcome=Outcome.VICTIM_STUCK, victims=victims):
            return f"stuck {queue} {','.join(victim.key for victim in victims)}"
        case PreemptionDecided(kind="quota", queue=queue, outcome=outcome, detail=detail):
            return f"enforce {queue} {outcome}: {detail}"
        case PreemptionDecided(kind="monitor", queue=queue, outcome=outcome, victims=victims):
            return f"monitor {queue} {outcome} {_keys(victim.key for victim in victims)}"
        case PreemptionDecided(
            kind="governor", application_id=application, queue=queue, outcome=outcome, detail=detail
        ):
            return f"pause {queue or application or 'all'} {outcome}: {detail}"
        case PreemptionDecided(outcome=Outcome.SHADOW | Outcome.VICTIM_STUCK as outcome, key=key, victims=victims):
            return f"refuse {key} {outcome} {','.join(victim.key for victim in victims)}"
        case PreemptionDecided(outcome=Outcome.TRIGGERED, key=key, node_id=node_id, detail=detail):
            said, _, gangs = detail.partition("; weighed: ")[0].partition("; gang ")
            _, _, domains = said.partition(" places in ")
            where = f" in {domains}" if domains else ""
            return f"reserve {node_id} for={key}{where}" + (f"; gang {gangs}" if gangs else "")
        case PreemptionNotice(application_id=application, strict=strict, at_risk=at_risk, need=need, deadline_ns=at_ns):
            asked = "" if need is None else f" need={shown(need)}"
            what = f"{_keys(at_risk)}{asked}" if at_risk else f"strictly {_keys(strict)}"
            return f"notice to {application} until={at_ns / 10**9:g}s {what}"
        case PreemptionNoticeWithdrawn(application_id=application, keys=keys):
            return f"spare {_keys(keys)} of {application}"
        case PreemptionDecided(key=key, outcome=outcome):
            return f"refuse {key} {outcome}"
    raise AssertionError(f"nobody knows how to show {effect!r}")


def _keys(keys: Iterable[str]) -> str:
    """Keys with those behind each other as ranges: ``a1..4,b2``."""
    return ",".join(fold(list(keys))).replace("{", "").replace("}", "")


def _event(event: EventRecorded) -> str:
    what = f"{EventType(event.type).name} {event.object_id} {EventChange(event.change).name}"
    parts = [f"event {what} {EventDetail(event.detail).name}"]
    if event.reference_id:
        parts.append(f"ref={event.reference_id}")
    if event.resources is not None:
        parts.append(shown(event.resources))
    if event.message:
        parts.append(f'"{event.message}"')
    return " ".join(parts)


def _instance(key: str, instance: int) -> str:
    return f"{key}#{instance}" if instance else key


def _token(reason: str) -> str:
    return reason.split(":", 1)[0]
