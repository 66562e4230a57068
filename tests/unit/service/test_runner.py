"""The one task that owns the engine, driven by a scripted engine and a clock that stands still."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    Command,
    CommandRefused,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import ApplicationUpdated, Effect, NodeAccepted, PreemptionDecided
from kornel.core.domain.reasons import Ignored, Outcome
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.machine.loop_time import BREATHS
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.runner import engine_driver
from kornel.core.service.runner.intake_queue import ENTRIES_PER_TURN, FEW_ENTRIES
from kornel.core.service.runner.journal_port import Gate, OpenGate
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.service.streams.resuming import Kind
from kornel.core.service.streams.streams import Stream, Switchboard
from kornel.core.service.wire.status_codes import (
    EngineFault,
    JournalFull,
    JournalUnavailable,
    ResyncRequired,
    ServiceError,
    ShuttingDown,
    status_of,
)
from tests.patience import PATIENCE_S
from tests.unit.service.fakes import FakeEngine

MANAGER = RegisterManager("rm-1")


@dataclass
class Running:
    """A runner at work."""

    runner: PartitionRunner
    engine: FakeEngine
    board: Switchboard
    clock: ManualClock
    metrics: ServiceMetrics
    log: io.StringIO
    damage: list[bool] = field(default_factory=list)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - polling is what lets the runner take its turns
                await asyncio.sleep(0)

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    def drain(self, stream: Stream) -> list[object]:
        found: list[object] = []
        while (batch := self.board.take_batch(stream)) is not None:
            found += batch.entries
        return found


@asynccontextmanager
async def running(
    engine: FakeEngine | None = None, *, intake_limit: int = 16, queue_limit: int = 100, gate: Gate | None = None
) -> AsyncIterator[Running]:
    engine = engine or FakeEngine()
    metrics, clock, log = ServiceMetrics(), ManualClock(), io.StringIO()
    board = Switchboard(metrics, queue_limit=queue_limit)
    damage: list[bool] = []
    runner = PartitionRunner(
        engine,
        board,
        clock=clock,
        metrics=metrics,
        logger=build_logger(LogFormat.JSON, LogLevel.DEBUG, log),
        garbage=GarbageKeeper(enabled=False),
        on_damage=damage.append,
        gate=gate,
        budget=2,
        intake_limit=intake_limit,
    )
    task = asyncio.create_task(runner.run())
    yield Running(runner, engine, board, clock, metrics, log, damage)
    runner.stop()
    await asyncio.wait_for(task, PATIENCE_S)


def asks(*keys: str, rm_id: str = "rm-1") -> UpdateAllocations:
    return UpdateAllocations(rm_id, tuple(AllocationSpec(key, "app", "[rm-1]default", None) for key in keys))


def create(*names: str, rm_id: str = "rm-1") -> UpdateNodes:
    return UpdateNodes(rm_id, tuple(NodeSpec(name, NodeAction.CREATE, "[rm-1]default") for name in names))


class StuckGate(OpenGate):
    """A gate at which the engine has to wait, until the core stops."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def wait_for_room(self) -> None:
        await self._stopped.wait()


@pytest.mark.parametrize("error", [JournalFull("no room"), JournalUnavailable("away")])
async def test_a_stream_that_the_journal_refuses_ends_at_once(error: ServiceError) -> None:
    """Whoever sent something hears why nothing is taken, and not when it is over."""
    async with running(gate=StuckGate()) as r:
        stream, callbacks = r.board.open(Kind.NODE), r.runner._callbacks.open()
        await r.runner.end(stream, error)
        await r.runner.detach(callbacks, error)
        assert (stream.ending, stream.error) == (True, error)
        assert (callbacks.ending, callbacks.error) == (True, error)


async def test_commands_are_applied_in_order_with_the_clock_of_the_moment() -> None:
    """Every command gets the time at which it is applied; order is that of arrival (protocol.md 1.1)."""
    async with running() as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.NODE)
        await r.runner.submit(stream, create("a"))
        await r.until(lambda: len(r.engine.applied) == 2)
        r.clock.advance(5)
        await r.runner.submit(stream, create("b"))
        await r.until(lambda: len(r.engine.applied) == 3)
        start = r.engine.applied[0][0]
        assert [(at - start, type(command)) for at, command in r.engine.applied] == [
            (0, RegisterManager),
            (0, UpdateNodes),
            (5, UpdateNodes),
        ]
        assert r.drain(stream) == [NodeAccepted("a"), NodeAccepted("b")]


