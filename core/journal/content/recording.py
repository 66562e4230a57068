"""The engine of a core with a journal. Once there is a journal to write to, each of its calls is written.

A call is written after it has been made, with its outcome; its effects wait for that at the gate. Hints
(``prepare_configuration``, ``build_ahead``) decide nothing and are not written.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import Command, CommandRefused, UpdateConfiguration
from kornel.core.domain.effects import Effect
from kornel.core.engine.engine import CycleResult, Engine
from kornel.core.journal.content.calls import Beginning, CallKind, CallOutcome, EngineCall
from kornel.core.journal.content.refusing import refuse_entries
from kornel.core.service.streams.resuming import Receipt
from kornel.core.snapshot.engines import move_engine


class Recorder(Protocol):
    """Writes calls. It has to be quick and must not wait."""

    def add(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        """Add *call* to the records to be written, with its outcome and effects. *effects* are shared and must not be
        changed."""


class RecordingEngine(Engine):
    """An engine whose calls are written from :meth:`record_calls` on."""

    _recorder: Recorder | None = None
    _receipt: Receipt | None = None
    _last_ns = 0
    place = 0
    """The number of the place whose engine this is."""

    @classmethod
    def begin_empty(cls, beginning: Beginning, place: int = 0) -> RecordingEngine:
        """Returns an empty engine for *place*, with the options of *beginning*."""
        made = cls(beginning.options)
        made.place = place
        return made

    def begin_again(self, beginning: Beginning) -> None:
        """Makes this engine empty, with the options of *beginning*, like a new one of :meth:`begin_empty`. Objects that
        refer to this engine stay valid."""
        observer = self._observer
        self.__init__(beginning.options)  # type: ignore[misc]
        self.observe_ignored(observer)

    def record_calls(self, recorder: Recorder, now_ns: int) -> None:
        """Have calls written by *recorder* from now on. *now_ns* is the time for calls without a time."""
        self._recorder = recorder
        self._last_ns = now_ns

    def stop_recording(self) -> None:
        """Have no more calls written, because the place of this engine is closed."""
        self._recorder = None

    @property
    def last_ns(self) -> int:
        """Returns the time of the last call."""
        return self._last_ns

    def note_receipt(self, receipt: Receipt) -> None:
        """Note *receipt*, to be written with the next command."""
        self._receipt = receipt

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        """Carries out *command*, and returns its effects in order."""
        call = EngineCall(CallKind.COMMAND, now_ns, command, receipt=self._take_receipt(), place=self.place)
        try:
            effects = super().apply(command, now_ns)
        except Exception as error:
            self._record_failure(call, error)
            raise
        self._record_call(call, CallOutcome.DONE, effects)
        return effects

    def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
        """Does the same with *command* as :meth:`apply`, and yields often. In the journal it is one call."""
        call = EngineCall(CallKind.COMMAND, now_ns, command, receipt=self._take_receipt(), place=self.place)
        try:
            effects = yield from super().update_in_steps(command, now_ns)
        except Exception as error:
            self._record_failure(call, error)
            raise
        self._record_call(call, CallOutcome.DONE, effects)
        return effects

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        """Runs one slice of the allocation cycle: at most about *budget* decisions per partition."""
        call = EngineCall(CallKind.SLICE, now_ns, None, budget, place=self.place)
        try:
            result = super().cycle(now_ns, budget)
        except Exception as error:
            self._record_failure(call, error)
            raise
        self._record_call(call, CallOutcome.DONE, result.effects)
        return result

    def preempt(self, now_ns: int) -> list[Effect]:
        """Runs one round of the periodic preemption cycle."""
        call = EngineCall(CallKind.PREEMPTION, now_ns, place=self.place)
        try:
            effects = super().preempt(now_ns)
        except Exception as error:
            self._record_failure(call, error)
            raise
        self._record_call(call, CallOutcome.DONE, effects)
        return effects

    def refuse_entries(self, command: Command, now_ns: int) -> list[Effect]:
        """Returns the refusals of the entries of *command*, because this engine has failed on them and must not get
        them again."""
        effects = refuse_entries(command)
        call = EngineCall(CallKind.REFUSAL, now_ns, command, receipt=self._take_receipt(), place=self.place)
        self._record_call(call, CallOutcome.DONE, effects)
        return effects

    def take_state(self, other: Engine, beginning: Beginning) -> None:
        """Gives this engine the state of *other*, which must not be used any more. Objects that refer to this engine
        stay valid."""
        self.begin_again(beginning)
        move_engine(other, self)

    def record_note(self, note: bytes) -> None:
        """Writes *note*, a ``JournalNote`` for the next core."""
        self._record_call(EngineCall(CallKind.NOTE, self._last_ns, note=note, place=self.place), CallOutcome.DONE, ())

    def record_events(self) -> None:
        """Records the event history from now on, whether a shim wants it or not."""
        super().record_events()
        self._record_call(EngineCall(CallKind.RECORD_EVENTS, self._last_ns, place=self.place), CallOutcome.DONE, ())

    def _take_receipt(self) -> Receipt | None:
        receipt, self._receipt = self._receipt, None
        return receipt

    def _record_failure(self, call: EngineCall, error: Exception) -> None:
        refused = isinstance(error, (CommandRefused, ConfigError))
        self._record_call(call, CallOutcome.REFUSED if refused else CallOutcome.FAILED, ())

    def _record_call(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        self._last_ns = call.now_ns
        if self._recorder is not None:
            self._recorder.add(call, outcome, effects)
