"""Repeats the calls in a journal, and compares their results with those in the journal.

Each record belongs to a place, whose engine gets the calls in their order and with their times. The outcome of each
call, the number of its effects and the sum of all effects of its place have to be those in the record.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import CommandRefused, RegisterManager, UnregisterManager, UpdateConfiguration
from kornel.core.domain.effects import Effect
from kornel.core.domain.history.event_records import RECORDS
from kornel.core.journal.content.calls import Beginning, CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.effect_sums import sum_effects
from kornel.core.journal.content.notes import decode_note, encode_note
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.records import Record
from kornel.core.journal.content.refusing import refuse_entries
from kornel.core.service.configuration.configuration_history import KeptConfigurations
from kornel.core.service.streams.resuming import Begun, Progress, ProgressValues
from kornel.v1 import journal_pb2 as pb

TOLD_AGAIN_NS: Final = 120 * 10**9
"""Effects of this time before the end of the journal are sent again: the transport may have accepted them without
delivering them, because a dead connection is noticed only after a minute."""

_SHOWN: Final = 5


class Difference(NamedTuple):
    """The first record with another result. ``effects`` are those of the replay."""

    sequence: int
    call: EngineCall
    recorded: CallResult
    replayed: CallResult
    effects: Sequence[Effect]

    def describe(self) -> str:
        """Returns both sides in a few lines."""
        call = self.call.kind.name.lower()
        if self.call.command is not None:
            call += f" {type(self.call.command).__name__}"
        lines = [
            f"record {self.sequence}{_describe_place(self.call)} ({call} at {self.call.now_ns}) was decided otherwise",
            f"  journal: {_describe_result(self.recorded)}",
            f"  replay:  {_describe_result(self.replayed)}",
        ]
        lines += [f"    {effect}" for effect in self.effects[:_SHOWN]]
        if len(self.effects) > _SHOWN:
            lines.append(f"    and {len(self.effects) - _SHOWN} more")
        return "\n".join(lines)


class Configured(NamedTuple):
    """A command that brought a configuration into force, and its time."""

    command: RegisterManager | UpdateConfiguration
    at_ns: int


class ReplayNotes(NamedTuple):
    """Everything of a replayed place besides the engine, as values that a snapshot can contain.

    Fields are written by name. A field that is missing in a file of an earlier version gets its default.

    recent      effects that may not have arrived: of each record its number, its time and its effects
    configured  the last accepted configuration, and its time; ``None``: no manager is registered
    progress    the entries sent and received: the fields of ``ProgressValues``
    kept        the versions of the configuration: a ``JournalNote``, as text in which each character is a byte
    """

    recent: Sequence[tuple[int, int, Sequence[Effect]]] = ()
    configured: tuple[RegisterManager | UpdateConfiguration, int] | None = None
    progress: tuple[Any, ...] = ()
    kept: str = ""


class ReplayImpossible(Exception):
    """The records cannot be replayed from their beginning."""


@contextmanager
def pause_collecting() -> Iterator[None]:
    """Prevents the garbage collector from examining a growing cluster again and again while records are replayed."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


EngineMaker = Callable[[Beginning, int], RecordingEngine]
"""Makes an empty engine with the options of a beginning, for the place with a number."""


