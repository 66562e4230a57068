"""The scripted core's end of the callback service, against the kit's end of a shim."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from kornel.conformance.callback_peer import Answers, CallbackPeer
from kornel.conformance.messages import allocation
from kornel.conformance.outcome import Mismatch
from kornel.conformance.shim.questions import Question, Questions
from kornel.v1 import callback_pb2, callback_pb2_grpc
from tests.patience import PATIENCE_S
from tests.waiting import until


class _Core:
    """A core that runs one allocation, and counts."""

    def __init__(self) -> None:
        self.answered: list[Question] = []
        self.rounds = 0

    def admits_subscription(self, rm: str) -> bool:
        return rm == "rm"

    def judge_order(self, key: str, after: str, *, in_place: bool) -> None:
        raise AssertionError("nothing has to wait here")

    def is_placed(self, key: str) -> bool:
        return key == "runs"

    def is_announced(self, key: str) -> bool:
        return key == "runs"

    def handle_answer(self, question: Question) -> None:
        self.answered.append(question)

    def place_asks(self) -> None:
        self.rounds += 1


@asynccontextmanager
async def attached(answers: Answers, rm: str = "rm") -> AsyncIterator[tuple[_Core, Questions, CallbackPeer]]:
    core = _Core()
    questions = Questions(core)
    server = grpc.aio.server()
    callback_pb2_grpc.add_CallbackServiceServicer_to_server(questions, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = callback_pb2_grpc.CallbackServiceStub(channel)
        peer = CallbackPeer(stub.Attach(), answers, deadline_s=PATIENCE_S)
        try:
            await peer.subscribe_rm(rm)
            yield core, questions, peer
        finally:
            await peer.close()
            await server.stop(None)


async def test_an_answer_allows_the_first_node_that_it_does_not_refuse() -> None:
    async with attached(Answers(predicates=lambda question: {"n1": "no"})) as (core, questions, _):
        question = questions.ask_about(allocation("k"), ["n1", "n2"])
        await until(lambda: core.answered, "the answer")
        assert core.answered == [question]
        assert question.allowed == "n2"
        asked = core.rounds
        questions.consider_ask(allocation("k"), ["n1"])
        assert not questions.are_open, "nothing has changed since it was refused there"
        questions.changes += 1
        questions.consider_ask(allocation("k"), ["n1"])
        await until(lambda: len(core.answered) == 2 and core.rounds > asked, "the second answer")


async def test_a_missing_answer_counts_as_not_now() -> None:
    """The question is closed, and the core tries again."""
    async with attached(Answers(predicates=lambda question: None, timeout_ms=10)) as (core, questions, _):
        rounds = core.rounds
        question = questions.ask_about(allocation("k"), ["n1"])
        await until(lambda: core.rounds > rounds, "the core to try again")
        assert not questions.are_open
        assert questions.ignored
        assert question.allowed == ""


async def test_what_was_acknowledged_and_not_placed_is_said() -> None:
    async with attached(Answers(predicates=lambda question: {})) as (_, questions, peer):
        await peer.acknowledge_placement("runs")
        await peer.acknowledge_placement("gone")
        await peer.wait_until(lambda: peer.not_placed, "to hear of it")
        assert peer.not_placed == ["gone"]
        questions.end_stream(grpc.StatusCode.ABORTED, "superseded")
        assert await peer.wait_for_end() == (grpc.StatusCode.ABORTED, "superseded")
        assert not questions.wanted


async def test_a_stranger_is_refused() -> None:
    with pytest.raises(Mismatch, match="FAILED_PRECONDITION 'stranger' is not registered"):
        async with attached(Answers(), "stranger"):
            pass


async def test_the_first_request_has_to_subscribe() -> None:
    async with attached(Answers()) as (_, questions, _):
        assert not questions.wanted, "it wants to be asked about nothing"
    server = grpc.aio.server()
    callback_pb2_grpc.add_CallbackServiceServicer_to_server(Questions(_Core()), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = callback_pb2_grpc.CallbackServiceStub(channel).Attach()
        await call.write(callback_pb2.AttachRequest())
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    await server.stop(None)