async def test_slices_go_on_while_there_is_more_and_then_stop() -> None:
    """A full load is worked off in slices of the budget; afterwards the engine is left alone."""
    async with running() as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.ALLOCATION)
        await r.settle()
        before = len(r.engine.cycles)
        await r.runner.submit(stream, asks("1", "2", "3", "4", "5"))
        await r.until(lambda: len(r.engine.applied) == 2 and not r.engine.pending)
        await r.settle()
        assert len(r.engine.cycles) - before == 3
        assert len(r.drain(stream)) == 5


async def test_a_slice_is_handed_over_before_the_next_starts() -> None:
    """When a slice begins, the decisions of the one before it already wait for their stream (1.1)."""
    async with running() as r:
        await r.runner.call(MANAGER)
        waiting: list[int] = []
        plain_cycle = r.engine.cycle

        def cycle(now_ns: int, budget: int) -> object:
            waiting.append(r.metrics.queued_entries)
            return plain_cycle(now_ns, budget)

        r.engine.cycle = cycle  # type: ignore[method-assign, assignment]
        await r.runner.submit(r.board.open(Kind.ALLOCATION), asks("1", "2", "3", "4"))
        await r.until(lambda: len(r.engine.applied) == 2 and not r.engine.pending)
        assert waiting[:2] == [0, 2]


async def test_others_get_their_turn_between_slices() -> None:
    """The loop stays responsive under full load: each slice yields."""
    async with running() as r:
        await r.runner.call(MANAGER)
        turns = 0
        await r.runner.submit(r.board.open(Kind.ALLOCATION), asks(*(str(n) for n in range(40))))
        while r.engine.pending or len(r.engine.applied) < 2:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 10


async def test_the_engine_is_called_when_it_asked_to_be() -> None:
    """With no input the task sleeps until the engine's next wake-up, and no longer."""
    async with running() as r:
        await r.runner.call(MANAGER)
        r.engine.wakeup_ns = r.clock.now_ns() + 30 * SECOND_NS
        await r.runner.submit(r.board.open(Kind.NODE), create("n"))
        await r.settle()
        before = len(r.engine.cycles)
        r.clock.advance(29 * SECOND_NS)
        await r.settle()
        assert len(r.engine.cycles) == before
        r.clock.advance(SECOND_NS)
        await r.until(lambda: len(r.engine.cycles) == before + 1)


async def test_a_wakeup_that_stays_in_the_past_does_not_spin() -> None:
    """An engine that goes on asking for a time that is over is called again later, not at once for ever."""
    async with running() as r:
        await r.runner.call(MANAGER)
        r.engine.on_cycle = lambda now_ns: []
        r.engine.next_wakeup_ns = lambda: 0  # type: ignore[method-assign]
        await r.runner.submit(r.board.open(Kind.NODE), create("n"))
        await r.settle()
        before = len(r.engine.cycles)
        await r.settle()
        assert len(r.engine.cycles) == before


