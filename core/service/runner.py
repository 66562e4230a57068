"""The one task that owns the engine.

Everything that reaches the engine passes one bounded queue, in order of arrival; whoever fills it faster than it
empties has to wait, so nothing is ever dropped (DB-13). The task alternates between commands and slices of the
scheduling cycle, hands over what each decided before it goes on, and lets the event loop breathe between slices. With
nothing to do it sleeps until input comes or the engine asked to be called.

Rules: protocol.md 1.1, 5, 15; DESIGN 2.1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from kornel.core.config.model import Configuration
from kornel.core.config.problems import ConfigError
from kornel.core.domain.allocation_ids import MOST_INSTANCES
from kornel.core.domain.commands import (
    AnswerCallbacks,
    Command,
    CommandRefused,
    Fault,
    RegisterManager,
    SetOperatorDrain,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.domain.reasons import Ignored
from kornel.core.preemption.kind import Level
from kornel.core.preemption.registry import ending_of
from kornel.core.service.callback_board import CallbackBoard, CallbackStream
from kornel.core.service.callback_link import CallbackLink
from kornel.core.service.callback_wire import Subscription
from kornel.core.service.clock import SECOND_NS, Clock, Timer
from kornel.core.service.engine_port import EnginePort
from kornel.core.service.garbage import GarbageKeeper
from kornel.core.service.gate import Gate, OpenGate
from kornel.core.service.loop_time import STEP_S, Sharing
from kornel.core.service.metrics import ServiceMetrics
from kornel.core.service.observers import EffectObserver, EngineTimer, NoTimer
from kornel.core.service.presence import Presence, PresenceKeeper
from kornel.core.service.questions import Questions
from kornel.core.service.resuming import RESUME_KEY, Begun, Kind, Progress, Receipt, Received, Resumption
from kornel.core.service.sessions import NO_SESSION, SESSION, SESSION_KEY, Session, Sessions
from kornel.core.service.status_codes import (
    EngineFault,
    InvalidRequest,
    JournalFull,
    JournalUnavailable,
    ManagerGone,
    NotLeading,
    ServiceError,
    ShuttingDown,
    Superseded,
    UnknownManager,
)
from kornel.core.service.streams import Stream, Switchboard
from kornel.core.telling.reader import Reader

SLICE_BUDGET: Final = 250
"""Decisions per slice: a few milliseconds, so that health checks and streams get their turn under full load."""

INTAKE_LIMIT: Final = 128
"""Most commands that wait."""

ENTRIES_PER_TURN: Final = 100
"""Entries applied before others, and then the next slice, get their turn; a command is never split.

