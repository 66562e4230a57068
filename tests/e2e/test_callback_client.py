"""A shim's handler against a served core: `shim_client` on one side, an engine that asks on the other.

The client's own timeouts are real time, so a test that is about them uses a short one and waits for the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    PredicatesAnswer,
    PreemptionPredicatesAnswer,
)
from kornel.core.domain.effects import EventRecorded, PredicatesAsked, PreemptionPredicatesAsked, SchedulingFailed
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import (
    Allocated,
    Ask,
    CallbackHandler,
    NotSupported,
    PredicatesQuestion,
    PreemptionQuestion,
    ResyncRequired,
    SchedulingState,
    ShimClient,
)
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb
from kornel.v1 import callback_pb2_grpc, manager_pb2, manager_pb2_grpc
from tests.e2e.harness import Core, running_core
from tests.patience import PATIENCE_S
from tests.unit.service.fakes import AskingEngine
from tests.waiting import until

PARTITION = "[rm-1]default"


class Judge(CallbackHandler):
    """Answers predicates with what *verdicts* says of the key; waits for *gate* first."""

    def __init__(self, **verdicts: Mapping[str, str] | Exception) -> None:
        self.verdicts = verdicts
        self.gates: dict[str, asyncio.Event] = {}
        self.asked: list[PredicatesQuestion] = []
        self.cancelled: list[str] = []

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str]:
        self.asked.append(question)
        try:
            if question.key in self.gates:
                await self.gates[question.key].wait()
        except asyncio.CancelledError:
            self.cancelled.append(question.key)
            raise
        verdict = self.verdicts.get(question.key, {})
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


class Talker(CallbackHandler):
    """Answers and hears everything but predicates."""

    def __init__(self) -> None:
        self.states: list[SchedulingState] = []
        self.events_heard: list[str] = []
        self.preemption: list[PreemptionQuestion] = []
        self.fail = False

    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        self.preemption.append(question)
        if self.fail:
            raise LookupError("no such node")
        return question.start_index if question.victims else None

    async def scheduling_state(self, state: SchedulingState) -> None:
        self.states.append(state)
        if self.fail:
            raise LookupError("no such ask")

    async def events(self, events: Sequence[si.EventRecord]) -> None:
        self.events_heard += [record.objectID for record in events]

    async def state_dump(self) -> Mapping[str, Any]:
        if self.fail:
            raise LookupError("no state")
        return {"heard": len(self.events_heard)}


@pytest.fixture
async def engine() -> AskingEngine:
    return AskingEngine()


@pytest.fixture
async def core(engine: AskingEngine) -> AsyncIterator[Core]:
    async with running_core(engine) as core:
        yield core


@asynccontextmanager
async def client_of(core: Core) -> AsyncIterator[ShimClient]:
    """A client that is registered."""
    async with ShimClient(core.address, "rm-1") as client:
        await client.register()
        yield client


async def decide(client: ShimClient, engine: AskingEngine, *effects: Any) -> None:
    """Have the next slice decide *effects*."""
    engine.script.append(list(effects))
    await client.send_nodes([si.NodeInfo(nodeID="x")])
    await until(lambda: not engine.script, "the slice to be run")


def answers(engine: AskingEngine) -> dict[int, PredicatesAnswer | PreemptionPredicatesAnswer]:
    """Everything the engine was answered, by question."""
    commands = [command for _, command in engine.applied if isinstance(command, AnswerCallbacks)]
    found: dict[int, PredicatesAnswer | PreemptionPredicatesAnswer] = {}
    for command in commands:
        found |= {answer.question: answer for answer in command.predicates}
        found |= {answer.question: answer for answer in command.preemption_predicates}
    return found


def question(number: int, key: str) -> PredicatesAsked:
    return PredicatesAsked(number, PARTITION, "app", key, ("n1", "n2"), allocate=True)


async def test_only_what_the_handler_overrides_is_subscribed(core: Core, engine: AskingEngine) -> None:
    """The core never asks what nobody answers; the timeout in force comes back."""
    async with client_of(core) as client:
        attachment = await client.attach_callbacks(Judge(), timeout_s=2.5)
        assert engine.attached == AttachCallbacks(
            "rm-1", predicates=True, timeout_ns=2_500_000_000, awaits_placements=True
        )
        assert attachment.timeout_s == 2.5
        other = await client.attach_callbacks(Talker())
        assert engine.attached == AttachCallbacks(
            "rm-1", preemption_predicates=True, scheduling_states=True, events=True
        )
        assert other.timeout_s == 1.0
        await other.close()
        await until(lambda: engine.attached is not None and engine.attached.predicates, "the judge to take over")
    await until(lambda: engine.attached is None, "closing the client to detach")


async def test_asks_are_placed_where_the_handler_lets_them(core: Core, engine: AskingEngine) -> None:
    """The whole way: ask, question, answer, allocation; the refused ask is not placed."""
    judge = Judge(bad={"n1": "taint", "n2": "taint"})
    async with client_of(core) as client:
        await client.attach_callbacks(judge)
        await client.submit_asks([Ask(key, "app", {"vcore": 1}) for key in ("a", "bad", "b")])
        placed: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            async for update in client.updates():
                assert isinstance(update, Allocated)
                placed.append(update.key)
                if len(placed) == 2:
                    break
    assert placed == ["a", "b"]
    assert [refused for _, refused in engine.refused] == [(("n1", "taint"), ("n2", "taint"))]
    assert judge.asked[0] == PredicatesQuestion(PARTITION, "app", "a", ("n1", "n2"), allocate=True)


async def test_a_slow_question_holds_up_no_other(core: Core, engine: AskingEngine) -> None:
    """Questions are handled concurrently and answered in any order."""
    judge = Judge()
    judge.gates["slow"] = asyncio.Event()
    async with client_of(core) as client:
        await client.attach_callbacks(judge, timeout_s=30)
        await decide(client, engine, question(1, "slow"), question(2, "fast"))
        await until(lambda: 2 in answers(engine), "the fast answer")
        assert 1 not in answers(engine)
        judge.gates["slow"].set()
        await until(lambda: 1 in answers(engine), "the slow answer")


async def test_answers_that_are_ready_go_out_together(core: Core, engine: AskingEngine) -> None:
    """A thousand questions are not answered in a thousand messages."""
    async with client_of(core) as client:
        await client.attach_callbacks(Judge())
        await decide(client, engine, *(question(n, "k") for n in range(1_000)))
        await until(lambda: len(answers(engine)) == 1_000, "all answers")
    assert sum(isinstance(command, AnswerCallbacks) for _, command in engine.applied) < 20


async def test_a_handler_that_raises_refuses_and_goes_on(
    core: Core, engine: AskingEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Every node of the question is refused with the error's name, the log has the traceback, the stream lives."""
    broken: Any = {"n1": 7}
    async with client_of(core) as client:
        await client.attach_callbacks(Judge(odd=ValueError("which node?"), wrong=broken))
        await decide(client, engine, question(1, "odd"), question(2, "wrong"), question(3, "fine"))
        await until(lambda: len(answers(engine)) == 3, "all answers")
    reason = "callback failed: ValueError: which node?"
    assert answers(engine)[1] == PredicatesAnswer(1, (("n1", reason), ("n2", reason)))
    assert "TypeError" in str(answers(engine)[2])
    assert answers(engine)[3] == PredicatesAnswer(3)
    assert "which node?" in caplog.text