async def test_preemption_runs_on_its_own_interval() -> None:
    """The periodic preemption round comes once per interval, the first one interval after it is enabled."""
    async with running() as r:
        r.engine.preemption_interval_ns = 10 * SECOND_NS
        await r.runner.call(MANAGER)
        await r.settle()
        start = r.clock.now_ns()
        for _ in range(25):
            r.clock.advance(SECOND_NS)
            await r.settle()
        assert [(at - start) // SECOND_NS for at in r.engine.preempted_at] == [10, 20]


async def test_an_unknown_manager_ends_its_stream_only() -> None:
    """Nothing of the message is applied, nor of those behind it on the same stream (1.1, case 11)."""
    async with running() as r:
        stream = r.board.open(Kind.NODE)
        await r.runner.submit(stream, create("a"))
        await r.runner.call(MANAGER)
        await r.runner.submit(stream, create("b"))
        await r.settle()
        assert isinstance(stream.error, CommandRefused)
        assert "rm-1" in str(stream.error)
        assert "NodeRequest" in str(stream.error)
        assert [type(command) for _, command in r.engine.applied] == [RegisterManager]


@pytest.mark.parametrize("command", [create("a", rm_id=""), UpdateApplications(""), UpdateAllocations("")])
async def test_an_empty_manager_is_unknown_even_if_nobody_is_registered(
    command: UpdateNodes | UpdateApplications | UpdateAllocations,
) -> None:
    """No rmID is not the rmID of nobody."""
    async with running() as r:
        stream = r.board.open(Kind.NODE)
        await r.runner.submit(stream, command)
        await r.until(lambda: stream.ending)
        assert not r.engine.applied


async def test_a_stream_ends_after_what_it_sent_was_decided() -> None:
    """Asks followed by a half-close are applied and scheduled before the stream ends (1.1)."""
    async with running() as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.ALLOCATION)
        await r.runner.submit(stream, asks("1", "2"))
        await r.runner.end(stream, None)
        await r.until(lambda: stream.ending)
        assert stream.error is None
        assert stream.flush == 2


async def test_registration_drops_what_the_old_one_left() -> None:
    """Effects of the registration itself and of the time before it reach nobody (5.2, DB-4)."""
    async with running() as r:
        await r.runner.call(MANAGER)
        await r.runner.submit(r.board.open(Kind.NODE), create("old"))

        def again(command: Command) -> list[Effect]:
            return [NodeAccepted("stale")]

        r.engine.answers[RegisterManager] = again
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.NODE)
        await r.runner.submit(stream, create("new"))
        await r.settle()
        assert r.drain(stream) == [NodeAccepted("new")]


async def test_a_configuration_update_may_have_something_to_say() -> None:
    """Applications of a partition that a new configuration drops report it: those responses are sent (5.4, 5.2)."""
    failing = ApplicationUpdated("app", "Failing", 1, "PartitionRemoved")
    async with running() as r:
        await r.runner.call(MANAGER)
        r.engine.answers[UpdateConfiguration] = lambda command: [failing]
        await r.runner.call(UpdateConfiguration("rm-1"))
        stream = r.board.open(Kind.APPLICATION)
        r.board.bind(stream, "rm-1")
        assert r.drain(stream) == [failing]


async def test_an_update_that_takes_long_lets_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """But nothing is applied, decided or answered about the engine before its last step; what waited follows."""
    monkeypatch.setattr(engine_driver, "STEP_S", 0.0)
    stages: list[str] = []

    class Stepping(FakeEngine):
        def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
            for _ in range(50):
                stages.append("step")
                yield
            stages.append(f"done, {len(self.cycles)} slices and {len(self.applied)} commands so far")
            return self.apply(command, now_ns)

    async with running(Stepping()) as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.NODE)
        updating = asyncio.create_task(r.runner.call(UpdateConfiguration("rm-1", config="x")))
        await r.until(lambda: bool(stages))
        await r.runner.submit(stream, create("a"))
        asking = asyncio.create_task(r.runner.questions.ask(lambda: stages.append("answered")))
        cycles = len(r.engine.cycles)
        await r.until(lambda: len(stages) > 50)
        assert stages[:51] == ["step"] * 50 + [f"done, {cycles} slices and 1 commands so far"]
        assert (await updating).changed
        await asking
        await r.until(lambda: len(r.engine.applied) == 3)
        assert r.drain(stream) == [NodeAccepted("a")]


async def test_a_bug_in_a_command_is_answered_reported_and_survived() -> None:
    """The offender gets INTERNAL, the log a traceback, health a warning, everybody else service; registering heals."""
    async with running() as r:
        await r.runner.call(MANAGER)

        def explode(command: Command) -> list[Effect]:
            raise ZeroDivisionError("by a bug")

        r.engine.answers[UpdateNodes] = explode
        bad = r.board.open(Kind.NODE)
        await r.runner.submit(bad, create("a"))
        await r.until(lambda: bad.ending)
        assert isinstance(bad.error, EngineFault)
        assert "ZeroDivisionError" in r.log.getvalue()
        assert r.damage == [True]
        assert r.metrics.engine_faults == 1
        good = r.board.open(Kind.ALLOCATION)
        await r.runner.submit(good, asks("k"))
        await r.until(lambda: r.metrics.queued_entries == 1)
        await r.runner.call(MANAGER)
        assert r.damage == [True, False]


