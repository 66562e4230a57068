"""The journal of one core: it is opened, replayed, written and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.archive.database import DatabaseTooNew
from kornel.core.journal.calls import Beginning, CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.committer import Committer, StoreProblem
from kornel.core.journal.following import Follower, Obstacle
from kornel.core.journal.gate import JournalGate, Responses
from kornel.core.journal.lease import LeaseKeeper
from kornel.core.journal.notes import encode_note
from kornel.core.journal.recording import RecordingEngine
from kornel.core.journal.records import Block, BlockWriter
from kornel.core.journal.replay import Replay, name_epoch
from kornel.core.journal.settings import JournalSettings
from kornel.core.journal.snapshot_keeper import SnapshotKeeper, SnapshotStatus
from kornel.core.journal.snapshot_store import opened_snapshots
from kornel.core.journal.starting import Started, play_all
from kornel.core.journal.store import STORE_ERRORS, JournalStore, StoreEnd, StoreTaken, describe_error
from kornel.core.journal.sync import JournalSync
from kornel.core.service.configuration_keeping import ConfigurationNote
from kornel.core.service.durations import Durations
from kornel.core.snapshot.engines import has_work_under_way

WHAT_TO_DO: Final = "start with --journal-afresh, or with another journal: the shim registers again then"

WHAT_TO_DO_ABOUT_VERSIONS: Final = (
    "start that version once more and end it with SIGTERM, so that it leaves a snapshot, or start this one with"
    " --journal-afresh: the shim registers again then"
)


class JournalUnusable(Exception):
    """The journal cannot be written, or the engine cannot be made from it."""


@contextmanager
def naming_problems(settings: JournalSettings) -> Iterator[None]:
    """Raises :class:`JournalUnusable`, with the name of the journal, instead of the errors with which opening one may
    fail."""
    try:
        yield
    except (ImportError, StoreTaken, DatabaseTooNew) as error:
        raise JournalUnusable(f"{settings.shown}: {error}") from error
    except STORE_ERRORS as error:
        raise JournalUnusable(f"{settings.shown}: {describe_error(error)}") from error


class JournalStatus(NamedTuple):
    """The state of the journal.

    last_record     number of the last record
    last_durable    number of the last record that is durable
    sets_waiting    sets of effects that wait at the gate until their record is durable
    problem         the present problem; empty: none
    last_commit_ns  time of the first record of the block that was committed last; 0: none yet
    commits         the durations of commits
    snapshots       the snapshots with which the next core begins
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
    snapshots: SnapshotStatus = SnapshotStatus()


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
        """The engine in its state at the end of the journal. Its calls are written from now on."""
        self.untold = replay.list_untold()
        """The effects that may not have arrived when the last core ended; they are sent again."""
        self.configured = replay.configured
        """The configuration with which the engine continues; ``None``: no manager is registered."""
        self.kept = replay.kept
        """The versions of the configuration that earlier cores have noted. Further ones are added."""
        self.progress = replay.progress
        """The progress of the entries sent and received between the manager and the earlier cores."""
        self.progress.begin_epoch(name_epoch(end.at_ns))
        self.last_ns = end.at_ns
        """The time from which the core's clock continues."""
        self.responses: Responses | None = None
        """The counts of the core's responses. The next core sends those again that the transport has not accepted."""
        self.on_problem: Callable[[str], None] = lambda problem: None
        """Called in the event loop with a problem, and with an empty text when it is over."""
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
        self._snapshots: SnapshotKeeper | None = None
        self.version = ""
        """The version of this core."""
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

        *beginning* contains the version of this core and its options.
        """
        with naming_problems(settings), ExitStack() as opened:
            store = JournalStore(settings.url, settings.patience_s, durable=settings.sync is JournalSync.FULL)
            opened.callback(store.close)
            store.open()
            journal = cls._begin_epoch(settings, store, beginning, now_ns, logger, make_engine)
            opened.pop_all()
        return journal

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
        follower = Follower(store, version=beginning.version, make_engine=make_engine)
        started = follow_to_end(follower, settings, logger)
        at_ns = max(now_ns(), follower.replay.last_ns, follower.end.at_ns)
        afresh = settings.afresh or not follower.sequence
        epoch = NextEpoch(follower, beginning, follower.end.epoch + 1, at_ns, started, afresh=afresh)
        epoch.append_first(store)
        return epoch.begin_journal(settings, store, logger)

    def keep_snapshots(self, version: str, began: Started, steps: int) -> None:
        """Have snapshots made once this core writes. *version* is that of this core. *began* describes the beginning of
        its replay, after which *steps* records and effects were replayed."""
        self.version = version
        self._snapshots = SnapshotKeeper(
            self._settings,
            version,
            count_steps=lambda: self._committer.steps,
            newest=SnapshotStatus(began.snapshot, began.at_ns, began.size),
            waiting_steps=steps,
            logger=self._logger,
        )

    def start(self) -> None:
        """Begin to write, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._committer.start()
        if self._snapshots is not None:
            self._snapshots.start()
        if self._lease is not None:
            self._lease.on_lost = lambda reason: self._note_problem(StoreProblem(reason, lost=True))

    def take_note(self, note: ConfigurationNote) -> None:
        """Write *note* for the next core."""
        self.kept.take_note(note)
        self.engine.record_note(encode_note(note, self.kept.history).SerializeToString())

    async def hand_over(self) -> None:
        """Let another core lead, once nothing more is to be written."""
        if self._lease is not None:
            await self._lease.hand_over()

    @property
    def settings(self) -> JournalSettings:
        """Returns the settings of the journal."""
        return self._settings

    def has_work_under_way(self) -> bool:
        """Tells whether the engine has work that continues from slice to slice, so that no snapshot could be taken
        now."""
        return has_work_under_way(self.engine)

    def status(self) -> JournalStatus:
        """Returns the present state."""
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
            snapshots=self._snapshots.status if self._snapshots is not None else SnapshotStatus(),
        )

    def close(self, patience_s: float) -> None:
        """Block while all decisions are written, for at most *patience_s* seconds, and close the store."""
        all_written = self._loop is None or self._committer.close(patience_s)
        if not all_written:
            self._logger.error(
                "journal closed before all was written", durable=self.gate.durable, added=self._committer.added
            )
        self._store.close()
        if self._snapshots is not None:
            if all_written and self._loop is not None:
                self._snapshots.end()
            else:
                self._snapshots.close()
        if self._lease is not None:
            self._lease.close()

    def _note_problem(self, problem: StoreProblem | None) -> None:
        self.gate.note_problem(problem)
        if problem is None:
            self._logger.info("journal is written again")
        else:
            self._logger.error(
                "journal cannot be written, nothing is accepted", problem=problem.text, lost=problem.lost
            )
        self.on_problem(problem.text if problem is not None else "")

    def _call_in_loop(self, call: Callable[[], None]) -> None:
        """Makes *call* in the event loop. The thread may outlive the loop."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)


class NextEpoch:
    """The epoch of a core that takes over at the position of *follower*. *started* describes the beginning of its
    replay."""

    def __init__(
        self,
        follower: Follower,
        beginning: Beginning,
        epoch: int,
        at_ns: int,
        started: Started,
        *,
        lease: LeaseKeeper | None = None,
        afresh: bool = False,
    ) -> None:
        """Prepares the epoch. *lease* is the lease that the core has taken, if there is one. *afresh* says that it
        begins with an empty engine. Nothing is written before :meth:`append_first`."""
        at = follower.point
        self._follower = follower
        self._lease = lease
        self._beginning = beginning
        self._afresh = afresh
        self._started = started
        self._writer = BlockWriter(at.sequence, at.chain, epoch)
        delivered = at.sequence if afresh else at.delivered
        self._block = _make_first_block(self._writer, beginning, at_ns, delivered, afresh=afresh)
        life = self._block.first if afresh else at.life
        self._end = StoreEnd(self._block.last, epoch, life, at_ns, self._block.chain, delivered)

    def append_first(self, store: JournalStore) -> None:
        """Writes the first record of the epoch. It may be called again after an error. Raises the errors of
        :meth:`JournalStore.append_block`, such as :class:`StoreMoved` if there are further records to be replayed
        first."""
        store.append_block(self._block, self._end.life)

    def begin_journal(self, settings: JournalSettings, store: JournalStore, logger: FilteringBoundLogger) -> Journal:
        """Returns the journal of the epoch, whose first record has been written."""
        replay = self._follower.replay
        if self._afresh:
            replay.begin_afresh(self._beginning)
        engine = replay.engine
        assert engine is not None, "a life begins with an engine"
        beginning = self._beginning
        engine.begin_epoch(beginning.reservation_delay_ns, beginning.reservation_percent, self._end.at_ns)
        journal = Journal(
            settings,
            store,
            engine,
            self._writer,
            self._end,
            replay,
            logger,
            self._lease,
        )
        began = self._started
        journal.keep_snapshots(self._beginning.version, began, 0 if self._afresh else replay.records + replay.effects)
        return journal


def _make_first_block(writer: BlockWriter, beginning: Beginning, at_ns: int, delivered: int, *, afresh: bool) -> Block:
    begin = EngineCall(CallKind.BEGIN, at_ns, beginning=beginning._replace(afresh=afresh))
    return writer.make_block([(begin, CallResult(CallOutcome.DONE, 0, 0))], delivered)


def follow_to_end(
    follower: Follower,
    settings: JournalSettings,
    logger: FilteringBoundLogger,
    others_lead: Callable[[], bool] = lambda: False,
) -> Started:
    """Brings *follower* to the end of the journal, with or without replaying it, as the settings say.

    *others_lead* tells whether another core leads. Records that it writes in another version need not be replayed,
    because it leaves a snapshot when it ends. Raises :class:`JournalUnusable`, and the errors of the stores.
    """
    if settings.afresh:
        follower.skip_to_end()
        return Started()
    with opened_snapshots(settings.url, settings.patience_s, read_only=True) as snapshots:
        started = play_all(follower, snapshots, logger)
    problem, replay = follower.problem, follower.replay
    if problem is not None:
        if problem.obstacle is Obstacle.VERSION and others_lead():
            return started
        hint = WHAT_TO_DO_ABOUT_VERSIONS if problem.obstacle is Obstacle.VERSION else WHAT_TO_DO
        raise JournalUnusable(f"{settings.shown}: {problem.text}; {hint}")
    logger.info(
        "journal was replayed", snapshot=started.snapshot, records=replay.records, effects=replay.effects,
        last=follower.sequence,
    )  # fmt: skip
    return started