async def test_a_question_is_given_up_when_the_core_stops_waiting(
    core: Core, engine: AskingEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that hangs is cancelled at the timeout, and nothing is answered for it."""
    judge = Judge()
    judge.gates["stuck"] = asyncio.Event()
    async with client_of(core) as client:
        await client.attach_callbacks(judge, timeout_s=0.5)
        await decide(client, engine, question(1, "stuck"), question(2, "fine"))
        await until(lambda: judge.cancelled == ["stuck"], "the handler to be cancelled")
        await until(lambda: list(answers(engine)) == [2], "the other answer")
    assert "1 of 2 questions not answered within 0.5 s" in caplog.text


async def test_preemption_questions_and_notices(core: Core, engine: AskingEngine) -> None:
    """Each kind reaches its method, typed; what the method returns is the answer."""
    talker = Talker()
    async with client_of(core) as client:
        await client.attach_callbacks(talker)
        await decide(
            client,
            engine,
            PreemptionPredicatesAsked(1, PARTITION, "app", "k", "n1", ("v0", "v1"), 1),
            PreemptionPredicatesAsked(2, PARTITION, "app", "k", "n2", (), 0),
            SchedulingFailed("app", "k9", "no node has room"),
            EventRecorded(1, "k", "app", 0, 0, 1, None, "text"),
        )
        await until(lambda: len(answers(engine)) == 2, "both answers")
        core.clock.advance(2 * SECOND_NS)
        await until(lambda: talker.events_heard == ["k"], "the event")
    assert answers(engine) == {
        1: PreemptionPredicatesAnswer(1, success=True, last=1),
        2: PreemptionPredicatesAnswer(2, success=False, last=-1),
    }
    assert talker.preemption[0] == PreemptionQuestion(PARTITION, "app", "k", "n1", ("v0", "v1"), 1)
    failed = si.UpdateContainerSchedulingStateRequest.FAILED
    assert talker.states == [SchedulingState("app", "k9", failed, "no node has room")]


async def test_a_talker_that_fails_answers_no(core: Core, engine: AskingEngine) -> None:
    """Preemption is refused, a state dump says why there is none, notices go on."""
    talker = Talker()
    talker.fail = True
    async with client_of(core) as client:
        await client.attach_callbacks(talker)
        await decide(
            client,
            engine,
            PreemptionPredicatesAsked(1, PARTITION, "app", "k", "n1", ("v0",), 0),
            SchedulingFailed("app", "k1", "no room"),
            SchedulingFailed("app", "k2", "no room"),
        )
        await until(lambda: 1 in answers(engine) and len(talker.states) == 2, "the answer and the notices")
        assert answers(engine)[1] == PreemptionPredicatesAnswer(1, success=False, last=-1)
        dump = await client.state_dump()
        assert dump["rm_diagnostics"] == {"error": "callback failed: LookupError: no state"}
        talker.fail = False
        assert (await client.state_dump())["rm_diagnostics"] == {"heard": 0}


async def test_attaching_needs_a_registration(core: Core) -> None:
    """The core does not know this RM: ResyncRequired, and nothing is left running."""
    async with ShimClient(core.address, "rm-1") as client:
        with pytest.raises(ResyncRequired):
            await asyncio.wait_for(client.attach_callbacks(Judge()), PATIENCE_S)


async def test_a_core_without_callbacks() -> None:
    """NotSupported tells it apart from a refusal."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with ShimClient(f"127.0.0.1:{port}", "rm-1") as client:
        with pytest.raises(NotSupported):
            await asyncio.wait_for(client.attach_callbacks(Judge()), PATIENCE_S)
    await server.stop(None)


class Breaking(callback_pb2_grpc.CallbackServiceServicer):
    """Attaches, asks one question, and ends each stream as *ends* says; the last one stays."""

    def __init__(self, *ends: grpc.StatusCode) -> None:
        self.ends = list(ends)
        self.attached = 0
        self.answered: list[int] = []

    async def Attach(self, request_iterator: Any, context: Any) -> None:
        first = await anext(request_iterator)
        assert first.HasField("subscription")
        self.attached += 1
        number = self.attached
        await context.write(pb.AttachResponse(attached=pb.Attached(timeout_ms=60_000)))
        await context.write(pb.AttachResponse(predicates=[pb.PredicatesQuestion(question_id=number)]))
        if self.ends:
            await context.abort(self.ends.pop(0), "broken")
        async for request in request_iterator:
            self.answered += [answer.question_id for answer in request.predicates]


@asynccontextmanager
async def breaking_core(*ends: grpc.StatusCode) -> AsyncIterator[tuple[Breaking, ShimClient]]:
    server = grpc.aio.server()
    service = Breaking(*ends)
    callback_pb2_grpc.add_CallbackServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with ShimClient(f"127.0.0.1:{port}", "rm-1") as client:
        yield service, client
    await server.stop(None)


async def test_a_broken_stream_is_opened_again() -> None:
    """What was asked on the broken one counts as not asked: its answer is not sent on the new one."""
    judge = Judge()
    gate = judge.gates[""] = asyncio.Event()
    async with breaking_core(grpc.StatusCode.UNAVAILABLE) as (service, client):
        await client.attach_callbacks(judge)
        await until(lambda: len(judge.asked) == 2, "the question on the second stream")
        gate.set()
        await until(lambda: service.answered != [], "its answer")
    assert service.answered == [2]
    assert judge.cancelled == [""]


async def test_after_a_resync_the_next_registration_attaches_again(
    core: Core, engine: AskingEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """A core that forgot the RM ends the stream for good; registering through the same client brings it back."""
    caplog.set_level(logging.WARNING)
    async with client_of(core) as client:
        await client.attach_callbacks(Judge())
        manager = manager_pb2_grpc.ManagerServiceStub(core.channel)
        await manager.UnregisterResourceManager(manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1"))
        await until(lambda: "detached until it registers again" in caplog.text, "the client to give up")
        engine.attached = None
        await client.register()
        await until(lambda: engine.attached is not None, "the handler to be attached again")
        await decide(client, engine, question(1, "k"))
        await until(lambda: 1 in answers(engine), "an answer")