async def test_a_bug_in_a_cycle_is_not_repeated_in_a_loop() -> None:
    """After a failed cycle nothing is tried before a second has passed or input has come."""
    async with running() as r:
        await r.runner.call(MANAGER)

        def explode(now_ns: int) -> list[Effect]:
            raise ZeroDivisionError("by a bug")

        r.engine.on_cycle = explode
        await r.runner.submit(r.board.open(Kind.NODE), create("a"))
        await r.settle()
        assert r.metrics.engine_faults == 1
        r.clock.advance(SECOND_NS)
        await r.until(lambda: r.metrics.engine_faults == 2)
        await r.settle()
        assert r.metrics.engine_faults == 2
        assert r.damage == [True]


async def test_a_full_queue_makes_senders_wait_and_loses_nothing() -> None:
    """Back-pressure instead of drops (DB-13)."""
    async with running(intake_limit=2) as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.NODE)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as senders:
            for n in range(50):
                senders.create_task(r.runner.submit(stream, create(str(n))))
        await r.until(lambda: len(r.engine.applied) == 51)
        assert r.drain(stream) == [NodeAccepted(str(n)) for n in range(50)]


async def test_a_stream_that_floods_does_not_keep_others_waiting() -> None:
    """A turn's worth of entries waits in the queue, so another stream's command comes after two more of the flood."""
    async with running(queue_limit=10_000) as r:
        await r.runner.call(MANAGER)
        flooding, modest = r.board.open(Kind.ALLOCATION), r.board.open(Kind.NODE)
        large = asks(*(f"k{n}" for n in range(ENTRIES_PER_TURN)))

        async def flood() -> None:
            for _ in range(10):
                await r.runner.submit(flooding, large)

        task = asyncio.create_task(flood())
        await r.until(lambda: len(r.engine.applied) == 2)
        await r.runner.submit(modest, create("a"))
        await task
        await r.until(lambda: len(r.engine.applied) == 12)
        assert [command for _, command in r.engine.applied].index(create("a")) <= 4


async def test_few_entries_do_not_wait_for_room() -> None:
    """Only behind what is queued already (a command counts as one); more wait until a turn's worth was taken."""
    async with running(queue_limit=10_000) as r:
        await r.runner.call(MANAGER)
        flooding, modest = r.board.open(Kind.ALLOCATION), r.board.open(Kind.ALLOCATION)
        few, many = (asks(*(f"a{n}" for n in range(count))) for count in (FEW_ENTRIES - 1, FEW_ENTRIES))
        await r.runner.submit(flooding, asks(*(f"k{n}" for n in range(ENTRIES_PER_TURN))))
        await r.runner.submit(modest, few)
        assert len(r.engine.applied) == 1
        await r.runner.submit(modest, many)
        assert len(r.engine.applied) > 1
        await r.until(lambda: len(r.engine.applied) == 4)
        assert [command for _, command in r.engine.applied][2:] == [few, many]


async def test_a_full_turn_leaves_room_for_calls_of_several_steps() -> None:
    """Between the intake of a turn and its slice, and after it, the event loop goes round several times."""
    async with running(queue_limit=10_000) as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.ALLOCATION)
        rounds: list[int] = []

        async def go_round() -> None:
            while True:
                rounds.append(len(r.engine.applied))
                await asyncio.sleep(0)

        task = asyncio.create_task(go_round())
        for _ in range(3):
            await r.runner.submit(stream, asks(*(f"k{n}" for n in range(ENTRIES_PER_TURN))))
        await r.until(lambda: len(r.engine.applied) == 4)
        task.cancel()
        assert rounds.count(2) >= BREATHS
        assert rounds.count(3) >= BREATHS


