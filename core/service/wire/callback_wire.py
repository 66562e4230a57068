"""Translates between messages of ``kornel.v1.CallbackService`` and the engine's values.

At full speed there is a question and an answer for every allocation, so questions are written field by field, without
touching absent fields. Everything else goes through tables.

Rules: protocol.md 2.6, 13, 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    PlacementKey,
    PredicatesAnswer,
    PreemptionNoticeAnswer,
    PreemptionPredicatesAnswer,
)
from kornel.core.domain.effects import (
    EventRecorded,
    NoticeEffect,
    PlacementVoid,
    PredicatesAsked,
    PreemptionNotice,
    PreemptionNoticeWithdrawn,
    PreemptionPredicatesAsked,
    SchedulingFailed,
)
from kornel.core.domain.history.events import shorten_event_text
from kornel.core.domain.names import full_partition_name
from kornel.core.domain.resources import Resources, clamp_int64
from kornel.core.service.wire.scheduler_wire import PIECE
from kornel.core.telling.encoding.kornel_v1 import ENCODERS
from kornel.core.telling.encoding.records import made
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb

MILLISECOND_NS: Final = 1_000_000
SHORTEST_TIMEOUT_MS: Final = 10
LONGEST_TIMEOUT_MS: Final = 60_000


def _resource_fields(amounts: Resources | None) -> dict[str, Any] | None:
    """Returns the arguments from which a ``si.v1.Resource`` is made. Making it from them takes half the time of making
    its inner messages one by one."""
    if amounts is None:
        return None
    return {"resources": {name: {"value": clamp_int64(amount)} for name, amount in amounts.items()}}


def _to_milliseconds(ns: int) -> int:
    return ns // MILLISECOND_NS


event_record: Final = ENCODERS.add(
    EventRecorded,
    si.EventRecord,
    {
        "objectID": "object_id",
        "referenceID": "reference_id",
        "eventChangeType": "change",
        "eventChangeDetail": "detail",
        "timestampNano": "at_ns",
        "resource": made(_resource_fields, "resources"),
    },
    unset=("groupID", "reason"),
)

_encode_failure: Final = ENCODERS.add(
    SchedulingFailed,
    si.UpdateContainerSchedulingStateRequest,
    {"applicationID": "application_id", "allocationKey": "key"},
    given=("state",),
)

_encode_notice: Final = ENCODERS.add(
    PreemptionNotice,
    pb.PreemptionNotice,
    {
        "notice_id": "notice",
        "strict_allocation_keys": "strict",
        "at_risk_allocation_keys": "at_risk",
        "negotiable_need": made(_resource_fields, "need"),
        "deadline_ms": made(_to_milliseconds, "deadline_ns"),
    },
)

_encode_withdrawal: Final = ENCODERS.add(
    PreemptionNoticeWithdrawn, pb.PreemptionNoticeWithdrawal, {"notice_id": "notice", "allocation_keys": "keys"}
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The questions and messages that one stream has subscribed to. ``attachment``: the part that concerns the
    engine."""

    attachment: AttachCallbacks
    state_dump: bool = False


@dataclass(slots=True)
class Outgoing:
    """The content of one response."""

    attached: bool = False
    predicates: list[PredicatesAsked] = field(default_factory=list)
    preemption_predicates: list[PreemptionPredicatesAsked] = field(default_factory=list)
    scheduling_states: list[SchedulingFailed] = field(default_factory=list)
    notices: list[NoticeEffect] = field(default_factory=list)
    events: list[EventRecorded] = field(default_factory=list)
    not_placed: list[PlacementVoid] = field(default_factory=list)
    state_dump: int | None = None
    """The number of the question for a state dump; ``None``: there is none."""


def decode_subscription(message: pb.Subscription, default_timeout_ms: int) -> Subscription:
    """Returns the subscription in *message*. A timeout out of bounds is replaced by the nearest one within."""
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
            awaits_placements=message.awaits_placements,
        ),
        message.state_dump,
    )


def answer_commands(request: pb.AttachRequest, rm_id: str, ahead_ns: int = 0) -> Iterator[AnswerCallbacks]:
    """Yields the answers in *request* as one command, or as several if one would stall the engine.

    *ahead_ns*: how far the wall clock, by which checkpoints are dated, is ahead of the core's time.
    """
    predicates = [
        PredicatesAnswer(
            answer.question_id,
            tuple([(refusal.node_id, shorten_event_text(refusal.reason)) for refusal in refusals]) if refusals else (),
            answer.depends_on_placements,
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
            tuple([(saved.allocation_key, saved.time_ns - ahead_ns) for saved in answer.checkpoints]),
        )
        for answer in request.preemption_notices
    ]
    acknowledged = [
        PlacementKey(full_partition_name(rm_id, placed.partition), placed.allocation_key, placed.node_id)
        for placed in request.acknowledged
    ]
    # Acknowledgements state what is in place after the answers, so they go into the command with the last answer.
    first = max(0, (max(len(predicates), len(preemption), len(notices)) - 1) // PIECE * PIECE)
    for start in range(0, max(len(predicates), len(preemption), len(notices), first + len(acknowledged)), PIECE):
        since = max(0, start - first)
        yield AnswerCallbacks(
            rm_id,
            tuple(predicates[start : start + PIECE]),
            tuple(preemption[start : start + PIECE]),
            tuple(notices[start : start + PIECE]),
            tuple(acknowledged[since : since + PIECE]) if start >= first else (),
        )


def encode(outgoing: Outgoing, attachment: AttachCallbacks) -> bytes:
    """Returns *outgoing* as one ``AttachResponse``."""
    response = pb.AttachResponse()
    if outgoing.attached:
        response.attached.timeout_ms = attachment.timeout_ns // MILLISECOND_NS
        response.attached.awaits_placements = attachment.awaits_placements
    questions = response.predicates
    for question, partition, application_id, key, node_ids, allocate, dependent, after in outgoing.predicates:
        asked = questions.add(
            question_id=question,
            partition=partition,
            application_id=application_id,
            allocation_key=key,
            node_ids=node_ids,
            allocate=allocate,
            dependent=dependent,
        )
        if after is not None:
            awaited = asked.after
            awaited.partition, awaited.allocation_key, awaited.node_id = after
    for about in outgoing.preemption_predicates:
        response.preemption_predicates.add(
            question_id=about.question,
            partition=about.partition,
            application_id=about.application_id,
            arguments=si.PreemptionPredicatesArgs(
                allocationKey=about.key,
                nodeID=about.node_id,
                preemptAllocationKeys=about.victims,
                startIndex=about.start_index,
            ),
        )
    for failed in outgoing.scheduling_states:
        state = si.UpdateContainerSchedulingStateRequest.FAILED
        response.scheduling_states.append(_encode_failure(failed, state=state))
    response.events.extend(map(event_record, outgoing.events))
    for notice in outgoing.notices:
        if isinstance(notice, PreemptionNotice):
            response.preemption_notices.append(_encode_notice(notice))
        else:
            response.preemption_withdrawals.append(_encode_withdrawal(notice))
    for void in outgoing.not_placed:
        response.not_placed.add(partition=void.partition, allocation_key=void.key)
    if outgoing.state_dump is not None:
        response.state_dump.question_id = outgoing.state_dump
    return response.SerializeToString()
