"""Callbacks over a real connection, with an engine that asks what a test wants. Case numbers: protocol.md 17."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    DetachCallbacks,
    PredicatesAnswer,
    RegisterManager,
)
from kornel.core.domain.effects import (
    Effect,
    EventRecorded,
    PredicatesAsked,
    PreemptionPredicatesAsked,
    SchedulingFailed,
)
from kornel.core.service.machine.clock import SECOND_NS
from kornel.v1 import callback_pb2 as pb
from kornel.v1 import callback_pb2_grpc, status_pb2, status_pb2_grpc
from tests.e2e.harness import (
    Conversation,
    Core,
    node_request,
    running_core,
)
from tests.patience import PATIENCE_S
from tests.unit.service.fakes import AskingEngine
from tests.waiting import until

Code = grpc.StatusCode
PARTITION = "[rm-1]default"


class Scripted:
    """A core whose engine asks what the test says, and the callback streams to it."""

    def __init__(self, core: Core, engine: AskingEngine) -> None:
        self.core = core
        self.engine = engine

    @asynccontextmanager
    async def attached(self, **kinds: Any) -> AsyncIterator[Conversation]:
        """A stream that is attached for *kinds*, by default for predicates."""
        stub = callback_pb2_grpc.CallbackServiceStub(self.core.channel)
        async with Conversation.open(stub.Attach()) as stream:
            wanted = pb.Subscription(rm_id="rm-1", **(kinds or {"predicates": True}))
            await stream.send(pb.AttachRequest(subscription=wanted))
            assert (await stream.receive()).HasField("attached")
            yield stream

    async def slice(self, *effects: Effect) -> None:
        """Have the next scheduling slice decide *effects*."""
        self.engine.script.append(list(effects))
        await self.wake()

    async def wake(self) -> None:
        async with Conversation.open(self.core.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request())
            await until(lambda: not self.engine.script, "the slice to be run")

    def commands(self) -> list[Command]:
        """What the engine was told of callbacks, in order."""
        kinds = AttachCallbacks | DetachCallbacks | AnswerCallbacks
        return [command for _, command in self.engine.applied if isinstance(command, kinds)]

    async def dump(self) -> dict[str, Any]:
        stub = status_pb2_grpc.StatusServiceStub(self.core.channel)
        answer = await stub.GetStateDump(status_pb2.GetStateDumpRequest(), timeout=PATIENCE_S)
        found: dict[str, Any] = json.loads(answer.json)
        return found


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """rm-1 registered with an engine of which the test is the script."""
    engine = AskingEngine()
    async with running_core(engine) as core:
        await core.register()
        yield Scripted(core, engine)


def question(number: int, key: str = "k", *nodes: str) -> PredicatesAsked:
    return PredicatesAsked(number, PARTITION, "app", key, nodes or ("n1",), allocate=True)


def event(name: str) -> EventRecorded:
    return EventRecorded(1, name, "app", 0, 0, 1, None, "text")


def numbers(response: pb.AttachResponse) -> list[int]:
    return [asked.question_id for asked in response.predicates]


class TestAttaching:
    """Who is asked."""

    async def test_the_first_response_says_attached_and_how_long_the_core_waits(self, scripted: Scripted) -> None:
        """The subscription becomes the engine's attachment; 0 means the core's own timeout."""
        stub = callback_pb2_grpc.CallbackServiceStub(scripted.core.channel)
        for wanted_ms, granted_ms in ((0, 1_000), (250, 250)):
            async with Conversation.open(stub.Attach()) as stream:
                wanted = pb.Subscription(rm_id="rm-1", predicates=True, events=True, timeout_ms=wanted_ms)
                await stream.send(pb.AttachRequest(subscription=wanted))
                assert await stream.receive() == pb.AttachResponse(attached=pb.Attached(timeout_ms=granted_ms))
            await until(lambda: scripted.engine.attached is None, "the engine to be detached")
        attached = [command for command in scripted.commands() if isinstance(command, AttachCallbacks)]
        assert attached == [
            AttachCallbacks("rm-1", predicates=True, events=True, timeout_ns=granted_ms * 1_000_000)
            for granted_ms in (1_000, 250)
        ]

    async def test_the_core_has_a_timeout_of_its_own(self) -> None:
        """What `serve --callback-timeout` gives holds for a shim that does not say."""
        async with running_core(AskingEngine(), callback_timeout_s=3) as core:
            await core.register()
            async with Conversation.open(callback_pb2_grpc.CallbackServiceStub(core.channel).Attach()) as stream:
                await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1")))
                assert (await stream.receive()).attached.timeout_ms == 3_000

    @pytest.mark.parametrize("rm_id", ["", "rm-2"])
    async def test_an_unknown_manager_is_turned_away(self, scripted: Scripted, rm_id: str) -> None:
        """FAILED_PRECONDITION, naming the manager and the request; the engine hears nothing."""
        async with Conversation.open(callback_pb2_grpc.CallbackServiceStub(scripted.core.channel).Attach()) as stream:
            await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id=rm_id)))
            code, details = await stream.end()
        assert code is Code.FAILED_PRECONDITION
        assert "AttachRequest" in details
        assert repr(rm_id) in details
        assert scripted.commands() == []

    async def test_the_first_message_must_subscribe(self, scripted: Scripted) -> None:
        """INVALID_ARGUMENT otherwise."""
        async with Conversation.open(callback_pb2_grpc.CallbackServiceStub(scripted.core.channel).Attach()) as stream:
            await stream.send(pb.AttachRequest(predicates=[pb.PredicatesAnswer(question_id=1)]))
            assert (await stream.end())[0] is Code.INVALID_ARGUMENT
        assert scripted.commands() == []

    async def test_a_second_subscription_ends_the_stream(self, scripted: Scripted) -> None:
        """INVALID_ARGUMENT; answers accepted before count, and the engine is detached."""
        async with scripted.attached() as stream:
            await stream.send(
                pb.AttachRequest(predicates=[pb.PredicatesAnswer(question_id=4)]),
                pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1")),
            )
            assert (await stream.end())[0] is Code.INVALID_ARGUMENT
        assert scripted.commands()[1:] == [
            AnswerCallbacks("rm-1", (PredicatesAnswer(4),)),
            DetachCallbacks("rm-1"),
        ]

    async def test_bytes_that_are_no_message(self, scripted: Scripted) -> None:
        """INVALID_ARGUMENT, and the core goes on."""
        call = scripted.core.channel.stream_stream("/kornel.v1.CallbackService/Attach")()
        async with Conversation.open(call) as stream:
            await stream.send(b"\xff\xff")
            assert (await stream.end())[0] is Code.INVALID_ARGUMENT
        async with scripted.attached():
            assert scripted.engine.attached is not None

    async def test_the_last_attached_stream_is_asked_until_it_ends(self, scripted: Scripted) -> None:
        """Then the one before takes over, with its own subscription; without any the engine is detached."""
        async with scripted.attached(predicates=True, timeout_ms=111) as older:
            async with scripted.attached(predicates=True, timeout_ms=222) as newer:
                await scripted.slice(question(1))
                assert numbers(await newer.receive()) == [1]
            await until(lambda: len(scripted.commands()) == 3, "the older stream to take over")
            await scripted.slice(question(2))
            assert numbers(await older.receive()) == [2]
            await older.half_close()
            assert (await older.end())[0] is Code.OK
        timeouts = [c.timeout_ns // 1_000_000 for c in scripted.commands() if isinstance(c, AttachCallbacks)]
        assert timeouts == [111, 222, 111]
        assert scripted.commands()[-1] == DetachCallbacks("rm-1")

    async def test_an_older_stream_that_ends_changes_nothing(self, scripted: Scripted) -> None:
        """Only the one that is asked matters to the engine."""
        async with scripted.attached() as older, scripted.attached() as newer:
            await older.half_close()
            assert (await older.end())[0] is Code.OK
            await scripted.slice(question(1))
            assert numbers(await newer.receive()) == [1]
            assert len(scripted.commands()) == 2

    async def test_registering_again_keeps_the_attachment(self, scripted: Scripted) -> None:
        """The stream stays, nothing is attached twice, and new questions arrive."""
        async with scripted.attached() as stream:
            await scripted.core.register()
            await scripted.slice(question(1))
            assert numbers(await stream.receive()) == [1]
            assert len(scripted.commands()) == 1

    async def test_a_failed_registration_ends_the_streams(self, scripted: Scripted) -> None:
        """5.1: the manager counts as not registered. The next one starts without callbacks until it attaches."""

        def fail(_: Command) -> list[Effect]:
            scripted.engine.rm_id = ""
            raise RuntimeError("refused")

        async with scripted.attached() as stream:
            scripted.engine.answers[RegisterManager] = fail
            with pytest.raises(grpc.aio.AioRpcError):
                await scripted.core.register()
            code, details = await stream.end()
            assert code is Code.FAILED_PRECONDITION
            assert "'rm-1'" in details
            assert scripted.commands()[1:] == []
        del scripted.engine.answers[RegisterManager]
        await scripted.core.register()
        assert scripted.commands()[1:] == [DetachCallbacks("rm-1")]
        async with scripted.attached() as stream:
            await scripted.slice(question(1))
            assert numbers(await stream.receive()) == [1]

    async def test_a_bug_of_the_engine_ends_the_streams(self, scripted: Scripted) -> None:
        """INTERNAL without a word of the bug when somebody attaches; one when the last one leaves harms nobody."""

        def fail(_: Command) -> list[Effect]:
            raise ZeroDivisionError("secret")

        scripted.engine.answers[AttachCallbacks] = fail
        async with scripted.attached() as stream:
            code, details = await stream.end()
            assert code is Code.INTERNAL
            assert "secret" not in details
        await until(lambda: scripted.engine.attached is None, "the engine to be detached")
        del scripted.engine.answers[AttachCallbacks]
        scripted.engine.answers[DetachCallbacks] = fail
        async with scripted.attached():
            pass
        await until(lambda: scripted.core.metrics.engine_faults == 2, "the engine to fail once more")
        del scripted.engine.answers[DetachCallbacks]
        async with scripted.attached() as stream:
            await scripted.slice(question(1))
            assert numbers(await stream.receive()) == [1]

    async def test_shutting_down_ends_the_streams(self, scripted: Scripted) -> None:
        """UNAVAILABLE, so that shims come back."""
        async with scripted.attached() as stream:
            stopping = asyncio.create_task(scripted.core.server.stop())
            assert (await stream.end())[0] is Code.UNAVAILABLE
            await stopping


class TestQuestions:
    """What goes over an attached stream."""

    async def test_what_a_slice_asks_goes_out_in_one_message(self, scripted: Scripted) -> None:
        """Both kinds of question and the scheduling states of one slice share a response."""
        async with scripted.attached(predicates=True, preemption_predicates=True, scheduling_states=True) as stream:
            await scripted.slice(
                question(1),
                PreemptionPredicatesAsked(2, PARTITION, "app", "k", "n1", ("v",), 0),
                question(3),
                SchedulingFailed("app", "k9", "no room"),
            )
            response = await stream.receive()
        assert numbers(response) == [1, 3]
        assert [asked.question_id for asked in response.preemption_predicates] == [2]
        assert [(state.allocationKey, state.reason) for state in response.scheduling_states] == [("k9", "no room")]

    async def test_no_message_has_more_than_a_thousand_questions(self, scripted: Scripted) -> None:
        """A slice that asks more takes several messages, in order."""
        async with scripted.attached() as stream:
            await scripted.slice(*(question(n) for n in range(2_500)))
            sizes = []
            asked: list[int] = []
            while len(asked) < 2_500:
                response = await stream.receive()
                sizes.append(len(response.predicates))
                asked += numbers(response)
        assert sizes == [1_000, 1_000, 500]
        assert asked == list(range(2_500))

    async def test_nothing_is_sent_that_was_not_subscribed(self, scripted: Scripted) -> None:
        """Whatever the engine says, a shim hears only what it asked for."""
        async with scripted.attached(predicates=True) as stream:
            await scripted.slice(SchedulingFailed("app", "k", "no room"), event("e"))
            scripted.core.clock.advance(10 * SECOND_NS)
            await scripted.slice(question(1))
            response = await stream.receive()
        assert response == pb.AttachResponse(predicates=response.predicates)

    async def test_a_registration_takes_back_what_was_not_asked_yet(self, scripted: Scripted) -> None:
        """DB-4: questions of the former life that still wait are never asked."""
        names = tuple(f"node-{n:05}" + "x" * 200 for n in range(1_000))
        async with scripted.attached(predicates=True, timeout_ms=60_000) as stream:
            for number in range(400):
                await scripted.slice(question(number, "k", *names))
            assert scripted.core.metrics.questions_sent < 400
            await scripted.core.register()
            assert scripted.core.metrics.questions_dropped > 0
            await scripted.slice(question(1_000))
            heard: list[int] = []
            while 1_000 not in heard:
                heard += numbers(await stream.receive())
        assert 399 not in heard


class TestNotices:
    """Events and scheduling states."""

    async def test_events_need_a_listener(self, scripted: Scripted) -> None:
        """What was gathered for a stream that ended is not sent to the next one."""
        async with scripted.attached(events=True):
            await scripted.slice(event("old"))
        await until(lambda: scripted.engine.attached is None, "the engine to be detached")
        async with scripted.attached(events=True) as stream:
            await scripted.slice(event("new"))
            scripted.core.clock.advance(2 * SECOND_NS)
            assert [record.objectID for record in (await stream.receive()).events] == ["new"]


class TestStateDump:
    """kornel.v1.StatusService.GetStateDump."""

    async def test_everything_in_one_object(self, scripted: Scripted) -> None:
        """The core's status, its settings and numbers, and what the shim says of itself."""
        async with scripted.attached(state_dump=True) as stream:
            dumping = asyncio.create_task(scripted.dump())
            asked = (await stream.receive()).state_dump.question_id
            await stream.send(
                pb.AttachRequest(state_dump=pb.StateDumpAnswer(question_id=asked, json='{"pods": [1.5]}'))
            )
            dump = await asyncio.wait_for(dumping, PATIENCE_S)
        assert dump["rm_diagnostics"] == {"pods": [1.5]}
        assert dump["rm_id"] == "rm-1"
        assert dump["core_version"] == "test"
        assert dump["partitions"] == []
        assert dump["metrics"]["engine_faults"] == 0
        assert dump["timestamp_ns"] == scripted.core.clock.now_ns()

    async def test_nobody_to_ask(self, scripted: Scripted) -> None:
        """Without a stream that answers state dumps the diagnostics say so."""
        assert "no shim is attached" in (await scripted.dump())["rm_diagnostics"]["error"]
        async with scripted.attached(predicates=True):
            assert "no shim is attached" in (await scripted.dump())["rm_diagnostics"]["error"]

    @pytest.mark.parametrize(
        ("answer", "said"), [({"json": "not JSON"}, "not JSON"), ({"error": "pods are secret"}, "pods are secret")]
    )
    async def test_a_bad_answer_is_shown_as_an_error(
        self, scripted: Scripted, answer: dict[str, str], said: str
    ) -> None:
        """No JSON object, no diagnostics, but an entry that says why."""
        async with scripted.attached(state_dump=True) as stream:
            dumping = asyncio.create_task(scripted.dump())
            asked = (await stream.receive()).state_dump.question_id
            await stream.send(pb.AttachRequest(state_dump=pb.StateDumpAnswer(question_id=asked, **answer)))
            dump = await asyncio.wait_for(dumping, PATIENCE_S)
        assert list(dump["rm_diagnostics"]) == ["error"]
        assert said in dump["rm_diagnostics"]["error"]

    async def test_no_answer_in_time(self, scripted: Scripted) -> None:
        """The timeout of the stream holds for dumps too; an answer after it is ignored."""
        async with scripted.attached(state_dump=True, timeout_ms=500) as stream:
            dumping = asyncio.create_task(scripted.dump())
            asked = (await stream.receive()).state_dump.question_id
            scripted.core.clock.advance(SECOND_NS // 2)
            dump = await asyncio.wait_for(dumping, PATIENCE_S)
            assert "500 ms" in dump["rm_diagnostics"]["error"]
            late = pb.StateDumpAnswer(question_id=asked, json="{}")
            await stream.send(pb.AttachRequest(state_dump=late))
            await scripted.slice(question(1))
            assert numbers(await stream.receive()) == [1]

    async def test_the_shim_goes_away_instead_of_answering(self, scripted: Scripted) -> None:
        """A stream that ends answers what it was asked, with an error."""
        async with scripted.attached(state_dump=True) as stream:
            dumping = asyncio.create_task(scripted.dump())
            await stream.receive()
            await stream.half_close()
            dump = await asyncio.wait_for(dumping, PATIENCE_S)
        assert "its stream ended" in dump["rm_diagnostics"]["error"]

    async def test_dumps_asked_at_the_same_time_do_not_mix(self, scripted: Scripted) -> None:
        """Each caller gets the answer to its own question."""
        async with scripted.attached(state_dump=True) as stream:
            dumping = [asyncio.create_task(scripted.dump()) for _ in range(3)]
            asked = [(await stream.receive()).state_dump.question_id for _ in range(3)]
            for number in reversed(asked):
                answer = pb.StateDumpAnswer(question_id=number, json=f'{{"number": {number}}}')
                await stream.send(pb.AttachRequest(state_dump=answer))
            dumps = await asyncio.wait_for(asyncio.gather(*dumping), PATIENCE_S)
        assert sorted(dump["rm_diagnostics"]["number"] for dump in dumps) == sorted(asked)


class TestExplainAsk:
    """kornel.v1.StatusService.ExplainAsk, through the real engine."""

    async def explained(self, core: Core, key: str, partition: str = "") -> status_pb2.ExplainAskResponse:
        stub = status_pb2_grpc.StatusServiceStub(core.channel)
        request = status_pb2.ExplainAskRequest(partition=partition, allocation_key=key)
        return await stub.ExplainAsk(request, timeout=PATIENCE_S)

    @pytest.mark.parametrize(("key", "partition"), [("k", ""), ("", ""), ("k", "nowhere")])
    async def test_unknown(self, reg: Core, key: str, partition: str) -> None:
        """NOT_FOUND, naming the key, or the partition if there is no such one."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.explained(reg, key, partition)
        assert caught.value.code() is Code.NOT_FOUND
        assert repr(partition or key) in (caught.value.details() or "")
