"""Between messages of ``kornel.v1.CallbackService`` and the engine's values.

At full speed a question and its answer pass here for every single allocation, so each field is touched once and what
is absent is not looked for.

Rules: protocol.md 2.6, 13, 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kornel.v1 import callback_pb2 as pb
from si.v1 import si_pb2 as si

from core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    PredicatesAnswer,
    PreemptionNoticeAnswer,
    PreemptionPredicatesAnswer,
)
from core.domain.effects import (
    EventRecorded,
    NoticeEffect,
    PredicatesAsked,
    PreemptionNotice,
    PreemptionPredicatesAsked,
    SchedulingFailed,
)
from core.domain.events import shortened
from core.domain.resources import clamp
from core.service.wire import PIECE

MILLISECOND_NS: Final = 1_000_000
SHORTEST_TIMEOUT_MS: Final = 10
LONGEST_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one stream is asked and told. ``attachment``: the engine's part of it."""

    attachment: AttachCallbacks
    state_dump: bool = False


@dataclass(slots=True)
class Outgoing:
    """What goes into one response."""

    attached: bool = False
    predicates: list[PredicatesAsked] = field(default_factory=list)
    preemption_predicates: list[PreemptionPredicatesAsked] = field(default_factory=list)
    scheduling_states: list[SchedulingFailed] = field(default_factory=list)
    notices: list[NoticeEffect] = field(default_factory=list)
    events: list[EventRecorded] = field(default_factory=list)
    state_dump: int | None = None
    """Number of the question; ``None``: not asked."""


def subscription(message: pb.Subscription, default_timeout_ms: int) -> Subscription:
    """What *message* wants. A timeout that makes no sense is replaced by the nearest one that does."""
    timeout_ms = message.timeout_ms or default_timeout_ms
    timeout_ms = min(max(timeout_ms, SHORTEST_TIMEOUT_MS), LONGEST_TIMEOUT_MS)
    return Subscription(
        AttachCallbacks(
            rm_id=message.rm_id,
            predicates=message.predicates,
            preemption_predicates=message.preemption_predicates,
            scheduling_states=message.scheduling_states,
            events=message.events,
            timeout_ns=timeout_ms * MILLISECOND_NS,
            preemption_notices=message.preemption_notices,
        ),
        message.state_dump,
    )


def answer_commands(request: pb.AttachRequest, rm_id: str) -> Iterator[AnswerCallbacks]:
    """The answers of *request* as one command; as several if there are so many that one would stall the engine."""
    predicates = [
        PredicatesAnswer(
            answer.question_id,
            tuple([(refusal.node_id, shortened(refusal.reason)) for refusal in refusals]) if refusals else (),
        )
        for answer in request.predicates
        for refusals in [answer.refusals]
    ]
    preemption = [
        PreemptionPredicatesAnswer(answer.question_id, response.success, response.index if response.success else -1)
        for answer in request.preemption_predicates
        for response in [answer.response]
    ]
    notices = [
        PreemptionNoticeAnswer(
            answer.notice_id,
            answer.accepted,
            tuple(answer.instead_allocation_keys),
            tuple([(saved.allocation_key, saved.time_ns) for saved in answer.checkpoints]),
        )
        for answer in request.preemption_notices
    ]
    for start in range(0, max(len(predicates), len(preemption), len(notices)), PIECE):
        yield AnswerCallbacks(
            rm_id,
            tuple(predicates[start : start + PIECE]),
            tuple(preemption[start : start + PIECE]),
            tuple(notices[start : start + PIECE]),
        )


def encode(outgoing: Outgoing, attachment: AttachCallbacks) -> bytes:
    """*outgoing* as one ``AttachResponse``."""
    response = pb.AttachResponse()
    if outgoing.attached:
        response.attached.timeout_ms = attachment.timeout_ns // MILLISECOND_NS
    questions = response.predicates
    for question, partition, application_id, key, node_ids, allocate in outgoing.predicates:
        questions.add(
            question_id=question,
            partition=partition,
            application_id=application_id,
            allocation_key=key,
            node_ids=node_ids,
            allocate=allocate,
        )
    for asked in outgoing.preemption_predicates:
        response.preemption_predicates.add(
            question_id=asked.question,
            partition=asked.partition,
            application_id=asked.application_id,
            arguments=si.PreemptionPredicatesArgs(
                allocationKey=asked.key,
                nodeID=asked.node_id,
                preemptAllocationKeys=asked.victims,
                startIndex=asked.start_index,
            ),
        )
    for failed in outgoing.scheduling_states:
        response.scheduling_states.add(
            applicationID=failed.application_id,
            allocationKey=failed.key,
            state=si.UpdateContainerSchedulingStateRequest.FAILED,
            reason=failed.reason,
        )
    response.events.extend(_events(outgoing.events))
    for notice in outgoing.notices:
        if isinstance(notice, PreemptionNotice):
            _notice(response, notice)
        else:
            response.preemption_withdrawals.add(
                notice_id=notice.notice,
                partition=notice.partition,
                application_id=notice.application_id,
                allocation_keys=notice.keys,
            )
    if outgoing.state_dump is not None:
        response.state_dump.question_id = outgoing.state_dump
    return response.SerializeToString()


def _notice(response: pb.AttachResponse, notice: PreemptionNotice) -> None:
    told = response.preemption_notices.add(
        notice_id=notice.notice,
        partition=notice.partition,
        application_id=notice.application_id,
        round=notice.round,
        strict_allocation_keys=notice.strict,
        at_risk_allocation_keys=notice.at_risk,
        deadline_ms=notice.deadline_ns // MILLISECOND_NS,
        kind=notice.kind,
        reason=notice.reason,
    )
    if notice.need is not None:
        told.negotiable_need.SetInParent()
        for name, amount in notice.need.items():
            told.negotiable_need.resources[name].value = clamp(amount)


def _events(events: Sequence[EventRecorded]) -> Iterator[si.EventRecord]:
    for event in events:
        yield event_record(event)


def event_record(event: EventRecorded) -> si.EventRecord:
    """*event* as shims and followers get it."""
    record = si.EventRecord(
        type=si.EventRecord.Type.ValueType(event.type),
        objectID=event.object_id,
        referenceID=event.reference_id,
        eventChangeType=si.EventRecord.ChangeType.ValueType(event.change),
        eventChangeDetail=si.EventRecord.ChangeDetail.ValueType(event.detail),
        timestampNano=event.at_ns,
        message=event.message,
    )
    if event.resources is not None:
        record.resource.SetInParent()
        for name, amount in event.resources.items():
            record.resource.resources[name].value = clamp(amount)
    return record