class ReplayedPlace:
    """One place in a replay: its engine, and everything besides the engine that its next core has to know."""

    def __init__(self, engine: RecordingEngine) -> None:
        self.engine: Final = engine
        """The engine after the last replayed record."""
        self.number: Final = engine.place
        """The number of the place."""
        self.configured: Configured | None = None
        """The last accepted configuration of the registered manager."""
        self.progress = Progress()
        """The progress of the entries sent and received between the manager and the core since the registration."""
        self.kept = KeptConfigurations()
        """The versions of the configuration, and the origin of the text in force."""
        self.effects_sum = 0
        """The sum of the effects of the epoch so far."""
        self.failure: Exception | None = None
        """The error of the last call that failed in this replay."""
        self._recent: deque[tuple[int, int, Sequence[Effect]]] = deque()

    @classmethod
    def begin_empty(cls, engine: RecordingEngine, at_ns: int) -> ReplayedPlace:
        """Returns a place that was opened at *at_ns* with *engine*, which is empty."""
        place = cls(engine)
        place.progress.begin_epoch(name_epoch(at_ns))
        return place

    @classmethod
    def restore(cls, engine: RecordingEngine, effects_sum: int, notes: ReplayNotes) -> ReplayedPlace:
        """Returns a place with *engine*, whose state is that of the journal at *effects_sum* and *notes*."""
        place = cls(engine)
        place.effects_sum = effects_sum
        place._recent.extend(notes.recent)
        place.configured = Configured(*notes.configured) if notes.configured is not None else None
        place.progress = Progress.of_values(ProgressValues(*notes.progress)) if notes.progress else Progress()
        if notes.kept:
            place._add_note(notes.kept.encode("latin-1"))
        return place

    def take_notes(self) -> ReplayNotes:
        """Returns everything that is needed to continue from here, besides the engine."""
        configured = tuple(self.configured) if self.configured is not None else None
        note = self.kept.as_note()
        kept = encode_note(note, self.kept.history).SerializeToString().decode("latin-1") if note is not None else ""
        return ReplayNotes(list(self._recent), cast("Any", configured), tuple(self.progress.as_values()), kept)

    def list_untold(self) -> list[Effect]:
        """Returns the effects that may not have arrived at the registered manager, in order."""
        return [effect for _, _, effects in self._recent for effect in effects]

    def begin_epoch(self, beginning: Beginning, at_ns: int) -> None:
        """Continues in an epoch that begins at *at_ns* with the options of *beginning*."""
        self.effects_sum = 0
        self.progress.begin_epoch(name_epoch(at_ns))
        self.engine.begin_epoch(beginning.options, at_ns)

    def play(self, record: Record, *, delivered: int, last_ns: int) -> tuple[CallResult, Sequence[Effect]]:
        """Makes the call of *record* and returns the result and the effects.

        *delivered* is the record up to which the transport had accepted everything, and *last_ns* the time of the
        journal then.
        """
        call, outcome = record.call, record.result.outcome
        effects: Sequence[Effect] = ()
        if outcome is not CallOutcome.FAILED:  # The core that failed has continued as if it had not made the call.
            outcome, effects = self.make_call(call)
        if effects:
            self.effects_sum = sum_effects(effects, self.effects_sum)
        self._note_configuration(call, outcome)
        self._take_note(call)
        self._note_recent(record, outcome, effects)
        self._note_progress(call, outcome, effects)
        self.drop_delivered(delivered, last_ns)
        return CallResult(outcome, len(effects), self.effects_sum), effects

    def make_call(self, call: EngineCall) -> tuple[CallOutcome, Sequence[Effect]]:
        """Makes *call*, and returns its outcome and its effects."""
        engine = self.engine
        try:
            if call.kind is CallKind.COMMAND:
                assert call.command is not None, "read_block sees to it"
                return CallOutcome.DONE, engine.apply(call.command, call.now_ns)
            if call.kind is CallKind.SLICE:
                return CallOutcome.DONE, engine.cycle(call.now_ns, call.budget).effects
            if call.kind is CallKind.REFUSAL:
                assert call.command is not None, "read_block sees to it"
                return CallOutcome.DONE, refuse_entries(call.command)
            if call.kind is CallKind.PREEMPTION:
                return CallOutcome.DONE, engine.preempt(call.now_ns)
            if call.kind is CallKind.RECORD_EVENTS:
                engine.record_events()
        except (CommandRefused, ConfigError):
            return CallOutcome.REFUSED, ()
        except Exception as error:  # noqa: BLE001 - a bug of the engine belongs to what happened
            self.failure = error
            return CallOutcome.FAILED, ()
        return CallOutcome.DONE, ()

    def drop_delivered(self, delivered: int, last_ns: int) -> None:
        """Drops the effects that need not be sent again, because they are old and *delivered*."""
        recent, oldest_ns = self._recent, last_ns - TOLD_AGAIN_NS
        while recent and recent[0][0] <= delivered and recent[0][1] < oldest_ns:
            recent.popleft()

    def _note_configuration(self, call: EngineCall, outcome: CallOutcome) -> None:
        command = call.command
        if isinstance(command, RegisterManager | UpdateConfiguration) and outcome is CallOutcome.DONE:
            self.configured = Configured(command, call.now_ns)
        elif not self.engine.rm_id:
            self.configured = None

    def _take_note(self, call: EngineCall) -> None:
        if call.kind is CallKind.NOTE:
            try:
                self._add_note(call.note)
            except ValueError as error:
                raise ReplayImpossible(str(error)) from error

    def _add_note(self, note: bytes) -> None:
        self.kept.take_note(decode_note(pb.JournalNote.FromString(note), self.kept.history))

    def _note_progress(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        command, receipt = call.command, call.receipt
        if isinstance(command, RegisterManager | UnregisterManager):
            if outcome is CallOutcome.DONE or not self.engine.rm_id:
                begun = receipt if isinstance(receipt, Begun) and outcome is CallOutcome.DONE else None
                self.progress.begin_registration(begun)
            return
        if outcome is not CallOutcome.FAILED:  # What was set aside is applied entry by entry, or refused.
            self.progress.note_receipt(receipt)
        if effects:
            self.progress.note_decided(effects)

    def _note_recent(self, record: Record, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        command = record.call.command
        if isinstance(command, RegisterManager | UnregisterManager) and outcome is CallOutcome.DONE:
            self._recent.clear()  # Effects of the removal of an earlier registration are sent to no shim.
        elif sent := [effect for effect in effects if type(effect) not in RECORDS]:
            # Events are not sent with the responses, and there are more of them than of everything else.
            self._recent.append((record.sequence, record.call.now_ns, sent))


class Replay:
    """Replays records in the engines of their places. ``places``: the places after the last record, by their numbers,
    in the order in which they were opened; there are none before the first life has begun.

    *only*: see the attribute.
    """

    def __init__(self, make_engine: EngineMaker = RecordingEngine.begin_empty, *, only: int | None = None) -> None:
        self.make_engine: Final = make_engine
        """Makes the empty engines of places."""
        self.only: Final = only
        """The number of the only place whose records are replayed; ``None``: those of all are."""
        self.places: dict[int, ReplayedPlace] = {}
        self.last_place = 0
        """The greatest number that was given to a place."""
        self.records = 0
        self.effects = 0
        self.last_ns = 0
        self.outcome = CallOutcome.DONE
        self.last_effects: Sequence[Effect] = ()
        """The outcome and the effects of the last call."""
        self._delivered = 0

    @property
    def first(self) -> ReplayedPlace | None:
        """Returns the place that was opened first, or ``None`` if no life has begun."""
        return next(iter(self.places.values()), None)

    @property
    def engine(self) -> RecordingEngine | None:
        """Returns the engine of the first place, or ``None`` if no life has begun."""
        return self.first.engine if self.first is not None else None

    def start_from(self, places: Iterable[ReplayedPlace], at_ns: int, delivered: int, last_place: int) -> None:
        """Continues with *places*, whose state is that of the journal at these numbers."""
        self.places = {place.number: place for place in places}
        self.last_ns, self._delivered, self.last_place = at_ns, delivered, last_place

    def begin_afresh(self, beginning: Beginning, at_ns: int) -> None:
        """Continues at *at_ns* with one place, whose engine is empty."""
        self.places = {}
        self.last_place = 0
        if not self.only:
            self._open_place(beginning, 0, at_ns)

    def play(self, record: Record, delivered: int = 0) -> Difference | None:
        """Makes the call of *record*. Returns the difference if it had another result.

        *delivered* is the record up to which the transport had accepted everything at that time. Raises
        :class:`ReplayImpossible` if the place of the record was not opened.
        """
        call = record.call
        self.records += 1
        self.last_ns = max(self.last_ns, call.now_ns)
        self._delivered = max(self._delivered, delivered)
        self.outcome, self.last_effects = CallOutcome.DONE, ()
        if call.kind is CallKind.BEGIN:
            self._begin_epoch(call)
        elif self.only is not None and call.place != self.only:
            return None
        elif call.kind is CallKind.OPEN:
            assert call.beginning is not None, "read_block sees to it"
            self._open_place(call.beginning, call.place, call.now_ns)
        elif call.kind is CallKind.CLOSE:
            self._find_place(call)
            del self.places[call.place]
        else:
            place = self._find_place(call)
            replayed, effects = place.play(record, delivered=self._delivered, last_ns=self.last_ns)
            self.outcome, self.last_effects = replayed.outcome, effects
            self.effects += len(effects)
            recorded = record.result
            if (replayed.outcome, len(effects)) != (recorded.outcome, recorded.effects) or (
                effects and replayed.effects_sum != recorded.effects_sum
            ):
                return Difference(record.sequence, call, recorded, replayed, effects)
        return None

    def repeat_failure(self, record: Record) -> Exception | None:
        """Makes the call of *record*, the last replayed record of its place, which failed in the core that made it.
        Returns the error with which it fails now, or ``None`` if it does not fail. Nothing can be replayed after
        this."""
        place = self._find_place(record.call)
        place.failure = None
        place.make_call(record.call)
        return place.failure

    def play_all(self, records: Iterable[Record]) -> Difference | None:
        """Replays *records* up to the first one with another result, and returns that difference."""
        return next((found for record in records if (found := self.play(record)) is not None), None)

    def describe_last(self, record: Record) -> str:
        """Returns the call of *record*, which was replayed last, and its effects, as text."""
        call = record.call
        what = call.kind.name.lower() if call.command is None else str(call.command)
        lines = [f"{record.sequence}{_describe_place(call)} {call.now_ns} {what}"]
        if self.outcome is not CallOutcome.DONE:
            lines.append(f"  {self.outcome.name.lower()}")
        return "\n".join(lines + [f"  {effect}" for effect in self.last_effects])

    def drop_delivered(self) -> None:
        """Drops the effects of all places that need not be sent again."""
        for place in self.places.values():
            place.drop_delivered(self._delivered, self.last_ns)

    def _find_place(self, call: EngineCall) -> ReplayedPlace:
        place = self.places.get(call.place)
        if place is None:
            missing = f"place {call.place} is not open" if self.places else "they do not begin where an engine did"
            raise ReplayImpossible(f"the records cannot be replayed: {missing}")
        return place

    def _open_place(self, beginning: Beginning, number: int, at_ns: int) -> None:
        self.last_place = max(self.last_place, number)
        self.places[number] = ReplayedPlace.begin_empty(self.make_engine(beginning, number), at_ns)

    def _begin_epoch(self, call: EngineCall) -> None:
        assert call.beginning is not None, "read_block sees to it"
        if call.beginning.afresh:
            self.begin_afresh(call.beginning, call.now_ns)
        elif not self.places and self.only is None:
            raise ReplayImpossible("the records do not begin where an engine did")
        else:
            for place in self.places.values():
                place.begin_epoch(call.beginning, call.now_ns)


def name_epoch(at_ns: int) -> str:
    """Returns the name of the epoch that began at *at_ns*. If two epochs have the same number, one was lost with the
    newest commits of a database, and the other one began at another time."""
    return f"{at_ns:x}"


def _describe_place(call: EngineCall) -> str:
    """Returns the place of *call* as text, which is empty for the first place of a life."""
    return f" (place {call.place})" if call.place else ""


def _describe_result(result: CallResult) -> str:
    return f"{result.outcome.name.lower()}, {result.effects} effects, sum {result.effects_sum:08x}"
