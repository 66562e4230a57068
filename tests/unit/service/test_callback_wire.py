"""Callback messages to values and back."""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    PredicatesAnswer,
    PreemptionNoticeAnswer,
    PreemptionPredicatesAnswer,
)
from kornel.core.domain.effects import EventRecorded, PredicatesAsked, PreemptionPredicatesAsked, SchedulingFailed
from kornel.core.domain.resources import Resources
from kornel.core.service.wire import callback_wire
from kornel.core.service.wire.callback_wire import Outgoing, answer_commands, decode_subscription, encode
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb

ATTACHMENT = AttachCallbacks("rm-1", timeout_ns=250_000_000)


def decoded(outgoing: Outgoing) -> pb.AttachResponse:
    return pb.AttachResponse.FromString(encode(outgoing, ATTACHMENT))


@pytest.mark.parametrize(
    ("wanted_ms", "granted_ms"), [(0, 1_000), (250, 250), (1, 10), (-7, 10), (10**15, 60_000), (-(2**63), 10)]
)
def test_a_timeout_is_kept_within_reason(wanted_ms: int, granted_ms: int) -> None:
    """0 means the core's default; what makes no sense is replaced by the nearest value that does."""
    found = decode_subscription(pb.Subscription(rm_id="rm-1", timeout_ms=wanted_ms), 1_000)
    assert found.attachment.timeout_ns == granted_ms * 1_000_000


def test_a_subscription() -> None:
    """Each kind is subscribed to on its own."""
    for kind in ("predicates", "preemption_predicates", "scheduling_states", "events", "preemption_notices"):
        found = decode_subscription(pb.Subscription(rm_id="rm-1", **{kind: True}), 1_000)
        assert found.attachment == AttachCallbacks("rm-1", **{kind: True})
        assert not found.state_dump
    assert decode_subscription(pb.Subscription(state_dump=True), 1_000).state_dump


def test_questions_of_both_kinds() -> None:
    """Every field of a question reaches the shim."""
    response = decoded(
        Outgoing(
            predicates=[PredicatesAsked(7, "[rm-1]default", "app", "k", ("n1", "n2"), allocate=True)],
            preemption_predicates=[
                PreemptionPredicatesAsked(8, "[rm-1]default", "app", "k", "n1", ("v0", "v1", "v2"), 1)
            ],
        )
    )
    assert response == pb.AttachResponse(
        predicates=[
            pb.PredicatesQuestion(
                question_id=7,
                partition="[rm-1]default",
                application_id="app",
                allocation_key="k",
                node_ids=["n1", "n2"],
                allocate=True,
            )
        ],
        preemption_predicates=[
            pb.PreemptionPredicatesQuestion(
                question_id=8,
                partition="[rm-1]default",
                application_id="app",
                arguments=si.PreemptionPredicatesArgs(
                    allocationKey="k", nodeID="n1", preemptAllocationKeys=["v0", "v1", "v2"], startIndex=1
                ),
            )
        ],
    )


def test_notices() -> None:
    """Scheduling states say FAILED; an event keeps its numbers, also those this proto has no name for."""
    response = decoded(
        Outgoing(
            attached=True,
            scheduling_states=[SchedulingFailed("app", "k", "no node has room")],
            events=[
                EventRecorded(2, "app", "k", 2, 201, 5, Resources({"vcore": 10, "memory": 0}), "said"),
                EventRecorded(9, "n1", "", 0, 999, 6, None, ""),
            ],
            state_dump=3,
        )
    )
    assert response == pb.AttachResponse(
        attached=pb.Attached(timeout_ms=250),
        scheduling_states=[
            si.UpdateContainerSchedulingStateRequest(
                applicationID="app",
                allocationKey="k",
                state=si.UpdateContainerSchedulingStateRequest.FAILED,
                reason="no node has room",
            )
        ],
        events=[
            si.EventRecord(
                type=si.EventRecord.APP,
                objectID="app",
                referenceID="k",
                eventChangeType=si.EventRecord.ADD,
                eventChangeDetail=si.EventRecord.APP_REQUEST,
                timestampNano=5,
                resource=si.Resource(resources={"vcore": si.Quantity(value=10), "memory": si.Quantity()}),
                message="said",
            ),
            si.EventRecord(type=9, objectID="n1", eventChangeDetail=999, timestampNano=6),  # type: ignore[arg-type]
        ],
        state_dump=pb.StateDumpQuestion(question_id=3),
    )


def test_answers_of_one_request_are_one_command() -> None:
    """Refusals keep their order; an index without success says nothing; an absent response is a no."""
    request = pb.AttachRequest(
        predicates=[
            pb.PredicatesAnswer(question_id=1),
            pb.PredicatesAnswer(
                question_id=2,
                refusals=[
                    pb.NodeRefusal(node_id="n2", reason="taint"),
                    pb.NodeRefusal(node_id="n1", reason="x" * 2_000),
                ],
            ),
        ],
        preemption_predicates=[
            pb.PreemptionPredicatesAnswer(
                question_id=3, response=si.PreemptionPredicatesResponse(success=True, index=0)
            ),
            pb.PreemptionPredicatesAnswer(
                question_id=4, response=si.PreemptionPredicatesResponse(success=False, index=5)
            ),
            pb.PreemptionPredicatesAnswer(question_id=5),
        ],
    )
    assert list(answer_commands(request, "rm-1")) == [
        AnswerCallbacks(
            "rm-1",
            (PredicatesAnswer(1), PredicatesAnswer(2, (("n2", "taint"), ("n1", "x" * 1_021 + "...")))),
            (
                PreemptionPredicatesAnswer(3, success=True, last=0),
                PreemptionPredicatesAnswer(4, success=False, last=-1),
                PreemptionPredicatesAnswer(5, success=False, last=-1),
            ),
        )
    ]


def test_checkpoints_are_brought_to_the_cores_time() -> None:
    """The shim dates them by the wall clock, which somebody has set ahead by 5 ns."""
    saved = pb.AllocationCheckpoint(allocation_key="k", time_ns=17)
    request = pb.AttachRequest(preemption_notices=[pb.PreemptionNoticeAnswer(notice_id=1, checkpoints=[saved])])
    (command,) = answer_commands(request, "rm-1", ahead_ns=5)
    assert command.notices == (PreemptionNoticeAnswer(1, False, (), (("k", 12),)),)


def test_no_answers_no_command() -> None:
    """A request that answers nothing costs the engine nothing."""
    assert list(answer_commands(pb.AttachRequest(), "rm-1")) == []


def test_a_huge_request_is_answered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request stalls the engine: past a size its answers come as several commands, all of them, in order."""
    monkeypatch.setattr(callback_wire, "PIECE", 2)
    request = pb.AttachRequest(
        predicates=[pb.PredicatesAnswer(question_id=n) for n in range(5)],
        preemption_predicates=[pb.PreemptionPredicatesAnswer(question_id=10 + n) for n in range(3)],
    )
    commands = list(answer_commands(request, "rm-1"))
    assert [len(command.predicates) for command in commands] == [2, 2, 1]
    assert [answer.question for command in commands for answer in command.predicates] == [0, 1, 2, 3, 4]
    assert [answer.question for command in commands for answer in command.preemption_predicates] == [10, 11, 12]
