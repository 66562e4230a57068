"""A scenario over gRPC with the test clock: what a simulation is compared with.

The loop is written anew from what ``kornel.simulate.playing`` says about the order of events, and with everything that
a simulation leaves out: a served core, real streams, a clock that is moved by calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kornel.core.domain.effects import Effect, PreemptionNotice
from kornel.core.journal.content.calls import Beginning, CallKind, CallOutcome, EngineCall
from kornel.core.journal.content.effect_sums import sum_effects
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.runner.intake_queue import count_entries
from kornel.core.state.options import EngineOptions
from kornel.shim_client import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    CallbackHandler,
    NodeAccepted,
    NodeRejected,
    NoticeReply,
    ShimClient,
    Update,
)
from kornel.shim_client import PreemptionNotice as HeardNotice
from kornel.shim_mock.model.cluster import ClusterModel
from kornel.shim_mock.model.notices import NoticeAnswers
from kornel.shim_mock.scenario import Scenario
from kornel.v1 import test_clock_pb2, test_clock_pb2_grpc
from tests.e2e.harness import Core, running_core
from tests.patience import PATIENCE_S
from tests.waiting import until

RM = "shim-mock"
Line = tuple[Any, ...]


@dataclass
class KeptCalls:
    """Notes each call of an engine: call, place, time, budget, command, outcome, number of effects and their sum."""

    lines: list[Line] = field(default_factory=list)
    entries: int = 0
    answers: int = 0
    notices: int = 0
    _sum: int = 0

    def add(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        self._sum = sum_effects(effects, self._sum)
        if call.command is not None:
            self.entries += count_entries(call.command)
            self.answers += type(call.command).__name__ == "AnswerCallbacks"
        self.notices += sum(isinstance(effect, PreemptionNotice) for effect in effects)
        self.lines.append(
            (call.kind.name, call.place, call.now_ns, call.budget, call.command, outcome.name, len(effects), self._sum)
        )


def recorded_engine() -> tuple[RecordingEngine, KeptCalls]:
    """An engine, and its calls."""
    kept = KeptCalls()
    engine = RecordingEngine.begin_empty(Beginning("test", True, EngineOptions()))
    engine.record_calls(kept, 0)
    return engine, kept


def leave_out_greetings(lines: Sequence[Line]) -> list[Line]:
    """*lines* without what streams say when they open, which are messages without entries."""
    first = next(
        at for at, (kind, *_, command, _outcome, _effects, _sum) in enumerate(lines)
        if kind == CallKind.COMMAND.name and count_entries(command)
    )  # fmt: skip
    return [line for line in lines[:first] if type(line[4]).__name__ == "RegisterManager"] + list(lines[first:])


class WireAgenda:
    """An agenda whose time is that of the core."""

    def __init__(self, start_ns: int, speed: float) -> None:
        self.now_ns = self.start_ns = start_ns
        self._speed = speed
        self.calls: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    @property
    def real_s(self) -> float:
        return (self.now_ns - self.start_ns) / SECOND_NS

    @property
    def now_s(self) -> float:
        return (self.now_ns - self.start_ns) * self._speed / SECOND_NS

    @property
    def wall_ns(self) -> int:
        return self.now_ns

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._put(self.now_ns + round(max(0.0, delay_s) * SECOND_NS / self._speed), callback)

    def call_at(self, at_s: float, callback: Callable[[], None]) -> None:
        self._put(max(self.now_ns, self.start_ns + round(at_s * SECOND_NS / self._speed)), callback)

    def _put(self, at_ns: int, callback: Callable[[], None]) -> None:
        self._made += 1
        self.calls.append((at_ns, self._made, callback))
        self.calls.sort(key=lambda call: call[:2])

    def take_due(self) -> bool:
        if not self.calls or self.calls[0][0] > self.now_ns:
            return False
        self.calls.pop(0)[2]()
        return True


class WireNotices(CallbackHandler):
    """Keeps notices until somebody says what to answer."""

    def __init__(self) -> None:
        self.came: list[tuple[HeardNotice, asyncio.Future[NoticeReply | None]]] = []

    async def preemption_notice(self, notice: HeardNotice) -> NoticeReply | None:
        answer: asyncio.Future[NoticeReply | None] = asyncio.get_running_loop().create_future()
        self.came.append((notice, answer))
        return await answer


class WirePlayer:
    """Plays one scenario."""

    def __init__(self, scenario: Scenario, core: Core, client: ShimClient, kept: KeptCalls) -> None:
        self._scenario, self._core, self._client, self._kept = scenario, core, client, kept
        self._clock = test_clock_pb2_grpc.TestClockServiceStub(core.channel)
        self._agenda = WireAgenda(core.clock.now_ns(), scenario.speed)
        self.model = ClusterModel(scenario, self._agenda)
        self._answers = NoticeAnswers(self.model, self._agenda)
        self._notices = WireNotices()
        self._heard: list[Update] = []
        self._handled = self._answered = self._sent = 0

    async def play(self, until_s: float) -> None:
        """Plays for so many of the core's seconds."""
        client, agenda, model = self._client, self._agenda, self.model
        end_ns = agenda.start_ns + round(until_s * SECOND_NS)
        await client.register(config=self._scenario.config, version="shim-mock")
        if any(entry.on_notice is not None for entry in self._scenario.applications):
            await client.attach_callbacks(self._notices)
        await until(lambda: self._core.metrics.messages_received >= 3, "the streams to open")
        await self._core.settle()
        hearing = asyncio.create_task(self._hear_updates())
        model.begin()
        await self._act()
        while agenda.now_ns < end_ns:
            times = [end_ns, *(at_ns for at_ns, _, _ in agenda.calls[:1])]
            if (quiet_ns := self._quiet_ns()) is not None:
                times.append(quiet_ns)
            agenda.now_ns = await self._advance(min(times) - agenda.now_ns)
            await self._handle()
            if (quiet_ns := self._quiet_ns()) is not None and quiet_ns <= agenda.now_ns:
                model.play_late()
            await self._act()
        hearing.cancel()
        await asyncio.wait([hearing])

    def _quiet_ns(self) -> int | None:
        if not self.model.late or not self.model.all_sent:
            return None
        return self._agenda.start_ns + round((self.model.last_activity_s + self._scenario.settle_s) * SECOND_NS)

    async def _act(self) -> None:
        while True:
            while self._agenda.take_due():
                pass
            messages = self.model.take_messages()
            if not any(messages):
                return
            for change in messages.changes:
                await self._client.update_configuration(change.config)
                await self._let_decide(0)
            if messages.nodes:
                await self._client.send_nodes(messages.nodes)
                await self._let_decide(len(messages.nodes))
            if messages.applications:
                await self._client.send_applications(messages.applications)
                await self._let_decide(len(messages.applications))
            if messages.allocations:
                await self._client.send_allocations(messages.allocations)
                await self._let_decide(len(messages.allocations))

    async def _let_decide(self, entries: int) -> None:
        """Waits until the core has applied so many more entries and is idle, and hears what it says."""
        self._sent += entries
        await until(lambda: self._kept.entries >= self._sent, "a message to arrive")
        await self._advance(0)
        await self._handle()

    async def _handle(self) -> None:
        """Handles what the core has said: nodes, applications, allocations, then notices."""
        (place,) = self._core.server.managers.places
        told = sum(place.switchboard.count_entered())
        await until(lambda: self._handled + len(self._heard) >= told, "the core's answers to arrive")
        heard, self._heard = self._heard, []
        self._handled += len(heard)
        for update in sorted(heard, key=_stream_of):
            self.model.handle_update(update)
        while self._answered < self._kept.notices:
            await until(lambda: self._notices.came, "a notice to arrive")
            notice, answer = self._notices.came.pop(0)
            self._answered += 1
            reply = self._answers.answer_notice(notice)
            answers = self._kept.answers
            answer.set_result(reply)
            if reply is not None:
                await until(lambda before=answers: self._kept.answers > before, "an answer to a notice to arrive")
                await self._advance(0)
                await self._handle()

    async def _hear_updates(self) -> None:
        async for batch in self._client.update_batches():
            self._heard.extend(batch)

    async def _advance(self, by_ns: int) -> int:
        request = test_clock_pb2.AdvanceClockRequest(by_ns=by_ns, until_told=True)
        return int((await self._clock.AdvanceClock(request, timeout=4 * PATIENCE_S)).now_ns)


def _stream_of(update: Update) -> int:
    if isinstance(update, NodeAccepted | NodeRejected):
        return 0
    return 1 if isinstance(update, ApplicationAccepted | ApplicationRejected | ApplicationUpdated) else 2


async def play_over_wire(scenario: Scenario, until_s: float) -> tuple[list[Line], ClusterModel]:
    """Returns the calls of the engine of a served core, and the cluster at the end."""
    engine, kept = recorded_engine()
    async with (
        running_core(engine, clock=ManualClock(), test_clock=True) as core,
        ShimClient(core.address, RM, generation=scenario.generation) as client,
    ):
        player = WirePlayer(scenario, core, client, kept)
        await player.play(until_s)
        lines = list(kept.lines)
    return leave_out_greetings(lines), player.model