Fewer than a slice decides: what has just come in is decided while it is still in the processor's caches.
"""

FEW_ENTRIES: Final = 8
"""The most entries of a command that need not wait for room in the queue, which :data:`INTAKE_LIMIT` bounds."""

SHORTEST_WAIT_NS: Final = 1_000_000
"""An engine that wants to be called in the past is called again after this long, not at once for ever."""

FAULT_WAIT_NS: Final = SECOND_NS
"""The time for which nothing is tried after a bug in a cycle, unless new input comes."""

StreamCommand = UpdateNodes | UpdateApplications | UpdateAllocations
CallCommand = RegisterManager | UnregisterManager | UpdateConfiguration | SetOperatorDrain


@dataclass(frozen=True, slots=True)
class _FromStream:
    stream: Stream
    command: StreamCommand
    entries: int


@dataclass(frozen=True, slots=True)
class _EndOfStream:
    stream: Stream
    error: Exception | None


@dataclass(frozen=True, slots=True)
class _Turn:
    """Something of a callback stream that has to wait for its turn."""

    act: Callable[[], None]
    entries: int = 0


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """The effect on the configuration of a command that is no part of a stream."""

    changed: bool
    checksum: str


@dataclass(frozen=True, slots=True)
class _Call:
    command: CallCommand
    answer: asyncio.Future[ConfigurationChange]
    configuration: Configuration | None = None
    session: Session = NO_SESSION


_Item = _FromStream | _EndOfStream | _Turn | _Call


class PartitionRunner:
    """The single writer of the engine. ``on_damage`` is called when the state can no longer be trusted, and when it
    can.

    ``observers`` see every effect after it went to the shims. ``on_settings`` gets the extra settings in force after
    each registration and configuration update. ``on_submit`` is called for each command of a stream, in the context of
    its request. ``timer`` gets the engine's times.

    ``presence``: notified of streams by *switchboard* and *callbacks*; absent: nobody counts as gone.

    ``callbacks`` absent: a board of its own, to which nobody attaches.

    ``gate``: everything passes it that leaves the core; absent: nothing waits there. ``untold``: effects of the core
    before this one that may not have arrived, if *engine* goes on where that one was; ``progress``: what went each way
    until then. ``on_receipt`` gets where the next command comes from, if the core after this one has to know.
    """

    def __init__(
        self,
        engine: EnginePort,
        switchboard: Switchboard,
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        garbage: GarbageKeeper,
        callbacks: CallbackBoard | None = None,
        presence: PresenceKeeper | None = None,
        on_damage: Callable[[bool], None] = lambda damaged: None,
        observers: Sequence[EffectObserver] = (),
        on_submit: Callable[[StreamCommand], None] | None = None,
        on_settings: Callable[[Mapping[str, str]], None] = lambda settings: None,
        timer: EngineTimer | None = None,
        gate: Gate | None = None,
        untold: Sequence[Effect] = (),
        progress: Progress | None = None,
        on_receipt: Callable[[Receipt], None] = lambda receipt: None,
        budget: int = SLICE_BUDGET,
        intake_limit: int = INTAKE_LIMIT,
    ) -> None:
        self._engine = engine
        self._switchboard = switchboard
        self._callbacks = callbacks or CallbackBoard(clock=clock, metrics=metrics, logger=logger)
        self._presence = presence or PresenceKeeper(clock)
        self._sessions = Sessions(clock)
        self._link = CallbackLink(engine, self._callbacks, self._carry_out, metrics)
        self._clock = clock
        self._metrics = metrics
        self._logger = logger
        self._garbage = garbage
        self._on_damage = on_damage
        self._observers = tuple(observers)
        self._on_submit = on_submit
        self._on_settings = on_settings
        self._timer = timer or NoTimer()
        self._gate = gate or OpenGate()
        self._untold = untold
        self._progress = progress or Progress()
        self._on_receipt = on_receipt
        self._budget = budget
        self._intake: asyncio.Queue[_Item] = asyncio.Queue(intake_limit)
        self._entries_waiting = 0
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._callbacks.on_change = self._wake.set
        self._stopping = False
        self._asleep = False
        self._damaged = False
        self._next_preempt_ns: int | None = None
        self._retry_at_ns: int | None = None
        self.reader: Final = Reader(engine, clock.now_ns, self._say_absence)
        """Answers what the partitions hold. No slice or command is under way when anybody else runs, but the update of
        very many queues may be."""
        self.questions = Questions()
        """The queue of questions that take long, which wait while a configuration comes into force. The managers of a
        core share it."""
        self.turns_taken = 0
        """The number of turns taken: while it stays the same nothing has changed."""
        engine.observe_ignored(self._log_ignored)

    def check_intake(self) -> None:
        """Raises :class:`ServiceError` while nothing new can be taken."""
        self._gate.check_intake()

    async def submit(self, stream: Stream, command: StreamCommand) -> None:
        """Queue what came on *stream*; waits while the queue is full. Raises :class:`ShuttingDown`.

        A stream that floods has a turn's worth of entries in the queue, so others do not wait for more than that.
        """
        self._gate.check_intake()
        entries = _size_of(command)
        while entries > FEW_ENTRIES and self._entries_waiting >= ENTRIES_PER_TURN and not self._stopping:
            self._room.clear()
            await self._room.wait()
        self._entries_waiting += entries
        try:
            await self._put(_FromStream(stream, command, entries))
        except BaseException:
            self._entries_waiting -= entries
            raise
        if self._on_submit is not None:
            self._on_submit(command)

    async def end(self, stream: Stream, error: Exception | None) -> None:
        """End *stream* once everything queued before is done, and its responses are sent."""
        if isinstance(error, JournalFull | JournalUnavailable | NotLeading):
            # Nothing is done as long as that lasts, and somebody waits for the reason.
            self._switchboard.end_stream(stream, error, flush=False)
            return
        await self._put(_EndOfStream(stream, error))

    async def attach(self, stream: CallbackStream, subscription: Subscription) -> None:
        """Make *stream* the one that is asked. Waits while the queue is full. Raises :class:`ShuttingDown`."""
        self._gate.check_intake()
        await self._put(_Turn(partial(self._attach, stream, subscription)))

    async def answer(self, stream: CallbackStream, command: AnswerCallbacks) -> None:
        """Queue answers that came on *stream*; waits while the queue is full. Raises :class:`ShuttingDown`."""
        self._gate.check_intake()
        answers = len(command.predicates) + len(command.preemption_predicates) + len(command.notices)
        answers += len(command.acknowledged)
        await self._put(_Turn(partial(self._link.pass_answers, stream, command), answers))

    async def detach(self, stream: CallbackStream, error: Exception | None) -> None:
        """End *stream* once everything queued before is done."""
        if isinstance(error, JournalFull | JournalUnavailable | NotLeading):
            self._callbacks.end_stream(stream, error)  # As with the others: nothing is done as long as that lasts.
            return
        await self._put(_Turn(partial(self._link.detach_stream, stream, error)))

    async def call(self, command: CallCommand, configuration: Configuration | None = None) -> ConfigurationChange:
        """Run *command* in its turn. Raises what the engine raises, :class:`EngineFault` or :class:`ShuttingDown`.

        *configuration*: what its text says, if somebody has read it already.
        """
        self._gate.check_intake()
        if isinstance(command, RegisterManager) and configuration is not None:
            # Whoever waits asks again and again: nothing is built for a registration that is refused as it stands.
            self._sessions.admit(SESSION.get(), command.rm_id, self._presence.now)
            await self._build_ahead(command.rm_id, configuration)
        answer: asyncio.Future[ConfigurationChange] = asyncio.get_running_loop().create_future()
        await self._put(_Call(command, answer, configuration, SESSION.get()))
        return await answer

    async def _build_ahead(self, rm_id: str, configuration: Configuration) -> None:
        """Build what is about to come into force, which takes seconds where there are very many queues."""
        with self._garbage.pause_while_building():
            began = time.perf_counter()
            for _ in self._engine.build_ahead(rm_id, configuration):
                if time.perf_counter() - began >= STEP_S:
                    await asyncio.sleep(0)
                    began = time.perf_counter()

    async def wait_until_idle(self) -> None:
        """Return once there is nothing to do before time passes or input comes. Raises :class:`ShuttingDown`."""
        while not self._asleep or self._wake.is_set() or not self._intake.empty() or self._gate.waiting:
            if self._stopping:
                raise ShuttingDown("the core is shutting down")
            await asyncio.sleep(0)

    @property
    def asleep(self) -> bool:
        """Tells whether the engine has nothing to do before time passes or input comes."""
        return self._asleep and not self._wake.is_set() and self._intake.empty()

    @property
    def intake_waiting(self) -> int:
        """Commands and answers that wait for their turn."""
        return self._intake.qsize()

    @property
    def presence(self) -> Presence | None:
        """Tells whether the registered resource manager is there; ``None``: none is registered."""
        return self._presence.now

    def _say_absence(self) -> str:
        presence = self._presence.now
        return presence.words if presence is not None else ""

    @property
    def rm_id(self) -> str:
        """The registered resource manager; empty: none."""
        return self._engine.rm_id

    @property
    def configuration(self) -> Configuration | None:
        """Returns the configuration in force; ``None`` while nobody is registered."""
        return self._engine.configuration

    @property
    def exchanged(self) -> int:
        """Returns the number of commands applied and entries sent; unchanged: nothing was received or sent since."""
        return self._metrics.commands_applied + self._metrics.entries_sent

    def extra_config(self) -> Mapping[str, str]:
        """Returns extra settings in force."""
        return self._engine.extra_config

    @property
    def epoch(self) -> str:
        """Returns the name of the registration and the epoch, by which clients go on where their streams broke; empty:
        nobody can."""
        return self._progress.epoch

    async def acknowledge(self, rm_id: str, epoch: str, received: Mapping[Kind, int]) -> Mapping[Kind, int]:
        """Note that the session of the call has *received* so many entries of each kind in *epoch*. Returns how many of
        its own are applied and durable. Raises :class:`ResyncRequired` and others as a stream of it would."""
        self._gate.check_intake()
        if not rm_id or rm_id != self._engine.rm_id:
            raise UnknownManager(f"resource manager {rm_id!r} is not registered")
        self._sessions.check_stream(SESSION.get())
        for kind, entries in received.items():
            self._progress.check(Resumption(epoch, entries), kind)
            self._switchboard.note_received(kind, entries)
        applied = dict(self._progress.received)
        await self.wait_recorded()
        return applied

    async def wait_recorded(self) -> None:
        """Return once everything is durable that was decided or noted so far."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gate.pass_on(partial(_settle, durable))
        await durable

    def take_over(self, untold: Sequence[Effect], progress: Progress) -> None:
        """Go on, once :meth:`run` is called, where another core ended; *untold* and *progress*: as for a new runner."""
        self._untold = untold
        self._progress = progress

    def stop(self) -> None:
        """Take nothing more, finish what is queued, and let :meth:`run` return."""
        self._stopping = True
        self._gate.stop()
        self._room.set()
        self._wake.set()

    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        sharing = Sharing.of_loop()
        try:
            await self._take_turns(sharing)
        finally:
            # Also when a bug ends it: whoever waits is answered, and nobody waits for this engine any more.
            self._stopping = True
            self._room.set()
            sharing.note_idle(self)
            await asyncio.sleep(0)  # Those who waited for room in the queue have it now.
            self._turn_away()
        with suppress(ServiceError):
            await self._gate.wait_until_passed()

    async def _take_turns(self, sharing: Sharing) -> None:
        if self._engine.rm_id:
            self._go_on()
        while True:
            await self._gate.wait_for_room()
            began = time.perf_counter()
            self.turns_taken += 1
            ended, entries, call = self._take_in()
            if call is not None:
                await self._call(call)
                began = time.perf_counter()
            if entries >= ENTRIES_PER_TURN:
                await sharing.rest_after(time.perf_counter() - began, self)
                began = time.perf_counter()
            more = self._run_slice()
            for end in ended:
                self._gate.pass_on(partial(self._switchboard.end_stream, end.stream, end.error))
            if self._stopping and self._intake.empty():
                return
            if more or not self._intake.empty():
                await sharing.rest_after(time.perf_counter() - began, self)
            else:
                sharing.note_idle(self)
                await self._sleep_until_work()

    async def _put(self, item: _Item) -> None:
        if self._stopping:
            raise ShuttingDown("the core is shutting down")
        await self._intake.put(item)
        self._wake.set()

    def _take_in(self) -> tuple[list[_EndOfStream], int, _Call | None]:
        """Apply what waits, up to one turn's worth: the streams that end after this turn's slice, the entries, and the
        call that comes next."""
        ended: list[_EndOfStream] = []
        call: _Call | None = None
        entries = 0
        self._link.follow_board()
        while entries < ENTRIES_PER_TURN and not self._intake.empty():
            item = self._intake.get_nowait()
            if isinstance(item, _FromStream):
                entries += item.entries
                self._entries_waiting -= item.entries
                self._from_stream(item.stream, item.command)
            elif isinstance(item, _Turn):
                entries += item.entries
                item.act()
            elif isinstance(item, _EndOfStream):
                ended.append(item)
            else:
                call = item
                break  # What is decided under a new registration or configuration starts with a slice of its own.
        if self._entries_waiting < ENTRIES_PER_TURN:
            self._room.set()
        self._garbage.count_stored(entries)
        return ended, entries, call

    def _from_stream(self, stream: Stream, command: StreamCommand) -> None:
        if stream.ending:
            return
        try:
            if not command.rm_id or command.rm_id != self._engine.rm_id:
                raise CommandRefused(
                    Fault.UNKNOWN_MANAGER,
                    f"{stream.kind}: resource manager {command.rm_id!r} is not registered",
                )
            self._sessions.check_stream(stream.session)
            if not stream.rm_id:
                self._bind(stream, command.rm_id)
            self._note_receipt(stream, command)
            effects = self._apply(command)
        except Exception as error:  # noqa: BLE001 - every way to fail ends this stream and no other
            self._metrics.commands_refused += 1
            self._switchboard.end_stream(stream, error, flush=False)
        else:
            self._hand_over(effects)

    def _bind(self, stream: Stream, rm_id: str) -> None:
        """Make *stream* receive responses. If its client asks, it learns how many of its entries are applied, once they
        are durable."""
        if stream.resumption is not None and not stream.session.named:
            raise InvalidRequest(f"{RESUME_KEY} needs {SESSION_KEY}")
        self._switchboard.bind(stream, rm_id, self._progress)
        if stream.resumption is not None:
            stream.epoch = self._progress.epoch
            greeting = f"{stream.epoch}/{self._progress.received[stream.kind]}"
            self._gate.pass_on(partial(stream.greet, greeting))

    def _note_receipt(self, stream: Stream, command: StreamCommand) -> None:
        """Count the entries of *command*, for a client that sends again what was not applied."""
        entries = _count_entries(command)
        if entries and stream.epoch and stream.epoch == self._progress.epoch:
            receipt = Received(stream.kind, self._progress.received[stream.kind] + entries)
            self._progress.note_receipt(receipt)
            self._on_receipt(receipt)

    def _attach(self, stream: CallbackStream, subscription: Subscription) -> None:
        try:
            self._sessions.check_stream(stream.session)
        except Superseded as error:
            self._metrics.commands_refused += 1
            self._callbacks.end_stream(stream, error)
        else:
            self._link.attach_stream(stream, subscription)

    def _supersede_older(self, session: Session) -> None:
        """End the streams of those who spoke for the manager before *session*, which has just registered."""
        older = self._sessions.registered(session, self._switchboard.sessions() | self._callbacks.sessions())
        if older:
            self._logger.warning(
                "resource manager taken over by another session",
                rm_id=self._engine.rm_id,
                by=session.key,
                host=session.host,
                superseded=sorted(other.key for other in older),
            )
            error = Superseded("superseded: another session of this resource manager has registered since")
            self._switchboard.supersede(older, error)
            self._callbacks.supersede(older, error)

    def _check_session(self, call: _Call) -> None:
        if isinstance(call.command, RegisterManager):
            self._sessions.admit(call.session, call.command.rm_id, self._presence.now)
        elif not isinstance(call.command, SetOperatorDrain):
            self._sessions.check(call.session)

    async def _call(self, call: _Call) -> None:
        """Make *call* and answer it. Nothing else is done until what it brought about may leave the core."""
        try:
            self._check_session(call)
            if call.configuration is not None and isinstance(call.command, RegisterManager | UpdateConfiguration):
                self._engine.prepare_configuration(call.command.config, call.configuration)
            before = self._engine.checksum
            begun = Begun(uuid4().hex, call.session.key if call.session.named else "")
            if isinstance(call.command, RegisterManager):
                self._on_receipt(begun)
            if isinstance(call.command, UpdateConfiguration):
                effects = await self._update(call.command)
            else:
                effects = self._apply(call.command)
            await self._gate.wait_until_passed()
            checksum = self._engine.checksum
            change = ConfigurationChange(checksum != before, checksum)
            if isinstance(call.command, RegisterManager | UnregisterManager):
                self._progress.begin_registration(begun if isinstance(call.command, RegisterManager) else None)
                self._start_afresh()  # What a registration lets go of is no shim's to hear (DB-4).
                if isinstance(call.command, RegisterManager):
                    self._supersede_older(call.session)
                    # What a registration brings about is observed as the new manager wants it.
                    self._on_settings(self._engine.extra_config)
                else:
                    self._sessions.unregistered()
                self._callbacks.deliver_effects(effects)
                for observer in self._observers:
                    observer.observe(effects)
                if isinstance(call.command, UnregisterManager):
                    rm_id = call.command.rm_id
                    self._switchboard.end_streams(rm_id, ManagerGone(f"resource manager {rm_id!r} was unregistered"))
            else:
                self._hand_over(effects)
        except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self._metrics.commands_refused += 1
            with suppress(ServiceError):
                await self._gate.wait_until_passed()
            if not self._engine.rm_id:
                self._progress.begin_registration(None)
                self._switchboard.note_registered("")
            if not call.answer.done():
                call.answer.set_exception(error)
        else:
            if not call.answer.done():
                call.answer.set_result(change)
        self._callbacks.note_registration(self._engine.rm_id, self._engine.extra_config)
        self._on_settings(self._engine.extra_config)
        self._link.follow_board()

    def _go_on(self) -> None:
        """Take over from the core that the engine served before: its manager need not register again."""
        self._switchboard.go_on(self._engine.rm_id, self._untold, self._progress)
        self._untold = ()
        if self._progress.session:
            self._sessions.registered(Session(self._progress.session, "", named=True), ())
        self._link.follow_engine()
        self._callbacks.note_registration(self._engine.rm_id, self._engine.extra_config)
        self._on_settings(self._engine.extra_config)

    def _start_afresh(self) -> None:
        self._switchboard.note_registered(self._engine.rm_id)
        self._callbacks.start_afresh()
        self._next_preempt_ns = None
        if self._damaged:
            self._damaged = False
            self._on_damage(False)

    def _apply(self, command: Command) -> list[Effect]:
        """Returns effects of *command*. Raises ``CommandRefused``, ``ConfigError`` or, for any other error,
        ``EngineFault``."""
        began = time.perf_counter()
        try:
            effects = self._engine.apply(command, self._clock.now_ns())
        except (CommandRefused, ConfigError):
            raise
        except Exception as error:
            self._report_damage(error, "applying a command", command=type(command).__name__)
            raise EngineFault("internal error while the request was applied; see the log of the core") from error
        self._metrics.commands_applied += 1
        self._timer.command_took(time.perf_counter() - began)
        return effects

    async def _update(self, command: UpdateConfiguration) -> list[Effect]:
        """Does what :meth:`_apply` does, a few milliseconds at a time: there may be tens of thousands of queues.

        What comes from the shim meanwhile waits, and is decided under the new configuration. So do questions.
        """
        began = since = time.perf_counter()
        steps = self._engine.update_in_steps(command, self._clock.now_ns())
        with ExitStack() as long:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    effects: list[Effect] = end.value
                    break
                except (CommandRefused, ConfigError):
                    raise
                except Exception as error:
                    self._report_damage(error, "applying a command", command=type(command).__name__)
                    message = "internal error while the request was applied; see the log of the core"
                    raise EngineFault(message) from error
                if time.perf_counter() - since >= STEP_S:
                    if since == began:
                        long.enter_context(self._garbage.pause_while_building())
                        long.enter_context(self.questions.hold_back())
                    await asyncio.sleep(0)
                    since = time.perf_counter()
        self._metrics.commands_applied += 1
        self._timer.command_took(time.perf_counter() - began)
        return effects

    def _carry_out(self, command: Command) -> None:
        self._hand_over(self._apply(command))

    def _run_slice(self) -> bool:
        """Run one slice, and the periodic preemption round if due. Returns whether to go on at once."""
        now_ns = self._clock.now_ns()
        if self._retry_at_ns is not None and now_ns < self._retry_at_ns and self._intake.empty():
            return False
        self._retry_at_ns = None
        try:
            if self._preemption_due(now_ns):
                self._hand_over(self._engine.preempt(now_ns))
            began = time.perf_counter()
            result = self._engine.cycle(now_ns, self._budget)
            took = time.perf_counter() - began
        except Exception as error:  # noqa: BLE001 - a bug must not take down the task that could still say so
            self._report_damage(error, "scheduling")
            self._retry_at_ns = now_ns + FAULT_WAIT_NS
            return False
        self._metrics.slices += 1
        self._hand_over(result.effects)
        self._timer.slice_took(took, len(result.effects), more=result.more)
        return result.more

    def _preemption_due(self, now_ns: int) -> bool:
        interval_ns = self._engine.preemption_interval_ns
        if interval_ns is None:
            self._next_preempt_ns = None
            return False
        if self._next_preempt_ns is not None and now_ns < self._next_preempt_ns:
            return False
        due = self._next_preempt_ns is not None
        self._next_preempt_ns = now_ns + interval_ns
        return due

    def _hand_over(self, effects: list[Effect]) -> None:
        if effects:
            self._gate.pass_on(partial(self._tell_effects, effects))

    def _tell_effects(self, effects: list[Effect]) -> None:
        if PreemptionDecided in map(type, effects):
            for effect in effects:
                if isinstance(effect, PreemptionDecided):
                    self._metrics.preemption_decisions += 1
                    self._log_preemption(effect)
        self._switchboard.deliver_effects(effects)
        self._callbacks.deliver_effects(effects)
        for observer in self._observers:
            observer.observe(effects)

    def _log_ignored(self, cause: Ignored, item: str) -> None:
        """Count an entry that is never answered (protocol.md 15)."""
        self._metrics.items_ignored[cause] += 1
        self._logger.debug("request entry ignored", rm_id=self._engine.rm_id, item=item, cause=str(cause))

    def _log_preemption(self, decided: PreemptionDecided) -> None:
        match ending_of(decided).level:
            case Level.DEBUG:
                log = self._logger.debug
            case Level.INFO:
                log = self._logger.info
            case Level.WARNING:
                log = self._logger.warning
        log(
            "preemption decided",
            partition=decided.partition,
            kind=decided.kind,
            outcome=str(decided.outcome),
            key=decided.key,
            application_id=decided.application_id,
            queue=decided.queue,
            node_id=decided.node_id,
            detail=decided.detail,
            victims=[victim.key for victim in decided.victims],
        )

    def _report_damage(self, error: Exception, doing: str, **where: str) -> None:
        self._metrics.engine_faults += 1
        self._logger.error("bug in the engine, its state may be damaged", doing=doing, exc_info=error, **where)
        if not self._damaged:
            self._damaged = True
            self._on_damage(True)

    async def _sleep_until_work(self) -> None:
        """Sleep until input comes or time makes work."""
        timer: Timer | None = None
        at_ns = self._next_call_ns()
        if at_ns is not None:
            timer = self._clock.call_at(at_ns, self._wake.set)
        self._asleep = True
        await self._wake.wait()
        self._asleep = False
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _next_call_ns(self) -> int | None:
        if self._retry_at_ns is not None:
            return self._retry_at_ns
        wanted = [at_ns for at_ns in (self._engine.next_wakeup_ns(), self._next_preempt_ns) if at_ns is not None]
        if not wanted:
            return None
        now_ns = self._clock.now_ns()
        at_ns = min(wanted)
        return at_ns if at_ns > now_ns else now_ns + SHORTEST_WAIT_NS

    def _turn_away(self) -> None:
        """Answer what came in too late."""
        late = ShuttingDown("the core is shutting down")
        while not self._intake.empty():
            item = self._intake.get_nowait()
            if isinstance(item, _Call) and not item.answer.done():
                item.answer.set_exception(late)


def _allocations_meant(command: UpdateAllocations) -> int:
    """Returns asks and allocations of *command*; one ask of the older generation may mean many, and those stand
    last."""
    specs = command.allocations
    if not specs or not specs[-1].legacy:
        return len(specs)
    return sum(min(max(1, spec.max_allocations), MOST_INSTANCES) for spec in specs)


def _count_entries(command: StreamCommand) -> int:
    """Returns how many entries of its request *command* is made of."""
    if isinstance(command, UpdateAllocations):
        return len(command.allocations) + len(command.ask_releases) + len(command.releases)
    if isinstance(command, UpdateNodes):
        return len(command.nodes)
    return len(command.add) + len(command.remove)


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _size_of(command: StreamCommand) -> int:
    """Returns entries of *command*, at least 1."""
    if isinstance(command, UpdateAllocations):
        return 1 + _allocations_meant(command) + len(command.ask_releases) + len(command.releases)
    if isinstance(command, UpdateNodes):
        return 1 + len(command.nodes)
    return 1 + len(command.add) + len(command.remove)
