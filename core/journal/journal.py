"""The journal of one core: opened, played, written, closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.archive.database import DatabaseTooNew
from kornel.core.journal.calls import Beginning, CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.committer import Committer, StoreProblem
from kornel.core.journal.following import Follower
from kornel.core.journal.gate import JournalGate, Responses
from kornel.core.journal.lease import LeaseKeeper
from kornel.core.journal.notes import encode_note
from kornel.core.journal.reading import read_records
from kornel.core.journal.recording import RecordingEngine
from kornel.core.journal.records import Block, BlockWriter, RecordDamaged
from kornel.core.journal.replay import Replay, ReplayImpossible, name_epoch, pause_collecting
from kornel.core.journal.settings import JournalSettings
from kornel.core.journal.store import STORE_ERRORS, JournalStore, StoreEnd, StoreTaken, describe_error
from kornel.core.journal.sync import JournalSync
from kornel.core.service.configuration_keeping import ConfigurationNote
from kornel.core.service.durations import Durations

_REPORTED_EVERY: Final = 100_000
"""The records after which a replay at the start says in the log how far it is."""

WHAT_TO_DO: Final = "start with --journal-afresh, or with another journal: the shim registers again then"


class JournalUnusable(Exception):
    """The journal cannot be written, or the engine cannot be made from it."""


class JournalStatus(NamedTuple):
    """The state of the journal.

    last_record     number of the last record
    last_durable    number of the last record that is durable
    sets_waiting    sets of effects that wait for that at the gate
    problem         what is wrong; empty: nothing
    last_commit_ns  time of the first record of the block that was committed last; 0: none yet
    commits         the times that commits took
    """

    journal: str
    sync: str
    epoch: int
    last_record: int
    last_durable: int
    sets_waiting: int
    problem: str
    last_commit_ns: int
    bytes_written: int
    commits: Durations


class Journal:
    """A core's journal. Use: :meth:`open`, ``start()``, ``close()``."""

    def __init__(
        self,
        settings: JournalSettings,
        store: JournalStore,
        engine: RecordingEngine,
        writer: BlockWriter,
        end: StoreEnd,
        replay: Replay,
        logger: FilteringBoundLogger,
        lease: LeaseKeeper | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._lease = lease
        self._logger = logger
        self._epoch = writer.epoch
        self.engine = engine
        """The engine, as the journal left it, whose calls are written from now on."""
        self.untold = replay.list_untold()
        """The effects that may not have arrived when the last core ended; they are sent once more."""
        self.configured = replay.configured
        """The configuration that the engine goes on with; ``None``: nobody is registered."""
        self.kept = replay.kept
        """The versions of the configuration that the cores before this one noted, and more are added to."""
        self.progress = replay.progress
        """The entries that went each way between the manager and the cores before this one."""
        self.progress.begin_epoch(name_epoch(end.at_ns))
        self.last_ns = end.at_ns
        """The core's time goes on from here."""
        self.responses: Responses | None = None
        """The responses of the core, which are sent once more by the next one if the transport has not taken them."""
        self.on_problem: Callable[[str], None] = lambda problem: None
        """Called in the event loop with what is wrong, and with an empty text when it is over."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._committer = Committer(
            store,
            writer,
            settings,
            life=end.life,
            delivered=end.delivered,
            on_durable=lambda sequence: self._call_in_loop(lambda: self.gate.note_durable(sequence)),
            on_problem=lambda problem: self._call_in_loop(lambda: self._note_problem(problem)),
            on_bug=lambda error: logger.critical("bug in the journal, nothing is written any more", exc_info=error),
        )
        self.gate = JournalGate(self._committer, settings, lambda: self.responses)
        engine.record_calls(self._committer, end.at_ns)

    @classmethod
    def open(
        cls,
        settings: JournalSettings,
        beginning: Beginning,
        *,
        now_ns: Callable[[], int],
        logger: FilteringBoundLogger,
        make_engine: Callable[[Beginning], RecordingEngine] = RecordingEngine.begin_empty,
    ) -> Journal:
        """Opens the journal and makes the engine from it. Raises :class:`JournalUnusable`.

        *beginning*: the version of this core and its options.
        """
        try:
            durable = settings.sync is JournalSync.FULL
            store = JournalStore(settings.url, settings.patience_s, durable=durable)
        except ImportError as error:
            raise JournalUnusable(f"{settings.shown}: {error}") from error
        try:
            store.open()
            return cls._begin_epoch(settings, store, beginning, now_ns, logger, make_engine)
        except (StoreTaken, DatabaseTooNew) as error:
            store.close()
            raise JournalUnusable(f"{settings.shown}: {error}") from error
        except STORE_ERRORS as error:
            store.close()
            raise JournalUnusable(f"{settings.shown}: {describe_error(error)}") from error
        except BaseException:
            store.close()
            raise

    @classmethod
    def _begin_epoch(
        cls,
        settings: JournalSettings,
        store: JournalStore,
        beginning: Beginning,
        now_ns: Callable[[], int],
        logger: FilteringBoundLogger,
        make_engine: Callable[[Beginning], RecordingEngine],
    ) -> Journal:
        end = store.find_end()
        replay = Replay(make_engine)
        afresh = settings.afresh or not end.sequence
        if afresh:
            replay.begin_afresh(beginning)
        else:
            _play_life(store, end, beginning, replay, logger, settings)
        assert replay.engine is not None, "a life begins with an engine"
        replay.engine.set_reservation(beginning.reservation_delay_ns, beginning.reservation_percent)
        writer = BlockWriter(end.sequence, end.chain, end.epoch + 1)
        at_ns = max(now_ns(), replay.last_ns, end.at_ns)
        delivered = writer.sequence if afresh else end.delivered
        block = _make_first_block(writer, beginning, at_ns, delivered, afresh=afresh)
        life = block.first if afresh else end.life
        store.append_block(block, life)
        now_at = StoreEnd(block.last, block.epoch, life, at_ns, block.chain, delivered)
        return cls(settings, store, replay.engine, writer, now_at, replay, logger)

    def start(self) -> None:
        """Begin to write, for the event loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._committer.start()
        if self._lease is not None:
            self._lease.on_lost = lambda reason: self._note_problem(StoreProblem(reason, lost=True))

    def take_note(self, note: ConfigurationNote) -> None:
        """Have *note* written for the core after this one."""
        self.kept.take_note(note)
        self.engine.record_note(encode_note(note, self.kept.history).SerializeToString())

    async def hand_over(self) -> None:
        """Have another core lead, once nothing more is to be written."""
        if self._lease is not None:
            await self._lease.hand_over()

    def status(self) -> JournalStatus:
        """Returns the state as of now."""
        committer, problem = self._committer, self.gate.problem
        return JournalStatus(
            journal=self._settings.shown,
            sync=str(self._settings.sync),
            epoch=self._epoch,
            last_record=committer.added,
            last_durable=self.gate.durable,
            sets_waiting=self.gate.waiting,
            problem=problem.text if problem is not None else "",
            last_commit_ns=committer.last_commit_ns,
            bytes_written=committer.bytes,
            commits=committer.commits,
        )

    def close(self, patience_s: float) -> None:
        """Block while what was decided is written, for at most *patience_s* seconds, and let go of the store."""
        if self._loop is not None and not self._committer.close(patience_s):
            self._logger.error(
                "journal closed before all was written", durable=self.gate.durable, added=self._committer.added
            )
        self._store.close()
        if self._lease is not None:
            self._lease.close()

    def _note_problem(self, problem: StoreProblem | None) -> None:
        self.gate.note_problem(problem)
        if problem is None:
            self._logger.info("journal is written again")
        else:
            self._logger.error("journal cannot be written, nothing is taken", problem=problem.text, lost=problem.lost)
        self.on_problem(problem.text if problem is not None else "")

    def _call_in_loop(self, call: Callable[[], None]) -> None:
        """Has the event loop make *call*; the thread may outlive the loop."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)


class NextEpoch:
    """The epoch that a core begins which takes over where *follower* is; *lease*: the one that it has taken."""

    def __init__(
        self, follower: Follower, beginning: Beginning, lease: LeaseKeeper, at_ns: int, *, afresh: bool = False
    ) -> None:
        """*afresh*: with an empty engine. Nothing is written before :meth:`append_first`."""
        at = follower.point
        self._follower = follower
        self._lease = lease
        self._beginning = beginning
        self._afresh = afresh
        self._writer = BlockWriter(at.sequence, at.chain, lease.epoch)
        delivered = at.sequence if afresh else at.delivered
        self._block = _make_first_block(self._writer, beginning, at_ns, delivered, afresh=afresh)
        life = self._block.first if afresh else at.life
        self._end = StoreEnd(self._block.last, lease.epoch, life, at_ns, self._block.chain, delivered)

    def append_first(self, store: JournalStore) -> None:
        """Writes the first record of the epoch; may be called again after an error. Raises as
        :meth:`JournalStore.append_block` does: :class:`StoreMoved` if there is more to be played before."""
        store.append_block(self._block, self._end.life)

    def begin_journal(self, settings: JournalSettings, store: JournalStore, logger: FilteringBoundLogger) -> Journal:
        """Returns the journal of the epoch, whose first record is written."""
        replay = self._follower.replay
        if self._afresh:
            replay.begin_afresh(self._beginning)
        engine = replay.engine
        assert engine is not None, "a life begins with an engine"
        engine.set_reservation(self._beginning.reservation_delay_ns, self._beginning.reservation_percent)
        return Journal(settings, store, engine, self._writer, self._end, replay, logger, self._lease)


def _make_first_block(writer: BlockWriter, beginning: Beginning, at_ns: int, delivered: int, *, afresh: bool) -> Block:
    begin = EngineCall(CallKind.BEGIN, at_ns, beginning=beginning._replace(afresh=afresh))
    return writer.make_block([(begin, CallResult(CallOutcome.DONE, 0, 0))], delivered)


def _play_life(
    store: JournalStore,
    end: StoreEnd,
    beginning: Beginning,
    replay: Replay,
    logger: FilteringBoundLogger,
    settings: JournalSettings,
) -> None:
    """Plays the records since the engine's life began into *replay*. Raises :class:`JournalUnusable`."""
    logger.info("journal is replayed", journal=settings.shown, first=end.life, last=end.sequence)
    try:
        with pause_collecting():
            _play_records(store, end, beginning, replay, logger, settings)
    except (RecordDamaged, ReplayImpossible) as error:
        raise JournalUnusable(f"{settings.shown}: {error}; {WHAT_TO_DO}") from error
    logger.info("journal was replayed", records=replay.records, effects=replay.effects)


def _play_records(
    store: JournalStore,
    end: StoreEnd,
    beginning: Beginning,
    replay: Replay,
    logger: FilteringBoundLogger,
    settings: JournalSettings,
) -> None:
    for record, delivered in read_records(store, end.life):
        wrote = record.call.beginning
        if wrote is not None and wrote.version != beginning.version:
            raise JournalUnusable(
                f"{settings.shown}: record {record.sequence} on were written by version {wrote.version}, and"
                f" version {beginning.version} does not decide them again; {WHAT_TO_DO}"
            )
        found = replay.play(record, delivered)
        if found is not None:
            raise JournalUnusable(f"{settings.shown}: {found.describe()}\n{WHAT_TO_DO}")
        if replay.records % _REPORTED_EVERY == 0:
            logger.info("journal is replayed", record=record.sequence, last=end.sequence)
