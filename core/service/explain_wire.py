"""Explanations and forecasts between plain values and ``kornel.v1``."""

from __future__ import annotations

from collections.abc import Iterable

from kornel.v1 import explain_pb2 as pb

from core.domain.effects import VictimRecord
from core.domain.resources import Resources, clamp
from core.service.status_codes import InvalidRequest
from core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    Blocker,
    LostWork,
    PreemptedWork,
    PreemptionOutlook,
    Report,
)
from core.telling.what_if.supposition import (
    Forecast,
    SupposeAsk,
    SupposeNodeLost,
    SupposePriority,
    SupposeQuota,
    Supposition,
)


def encode_report(found: Report) -> pb.ExplainResponse:
    if isinstance(found, AskReport):
        return pb.ExplainResponse(ask=_ask(found))
    if isinstance(found, ApplicationReport):
        return pb.ExplainResponse(application=_application(found))
    assert isinstance(found, LostWork)
    return pb.ExplainResponse(lost=_preempted(found.preempted))


def decode_supposition(request: pb.WhatIfRequest) -> Supposition:
    """What *request* supposes. Raises :class:`InvalidRequest` if it supposes nothing."""
    match request.WhichOneof("supposition"):
        case "ask":
            ask = request.ask
            return SupposeAsk(
                Resources(dict(ask.resources)),
                ask.queue,
                ask.application_id,
                ask.count or 1,
                ask.priority,
                ask.required_node,
                not ask.never_preempts,
                ask.user,
                tuple(ask.groups),
            )
        case "node_lost":
            return SupposeNodeLost(request.node_lost.node_id)
        case "quota":
            quota = request.quota
            maxima: dict[str, int | None] = {**dict(quota.max), **dict.fromkeys(quota.unlimited)}
            return SupposeQuota(quota.queue, maxima, dict(quota.guaranteed))
        case "priority":
            return SupposePriority(request.priority.key, request.priority.priority)
        case _:
            raise InvalidRequest("nothing is supposed: set ask, node_lost, quota or priority")


def encode_forecast(found: Forecast) -> pb.WhatIfResponse:
    return pb.WhatIfResponse(
        placed=[pb.ForecastPlacement(**placed._asdict()) for placed in found.placed],
        preemptions=[
            pb.ForecastPreemption(
                key=p.key,
                application_id=p.application_id,
                queue=p.queue,
                node_id=p.node_id,
                not_before_ns=p.not_before_ns,
                kind=p.kind,
                victims=_victims(p.victims),
            )
            for p in found.preempts
        ],
        waiting=[
            pb.ForecastWait(
                key=w.key,
                application_id=w.application_id,
                queue=w.queue,
                ask_count=w.asks,
                reason=w.reason,
                preemption=w.preemption,
            )
            for w in found.waits
        ],
        enforcements=[
            pb.ForecastEnforcement(
                queue=e.queue,
                excess=_amounts(e.excess),
                not_before_ns=e.not_before_ns,
                victims=_victims(e.victims),
                unmet=_amounts(e.unmet),
            )
            for e in found.enforced
        ],
        displaced=found.displaced,
        position=found.position,
        complete=found.complete,
        notes=found.notes,
    )


def _ask(found: AskReport) -> pb.AskReport:
    return pb.AskReport(
        key=found.key,
        application_id=found.application_id,
        queue=found.queue,
        state=found.state,
        node_id=found.node_id,
        priority=found.priority,
        resources=_amounts(found.resources),
        created_ns=found.created_ns,
        blockers=[_blocker(blocker) for blocker in found.blockers],
        fitting_node_count=found.fitting_nodes,
        position=pb.AskPosition(**found.position._asdict()) if found.position is not None else None,
        preemption=_outlook(found.preemption) if found.preemption is not None else None,
        preempted=_preempted(found.preempted) if found.preempted is not None else None,
        failures=[
            pb.BlockedBefore(message=text, count=times, last_ns=at_ns) for text, times, at_ns in found.failures
        ],
    )  # fmt: skip


def _blocker(blocker: Blocker) -> pb.Blocker:
    return pb.Blocker(
        kind=blocker.kind,
        level=blocker.level,
        name=blocker.name,
        detail=blocker.detail,
        shortages=[
            pb.Shortage(type=s.type, limit=clamp(s.limit), used=clamp(s.used), asked=s.asked, short=clamp(s.short))
            for s in blocker.shortages
        ],
        node_count=blocker.nodes,
        distance=blocker.distance,
        permanent=blocker.permanent,
        until_ns=blocker.until_ns,
    )


def _outlook(found: PreemptionOutlook) -> pb.PreemptionOutlook:
    return pb.PreemptionOutlook(
        verdict=found.verdict,
        blocked_by=found.blocked_by,
        outcome=found.outcome,
        detail=found.detail,
        not_before_ns=found.not_before_ns,
        node_id=found.node_id,
        victims=_victims(found.victims),
        protections=[
            pb.Protection(law=p.law, queue_count=p.queues, allocation_count=p.allocations, example=p.example)
            for p in found.protected
        ],
    )


def _preempted(found: PreemptedWork) -> pb.PreemptedWork:
    return pb.PreemptedWork(
        victim=_victim(found.victim),
        at_ns=found.at_ns,
        kind=found.kind,
        taken_by=found.taken_by,
        taken_by_application_id=found.taken_by_application,
        taken_by_queue=found.taken_by_queue,
        law=found.law,
        reason=found.reason,
        alternatives=found.alternatives,
    )


def _application(found: ApplicationReport) -> pb.ApplicationReport:
    return pb.ApplicationReport(
        application_id=found.application_id,
        queue=found.queue,
        state=found.state,
        user=found.user,
        pending_ask_count=found.pending,
        allocation_count=found.allocations,
        used=_amounts(found.used),
        group_count=found.kinds,
        groups=[pb.EqualAsks(ask_count=group.size, first=_ask(group.first)) for group in found.asks],
        preempted=[_preempted(work) for work in found.preempted],
    )


def _victims(victims: Iterable[VictimRecord]) -> list[pb.ForecastVictim]:
    return [_victim(victim) for victim in victims]


def _victim(victim: VictimRecord) -> pb.ForecastVictim:
    return pb.ForecastVictim(
        key=victim.key,
        application_id=victim.application_id,
        queue=victim.queue,
        node_id=victim.node_id,
        resources=_amounts(victim.resources),
        adjusted_priority=victim.adjusted_priority,
    )


def _amounts(resources: Resources) -> dict[str, int]:
    return {name: clamp(amount) for name, amount in resources.items()}
