"""Runs the one task that owns the engine.

Everything that reaches the engine passes one bounded queue, in order of arrival (:mod:`.intake_queue`). The task
alternates between commands and slices of the scheduling cycle, hands over the effects of each before it goes on, and
lets other tasks run between slices. If there is nothing to do, it sleeps until input comes or the time at which the
engine wants to be called.

Rules: protocol.md 1.1, 5, 15; docs/architecture.md, "One writer, no locks".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from kornel.core.config.model import Configuration
from kornel.core.domain.commands import (
    AnswerCallbacks,
    Command,
    CommandRefused,
    Fault,
    PreemptByHand,
    RegisterManager,
    SetOperatorDrain,
    StreamCommand,
    UnregisterManager,
    UpdateConfiguration,
)
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.domain.reasons import Ignored
from kornel.core.service.callbacks.callback_board import CallbackBoard, CallbackStream
from kornel.core.service.machine.clock import Clock, Timer
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.machine.loop_time import STEP_S, Sharing
from kornel.core.service.metrics.metrics import EffectObserver, EngineTimer, NoTimer, ServiceMetrics
from kornel.core.service.runner.callback_link import CallbackLink
from kornel.core.service.runner.effect_delivery import EffectDelivery
from kornel.core.service.runner.engine_driver import EngineDriver
from kornel.core.service.runner.engine_port import EnginePort
from kornel.core.service.runner.intake_queue import (
    ENTRIES_PER_TURN,
    INTAKE_LIMIT,
    Call,
    CallCommand,
    ConfigurationChange,
    EndOfStream,
    FromStream,
    IntakeQueue,
    Turn,
    count_entries,
)
from kornel.core.service.runner.journal_port import Gate, NoRestorer, OpenGate, Restorer
from kornel.core.service.runner.questions import Questions
from kornel.core.service.streams.presence import Presence, PresenceKeeper
from kornel.core.service.streams.resuming import RESUME_KEY, Begun, Kind, Progress, Receipt, Received, Resumption
from kornel.core.service.streams.sessions import SESSION, SESSION_KEY, Session, Sessions
from kornel.core.service.streams.streams import Stream, Switchboard
from kornel.core.service.wire.callback_wire import Subscription
from kornel.core.service.wire.status_codes import (
    EngineFault,
    InvalidRequest,
    JournalFull,
    JournalUnavailable,
    ManagerGone,
    NotFound,
    NotLeading,
    ServiceError,
    ShuttingDown,
    Superseded,
)
from kornel.core.telling.reader import Reader

SLICE_BUDGET: Final = 250
"""The number of decisions per slice, which takes a few milliseconds, so that health checks and streams get their turn
under full load."""

MOST_FAILURES: Final = 3
"""The most entries of one command on which the engine may fail; all further entries are refused without a try, because
the engine is restored after each failure."""

MOST_LAST_SLICES: Final = 500
"""The most slices that a core still runs when it ends, to finish work that continues from slice to slice: before that,
no snapshot can be taken."""


class PartitionRunner:
    """The only user of the engine. ``on_damage`` is called when the state of the engine can no longer be trusted, and
    when it can be trusted again.

    ``observers`` see every effect after it was passed to the shims. ``on_settings`` gets the extra settings in force
    after each registration and configuration update. ``on_submit`` is called for each command of a stream, in the
    context of its request. ``timer`` gets the engine's times.

    ``presence``: notified of streams by *switchboard* and *callbacks*; absent: no manager counts as gone.

    ``callbacks`` absent: a board of its own, to which no stream attaches.

    ``gate``: everything that leaves the core passes it; absent: nothing waits there. ``untold``: effects of a former
    core that may not have arrived, if *engine* continues where that core ended; ``progress``: the entries that were
    sent and received until then. ``on_receipt`` gets the origin of the next command, if a later core has to know it.
    ``under_way``: tells whether the engine has work that continues from slice to slice and has to end before the core
    does. ``restorer``: restores the engine after a bug; absent: it is not restored.
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
        under_way: Callable[[], bool] = lambda: False,
        restorer: Restorer | None = None,
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
        self._delivery = EffectDelivery(switchboard, self._callbacks, observers, metrics, logger)
        self._on_submit = on_submit
        self._on_settings = on_settings
        self._gate = gate or OpenGate()
        self._untold = untold
        self._progress = progress or Progress()
        self._on_receipt = on_receipt
        self._under_way = under_way
        self._restorer = restorer or NoRestorer()
        self._driver: Final = EngineDriver(
            engine,
            clock=clock,
            metrics=metrics,
            timer=timer or NoTimer(),
            logger=logger,
            restorer=self._restorer,
            on_effects=self._hand_over,
            on_damage=on_damage,
            budget=budget,
        )
        self._unanswered: tuple[Stream, StreamCommand] | None = None
        """The command on which the engine failed, if it arrived on a stream."""
        self._last_slices = 0
        self._wake = asyncio.Event()
        self._intake = IntakeQueue(intake_limit, self._wake.set)
        self._callbacks.on_change = self._wake.set
        self._asleep = False
        self.reader: Final = Reader(engine, clock.now_ns, self._say_absence)
        """Answers questions about the partitions. When other tasks run, no slice or command is under way, but an update
        of very many queues may be."""
        self.questions = Questions()
        """The queue of questions that take long, which wait while a configuration comes into force. The managers of a
        core share it."""
        engine.observe_ignored(self._log_ignored)

    def check_intake(self) -> None:
        """Raises :class:`ServiceError` while no new commands can be accepted."""
        self._gate.check_intake()

    async def submit(self, stream: Stream, command: StreamCommand) -> None:
        """Queues *command*, which came on *stream*; waits while the queue is full. Raises :class:`ShuttingDown`."""
        self._gate.check_intake()
        await self._intake.put_command(stream, command)
        if self._on_submit is not None:
            self._on_submit(command)

    async def end(self, stream: Stream, error: Exception | None) -> None:
        """Ends *stream* once everything queued before is done and its responses are sent."""
        if isinstance(error, JournalFull | JournalUnavailable | NotLeading):
            # In this state nothing in the queue is handled, and the client waits for the reason.
            self._switchboard.end_stream(stream, error, flush=False)
            return
        await self._intake.put(EndOfStream(stream, error))

    async def attach(self, stream: CallbackStream, subscription: Subscription) -> None:
        """Makes *stream* the one that is asked. Waits while the queue is full. Raises :class:`ShuttingDown`."""
        self._gate.check_intake()
        await self._intake.put(Turn(partial(self._attach, stream, subscription)))

    async def answer(self, stream: CallbackStream, command: AnswerCallbacks) -> None:
        """Queues answers that came on *stream*; waits while the queue is full. Raises :class:`ShuttingDown`."""
        self._gate.check_intake()
        answers = len(command.predicates) + len(command.preemption_predicates) + len(command.notices)
        answers += len(command.acknowledged)
        await self._intake.put(Turn(partial(self._link.pass_answers, stream, command), answers))

    async def detach(self, stream: CallbackStream, error: Exception | None) -> None:
        """End *stream* once everything queued before is done."""
        if isinstance(error, JournalFull | JournalUnavailable | NotLeading):
            self._callbacks.end_stream(stream, error)  # Nothing in the queue is handled in this state.
            return
        await self._intake.put(Turn(partial(self._link.detach_stream, stream, error)))

    async def call(self, command: CallCommand, configuration: Configuration | None = None) -> ConfigurationChange:
        """Runs *command* in its turn. Raises the errors of the engine, :class:`EngineFault` or :class:`ShuttingDown`.

        *configuration*: the parsed text of *command*, if it was parsed already.
        """
        self._gate.check_intake()
        if isinstance(command, RegisterManager) and configuration is not None:
            # A session that waits tries again and again, so nothing is built for a registration that would be refused
            # now.
            self._sessions.admit(SESSION.get(), command.rm_id, self._presence.now)
            await self._build_ahead(command.rm_id, configuration)
        answer: asyncio.Future[ConfigurationChange] = asyncio.get_running_loop().create_future()
        await self._intake.put(Call(command, answer, configuration, SESSION.get()))
        return await answer

    async def _build_ahead(self, rm_id: str, configuration: Configuration) -> None:
        """Builds what is about to come into force, which takes seconds for very many queues."""
        with self._garbage.pause_while_building():
            began = time.perf_counter()
            for _ in self._engine.build_ahead(rm_id, configuration):
                if time.perf_counter() - began >= STEP_S:
                    await asyncio.sleep(0)
                    began = time.perf_counter()

    async def wait_until_idle(self) -> None:
        """Return once there is nothing to do before time passes or input comes. Raises :class:`ShuttingDown`."""
        while not self._asleep or self._wake.is_set() or self._intake.waiting or self._gate.waiting:
            if self._intake.closed:
                raise ShuttingDown("the core is shutting down")
            await asyncio.sleep(0)

    @property
    def asleep(self) -> bool:
        """Tells whether the engine has nothing to do until time passes or input comes."""
        return self._asleep and not self._wake.is_set() and not self._intake.waiting

    @property
    def intake_waiting(self) -> int:
        """The number of commands and answers that wait for their turn."""
        return self._intake.waiting

    @property
    def presence(self) -> Presence | None:
        """The presence of the registered resource manager; ``None``: none is registered."""
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
        """The configuration in force; ``None`` while nobody is registered."""
        return self._engine.configuration

    def extra_config(self) -> Mapping[str, str]:
        """Returns the extra settings in force."""
        return self._engine.extra_config

    @property
    def epoch(self) -> str:
        """The name of the registration and the epoch, by which clients continue where their streams broke; empty: no
        client can."""
        return self._progress.epoch

    async def acknowledge(self, rm_id: str, epoch: str, received: Mapping[Kind, int]) -> Mapping[Kind, int]:
        """Notes that the session of the call has *received* so many entries of each kind in *epoch*. Returns how many
        of its own entries are applied and durable. Raises :class:`ResyncRequired` and other errors like a stream of the
        session."""
        self._gate.check_intake()
        if not rm_id or rm_id != self._engine.rm_id:
            raise NotFound(f"resource manager {rm_id!r} is not registered")
        self._sessions.check_stream(SESSION.get())
        for kind, entries in received.items():
            self._progress.check(Resumption(epoch, entries), kind)
            self._switchboard.note_received(kind, entries)
        applied = dict(self._progress.received)
        await self.wait_recorded()
        return applied

    async def wait_recorded(self) -> None:
        """Return once everything is durable that was decided or noted so far."""
        durable = asyncio.Event()
        self._gate.pass_on(durable.set)
        await durable.wait()

    def take_over(self, untold: Sequence[Effect], progress: Progress, gate: Gate) -> None:
        """Makes :meth:`run` continue where another core ended; *untold*, *progress* and *gate*: as for a new runner."""
        self._untold = untold
        self._progress = progress
        self._gate = gate

    def runs(self, engine: object) -> bool:
        """Tells whether *engine* is the one that this runner uses."""
        return self._engine is engine

    def stop(self) -> None:
        """Accepts nothing more, and lets :meth:`run` return once everything queued is done."""
        self._intake.close()
        self._gate.stop()
        self._wake.set()

    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        sharing = Sharing.of_loop()
        try:
            await self._take_turns(sharing)
        finally:
            # This is done even if a bug ends the task, so that waiting callers are answered and readers no longer wait
            # for this engine.
            self._intake.close()
            sharing.note_idle(self)
            await asyncio.sleep(0)  # Senders that waited for room in the queue have it now.
            self._intake.turn_away()
        with suppress(ServiceError):
            await self._gate.wait_until_passed()

    async def _take_turns(self, sharing: Sharing) -> None:
        if self._engine.rm_id:
            self._go_on()
        while True:
            await self._gate.wait_for_room()
            began = time.perf_counter()
            ended, entries, call = self._take_in()
            if self._driver.failure is not None:
                await self._recover()
            if call is not None:
                await self._call(call)
                began = time.perf_counter()
            if entries >= ENTRIES_PER_TURN:
                await sharing.rest_after(time.perf_counter() - began, self)
                began = time.perf_counter()
            more = self._driver.run_slice(commands_wait=self._intake.waiting > 0)
            if self._driver.failure is not None:
                await self._recover()
            for end in ended:
                self._gate.pass_on(partial(self._switchboard.end_stream, end.stream, end.error))
            if self._intake.closed and not self._intake.waiting and not (more and self._ends_slowly()):
                return
            if more or self._intake.waiting:
                await sharing.rest_after(time.perf_counter() - began, self)
            else:
                sharing.note_idle(self)
                await self._sleep_until_work()

    def _ends_slowly(self) -> bool:
        """Tells whether the engine has begun work that it should finish before the core ends."""
        self._last_slices += 1
        return self._last_slices <= MOST_LAST_SLICES and self._under_way()

    def _take_in(self) -> tuple[list[EndOfStream], int, Call | None]:
        """Applies waiting commands, as many as one turn allows. Returns the streams that end after the slice of this
        turn, the number of entries, and the call that comes next."""
        ended: list[EndOfStream] = []
        call: Call | None = None
        entries = 0
        self._link.follow_board()
        while entries < ENTRIES_PER_TURN and self._intake.waiting and self._driver.failure is None:
            item = self._intake.take()
            if isinstance(item, FromStream):
                entries += item.entries
                self._from_stream(item.stream, item.command)
            elif isinstance(item, Turn):
                entries += item.entries
                item.act()
            elif isinstance(item, EndOfStream):
                ended.append(item)
            else:
                call = item
                break  # Decisions under a new configuration begin with a new slice.
        self._intake.offer_room()
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
            effects = self._driver.apply(command)
        except Exception as error:  # noqa: BLE001 - every way to fail ends this stream and no other
            self._metrics.commands_refused += 1
            if self._driver.failure is not None:
                self._unanswered = stream, command
                self._note_receipt(stream, command, take_back=True)
            else:
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
            self._gate.pass_on(partial(stream.greet_client, greeting))

    def _note_receipt(self, stream: Stream, command: Command, *, take_back: bool = False) -> None:
        """Count the entries of *command*, for a client that sends again what was not applied. *take_back*: they were
        counted and are not applied, because the engine failed."""
        entries = -count_entries(command) if take_back else count_entries(command)
        if entries and stream.epoch and stream.epoch == self._progress.epoch:
            receipt = Received(stream.kind, self._progress.received[stream.kind] + entries)
            self._progress.note_receipt(receipt)
            if not take_back:
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
        """Ends the streams of earlier sessions of the manager, because *session* has just registered."""
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

    def _check_session(self, call: Call) -> None:
        if isinstance(call.command, RegisterManager):
            self._sessions.admit(call.session, call.command.rm_id, self._presence.now)
        elif not isinstance(call.command, SetOperatorDrain | PreemptByHand):
            self._sessions.check(call.session)

    async def _call(self, call: Call) -> None:
        """Carries out *call* and answers it. Nothing else is done until its effects may leave the core."""
        try:
            self._check_session(call)
            if call.configuration is not None and isinstance(call.command, RegisterManager | UpdateConfiguration):
                self._engine.prepare_configuration(call.command.config, call.configuration)
            before = self._engine.checksum
            begun = Begun(uuid4().hex, call.session.key if call.session.named else "")
            if isinstance(call.command, RegisterManager):
                self._on_receipt(begun)
            if isinstance(call.command, UpdateConfiguration):
                effects = await self._driver.update(call.command, self._garbage, self.questions)
            else:
                effects = self._driver.apply(call.command)
            await self._gate.wait_until_passed()
            checksum = self._engine.checksum
            decided = tuple([effect for effect in effects if isinstance(effect, PreemptionDecided)])
            change = ConfigurationChange(checksum != before, checksum, decided)
            if isinstance(call.command, RegisterManager | UnregisterManager):
                self._progress.begin_registration(begun if isinstance(call.command, RegisterManager) else None)
                self._start_afresh()  # Shims are not notified of what a registration drops (DB-4).
                if isinstance(call.command, RegisterManager):
                    self._supersede_older(call.session)
                    # The effects of a registration are observed with the settings of the new manager.
                    self._on_settings(self._engine.extra_config)
                else:
                    self._sessions.unregistered()
                self._delivery.deliver_beside_streams(effects)
                if isinstance(call.command, UnregisterManager):
                    rm_id = call.command.rm_id
                    self._switchboard.end_streams(rm_id, ManagerGone(f"resource manager {rm_id!r} was unregistered"))
            else:
                self._hand_over(effects)
        except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self._metrics.commands_refused += 1
            with suppress(ServiceError):
                await self._gate.wait_until_passed()
            if not self._engine.rm_id and self._driver.failure is None:
                self._progress.begin_registration(None)
                self._switchboard.note_registered("")
            try:
                await self._recover()
            finally:
                # This is done last, because the receiver of the error clears the frames of its traceback, to which this
                # frame belongs.
                if not call.answer.done():
                    call.answer.set_exception(error)
        else:
            if not call.answer.done():
                call.answer.set_result(change)
        self._callbacks.note_registration(self._engine.rm_id, self._engine.extra_config)
        self._on_settings(self._engine.extra_config)
        self._link.follow_board()

    def _go_on(self) -> None:
        """Continues for a former core whose engine this is, so that its manager need not register again."""
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
        self._driver.start_afresh()

    def _carry_out(self, command: Command) -> None:
        self._hand_over(self._driver.apply(command))

    def _hand_over(self, effects: list[Effect]) -> None:
        if effects:
            self._gate.pass_on(partial(self._delivery.deliver_effects, effects))

    def _log_ignored(self, cause: Ignored, item: str) -> None:
        """Count an entry that is never answered (protocol.md 15)."""
        self._metrics.items_ignored[cause] += 1
        self._logger.debug("request entry ignored", rm_id=self._engine.rm_id, item=item, cause=str(cause))

    async def _recover(self) -> None:
        """Continues as if the call on which the engine failed, if it did, had never been made."""
        if (failure := self._driver.failure) is None:
            return
        unanswered, self._unanswered = self._unanswered, None
        await self._driver.restore()
        if unanswered is not None:
            await self._apply_singly(*unanswered, record=failure[1])

    async def _apply_singly(self, stream: Stream, command: StreamCommand, record: int) -> None:
        """Apply *command*, on which the engine failed as a whole, entry by entry, and refuse the entries on which it
        fails again. *record* is that of the whole command."""
        parts = list(self._restorer.split_command(command))
        failures, silent = int(len(parts) == 1), False
        for part in parts:
            self._note_receipt(stream, part)
            if failures < MOST_FAILURES and len(parts) > 1:
                try:
                    self._hand_over(self._driver.apply(part))
                    await asyncio.sleep(0)
                    continue
                except EngineFault:
                    failures += 1
                    self._note_receipt(stream, part, take_back=True)
                    await self._driver.restore()
                    self._note_receipt(stream, part)
            refused = self._restorer.refuse_entries(part, self._clock.now_ns())
            silent = silent or not refused
            self._hand_over(refused)
        if silent:
            # Such an entry gets no answer, so its sender has to learn in another way that it was not applied.
            fault = EngineFault(
                f"internal error: entries of record {record} of the journal were set aside; see the log of the core"
            )
            self._gate.pass_on(partial(self._switchboard.end_stream, stream, fault))

    async def _sleep_until_work(self) -> None:
        """Sleeps until input comes or it is time to call the engine."""
        timer: Timer | None = None
        at_ns = self._driver.next_call_ns()
        if at_ns is not None:
            timer = self._clock.call_at(at_ns, self._wake.set)
        self._asleep = True
        await self._wake.wait()
        self._asleep = False
        self._wake.clear()
        if timer is not None:
            timer.cancel()