async def test_stopping_finishes_what_was_taken_and_refuses_the_rest() -> None:
    """What was queued before the stop is applied; later input is refused UNAVAILABLE."""
    async with running() as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.NODE)
        for n in range(5):
            await r.runner.submit(stream, create(str(n)))
        r.runner.stop()
        with pytest.raises(ShuttingDown):
            await r.runner.submit(stream, create("late"))
        with pytest.raises(ShuttingDown):
            await r.runner.call(MANAGER)
    assert len(r.engine.applied) == 6


async def test_responses_that_nobody_reads_end_in_resync() -> None:
    """After an overflow nothing is applied for the manager until it registers again (1.1)."""
    async with running() as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.NODE)
        await r.runner.submit(stream, create(*(str(n) for n in range(101))))
        await r.until(lambda: stream.ending)
        applied = len(r.engine.applied)
        following = r.board.open(Kind.ALLOCATION)
        await r.runner.submit(following, asks("k"))
        await r.until(lambda: following.ending)
        assert isinstance(following.error, ResyncRequired)
        assert status_of(following.error).details.startswith("resync-required")
        assert len(r.engine.applied) == applied
        await r.runner.call(MANAGER)
        third = r.board.open(Kind.NODE)
        await r.runner.submit(third, create("n"))
        await r.settle()
        assert r.drain(third) == [NodeAccepted("n")]


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (Outcome.TRIGGERED, "info"),
        (Outcome.FULL, "info"),
        (Outcome.PARTIAL, "warning"),
        (Outcome.NONE, "warning"),
        (Outcome.VICTIM_STUCK, "warning"),
    ],
)
async def test_preemption_decisions_are_logged_not_sent(outcome: Outcome, level: str) -> None:
    """Every attempt is counted; a max that is not enforced in full is a warning."""
    kind = "guarantee" if outcome is Outcome.TRIGGERED else "quota"
    decided = PreemptionDecided(1, "[rm-1]default", kind, "", "", "root.a", Outcome(outcome), "", "", ())
    async with running() as r:
        await r.runner.call(MANAGER)
        effects: list[Effect] = [decided]
        r.engine.on_cycle = lambda now_ns: [effects.pop()] if effects else []
        await r.runner.submit(r.board.open(Kind.NODE), create())
        await r.until(lambda: r.metrics.preemption_decisions == 1)
        assert r.metrics.queued_entries == 0
        (line,) = [json.loads(line) for line in r.log.getvalue().splitlines() if "preemption decided" in line]
        assert line["level"] == level


async def test_entries_without_effect_are_counted_and_logged() -> None:
    """What is never answered shows in a metric by cause, and in the debug log with rmID, ID and cause (15)."""
    async with running() as r:
        await r.runner.call(MANAGER)
        r.engine.observer(Ignored.UNKNOWN_KEY, "k")
        r.engine.observer(Ignored.UNKNOWN_KEY, "l")
        r.engine.observer(Ignored.NO_CHANGE, "n1")
        assert r.metrics.items_ignored == {"unknown-key": 2, "no-change": 1}
        assert r.metrics.as_dict()["items_ignored"] == 3
        line = json.loads(r.log.getvalue().splitlines()[0])
        assert (line["level"], line["rm_id"], line["item"], line["cause"]) == ("debug", "rm-1", "k", "unknown-key")


async def test_idle_returns_when_everything_queued_is_done() -> None:
    """Whoever waits for the task to rest sees the effects of all that was queued before, slices included."""
    async with running() as r:
        await r.runner.call(MANAGER)
        stream = r.board.open(Kind.ALLOCATION)
        await r.runner.submit(stream, asks(*(str(n) for n in range(9))))
        await r.runner.wait_until_idle()
        assert len(r.drain(stream)) == 9


async def test_nobody_waits_for_a_task_that_goes_down() -> None:
    """Waiting for rest ends when the runner is told to stop."""
    engine = FakeEngine()
    async with running(engine) as r:
        await r.runner.call(MANAGER)
        waiting = asyncio.create_task(r.runner.wait_until_idle())
        r.runner.stop()
        with pytest.raises(ShuttingDown):
            await asyncio.wait_for(waiting, PATIENCE_S)
