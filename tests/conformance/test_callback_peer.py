"""The kit's end of the callback service, against a core that only asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.conformance.callback_peer import Answers, CallbackPeer
from kornel.conformance.outcome import Mismatch, Skipped
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2, callback_pb2_grpc
from tests.patience import PATIENCE_S


class _AskingCore(callback_pb2_grpc.CallbackServiceServicer):
    """Asks everything in one message, and keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[callback_pb2.AttachRequest] = []

    async def Attach(
        self, request_iterator: AsyncIterator[callback_pb2.AttachRequest], context: Any
    ) -> AsyncIterator[callback_pb2.AttachResponse]:
        first = await anext(request_iterator)
        self.heard.append(first)
        if first.subscription.rm_id == "nobody":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not registered")
        yield callback_pb2.AttachResponse(attached=callback_pb2.Attached(timeout_ms=1000))
        plan = si.PreemptionPredicatesArgs(allocationKey="k", preemptAllocationKeys=["a", "b"], startIndex=1)
        yield callback_pb2.AttachResponse(
            predicates=[
                callback_pb2.PredicatesQuestion(question_id=1, allocation_key="k", node_ids=["n1", "n2"]),
                callback_pb2.PredicatesQuestion(question_id=2, allocation_key="silent", node_ids=["n1"]),
            ],
            preemption_predicates=[callback_pb2.PreemptionPredicatesQuestion(question_id=3, arguments=plan)],
            state_dump=callback_pb2.StateDumpQuestion(question_id=4),
            events=[si.EventRecord(objectID="k")],
        )
        async for request in request_iterator:
            self.heard.append(request)
            yield callback_pb2.AttachResponse(
                scheduling_states=[si.UpdateContainerSchedulingStateRequest(allocationKey="k")]
            )


@pytest.fixture
async def channel() -> AsyncIterator[tuple[grpc.aio.Channel, _AskingCore]]:
    """A channel to such a core."""
    core = _AskingCore()
    server = grpc.aio.server()
    callback_pb2_grpc.add_CallbackServiceServicer_to_server(core, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened, core
    await server.stop(None)


async def test_answers_go_with_their_questions(channel: tuple[grpc.aio.Channel, _AskingCore]) -> None:
    """What the case says is answered by ID, what it withholds is not, and what came is kept."""
    opened, core = channel
    answers = Answers(
        predicates=lambda question: None if question.allocation_key == "silent" else {"n1": "no"},
        preemption_predicates=lambda question: question.arguments.startIndex,
        state_dump="{}",
    )
    peer = CallbackPeer(callback_pb2_grpc.CallbackServiceStub(opened).Attach(), answers, deadline_s=PATIENCE_S)
    await peer.subscribe_rm("rm")
    await peer.wait_until(lambda: peer.states, "the core to have been answered")
    subscription, answer = core.heard
    assert subscription.subscription == callback_pb2.Subscription(
        rm_id="rm", predicates=True, preemption_predicates=True, state_dump=True
    )
    assert [(each.question_id, [r.node_id for r in each.refusals]) for each in answer.predicates] == [(1, ["n1"])]
    [planned] = answer.preemption_predicates
    assert (planned.question_id, planned.response.success, planned.response.index) == (3, True, 1)
    assert (answer.state_dump.question_id, answer.state_dump.json) == (4, "{}")
    assert [question.question_id for question in peer.questions] == [1, 2]
    assert [event.objectID for event in peer.events] == ["k"]
    await peer.close()


async def test_what_does_not_come_is_said(channel: tuple[grpc.aio.Channel, _AskingCore]) -> None:
    """A hope that is not fulfilled, a refused subscription, and a core without the service."""
    opened, _ = channel
    stub = callback_pb2_grpc.CallbackServiceStub(opened)
    peer = CallbackPeer(stub.Attach(), Answers(), deadline_s=PATIENCE_S)
    await peer.subscribe_rm("rm")
    peer._deadline_s = 0.2
    with pytest.raises(Mismatch, match="expected a state, but that did not come"):
        await peer.wait_until(lambda: peer.states, "a state")
    await peer.close()
    refused = CallbackPeer(stub.Attach(), Answers(), deadline_s=PATIENCE_S)
    with pytest.raises(Mismatch, match="refused: FAILED_PRECONDITION not registered"):
        await refused.subscribe_rm("nobody")
    await refused.close()
    elsewhere = opened.stream_stream(
        "/kornel.v1.Nothing/Attach",
        request_serializer=callback_pb2.AttachRequest.SerializeToString,
        response_deserializer=callback_pb2.AttachResponse.FromString,
    )
    missing = CallbackPeer(elsewhere(), Answers(), deadline_s=PATIENCE_S)
    with pytest.raises(Skipped, match=r"does not serve kornel\.v1\.CallbackService"):
        await missing.subscribe_rm("rm")
    await missing.close()
