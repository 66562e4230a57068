"""The journal of one core: it is opened, replayed, written and closed.

Everything that must have one order or one writer is here, once for all managers: the epoch, the lease, the thread that
commits, the snapshots. What belongs to one manager is in its place (:mod:`kornel.core.journal.writing.places`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.archive.database import DatabaseTooNew
from kornel.core.journal.content.calls import Beginning, CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.records import Block, BlockWriter
from kornel.core.journal.content.replay import EngineMaker, Replay, ReplayedPlace
from kornel.core.journal.database.choices import JournalSync, JournalUnusable
from kornel.core.journal.database.lease import UNANSWERED_S, LeaseKeeper
from kornel.core.journal.database.settings import JournalSettings
from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, LogCut, StoreEnd, StoreTaken, describe_error
from kornel.core.journal.following.following import Follower, Obstacle
from kornel.core.journal.following.starting import Started, play_all
from kornel.core.journal.snapshot_keeper import SnapshotKeeper, SnapshotStatus
from kornel.core.journal.snapshots.snapshot_store import opened_snapshots
from kornel.core.journal.writing.committer import Committer, StoreProblem
from kornel.core.journal.writing.gate import JournalGates
from kornel.core.journal.writing.places import JournalPlace
from kornel.core.service.metrics.metrics import Durations

_UNANSWERED: Final = StoreProblem(f"the database has not answered an append for {UNANSWERED_S:g} s")

WHAT_TO_DO: Final = "start with --journal-afresh, or with another journal: the shim registers again then"

WHAT_TO_DO_ABOUT_VERSIONS: Final = (
    "start that version once more and end it with SIGTERM, so that it leaves a snapshot, or start this one with"
    " --journal-afresh: the shim registers again then"
)


@contextmanager
def naming_problems(settings: JournalSettings) -> Iterator[None]:
    """Raises :class:`JournalUnusable`, with the name of the journal, instead of the errors with which opening one may
    fail."""
    try:
        yield
    except (ImportError, StoreTaken, LogCut, DatabaseTooNew) as error:
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
        beginning: Beginning,
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
        self._beginning = beginning
        self._make_engine = replay.make_engine
        self._last_place = replay.last_place
        self.last_ns = end.at_ns
        """The time from which the core's clock continues."""
        self.on_problem: Callable[[str], None] = lambda problem: None
        """Called in the event loop with a problem, and with an empty text when it is over."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._committer = Committer(
            store,
            writer,
            settings,
            life=end.life,
            delivered=end.delivered,
            on_durable=lambda sequence: self._call_in_loop(lambda: self._note_durable(sequence)),
            on_problem=lambda problem: self._call_in_loop(lambda: self._note_problem(problem)),
            on_bug=lambda error: logger.critical("bug in the journal, nothing is written any more", exc_info=error),
        )
        self._snapshots: SnapshotKeeper | None = None
        self.version = ""
        """The version of this core."""
        self._gates = JournalGates(self._committer, settings)
        self._places: list[JournalPlace] = []
        for replayed in replay.places.values():
            self._adopt_place(replayed, end.at_ns)
        self._close_vacant()

    @classmethod
    def open(
        cls,
        settings: JournalSettings,
        beginning: Beginning,
        *,
        now_ns: Callable[[], int],
        logger: FilteringBoundLogger,
        make_engine: EngineMaker = RecordingEngine.begin_empty,
    ) -> Journal:
        """Opens the journal and makes the engine from it. Raises :class:`JournalUnusable`.

        *beginning* contains the version of this core and its options.
        """
        with naming_problems(settings), ExitStack() as opened:
            store = JournalStore(settings.url, settings.patience_s, durable=settings.sync is JournalSync.FULL)
            opened.callback(store.close)
            if lost := store.open(accept_loss=settings.accept_loss or settings.afresh):
                logger.warning("journal goes on without what it has lost", lost=lost)
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
        make_engine: EngineMaker,
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
            self._lease.on_lost = self._note_lost
            self._lease.find_unanswered = self._find_unanswered
            if self._lease.lost:
                self._note_lost(self._lease.lost)

    @property
    def places(self) -> Sequence[JournalPlace]:
        """Returns the places that are open, the longest standing first. There is always one."""
        return tuple(self._places)

    @property
    def first(self) -> JournalPlace:
        """Returns the place that has stood the longest."""
        return self._places[0]

    def find_place(self, engine: object) -> JournalPlace | None:
        """Returns the place of *engine*, or ``None`` if it is closed."""
        return next((place for place in self._places if place.engine is engine), None)

    def open_place(self) -> JournalPlace:
        """Opens a further place with an empty engine. Raises :class:`ServiceError` while nothing can be written."""
        self._gates.check_intake()
        now_ns = max(place.engine.last_ns for place in self._places)
        self._last_place += 1
        opened = ReplayedPlace.begin_empty(self._make_engine(self._beginning, self._last_place), now_ns)
        place = self._adopt_place(opened, now_ns)
        call = EngineCall(CallKind.OPEN, now_ns, beginning=self._beginning, place=place.number)
        place.add(call, CallOutcome.DONE, ())
        return place

    def close_place(self, place: JournalPlace) -> None:
        """Closes *place*, one of several: nobody continues with its engine."""
        self._places.remove(place)
        place.engine.stop_recording()
        place.add(EngineCall(CallKind.CLOSE, place.engine.last_ns, place=place.number), CallOutcome.DONE, ())
        place.gate.close()

    def _adopt_place(self, replayed: ReplayedPlace, now_ns: int) -> JournalPlace:
        place = JournalPlace(replayed, self._gates.open_gate(), self._committer, now_ns)
        self._places.append(place)
        return place

    def _close_vacant(self) -> None:
        """Closes the places where no manager is registered, except the first if there is no other. Their managers were
        unregistered, or had not registered when the last core ended."""
        for place in self.places:
            if not place.engine.rm_id and len(self._places) > 1:
                self.close_place(place)

    @property
    def lost(self) -> bool:
        """Tells whether this core never goes on, because another one may lead."""
        problem = self._gates.problem
        return (problem is not None and problem.lost) or (self._lease is not None and bool(self._lease.lost))

    @property
    def lapsed(self) -> bool:
        """Tells whether another core may lead at this moment, which need not be decided yet."""
        return self.lost or (self._lease is not None and self._lease.lapsed)

    async def hand_over(self) -> None:
        """Let another core lead, once nothing more is to be written."""
        if self._lease is not None:
            await self._lease.hand_over()

    @property
    def settings(self) -> JournalSettings:
        """Returns the settings of the journal."""
        return self._settings

    def status(self) -> JournalStatus:
        """Returns the present state."""
        committer, problem = self._committer, self._gates.problem
        return JournalStatus(
            journal=self._settings.shown,
            sync=str(self._settings.sync),
            epoch=self._epoch,
            last_record=committer.added,
            last_durable=self._gates.durable,
            sets_waiting=self._gates.waiting,
            problem=problem.text if problem is not None else "",
            last_commit_ns=committer.last_commit_ns,
            bytes_written=committer.bytes,
            commits=committer.commits,
            snapshots=self._snapshots.status if self._snapshots is not None else SnapshotStatus(),
        )

    def close(self, patience_s: float) -> None:
        """Block while all decisions are written, for at most *patience_s* seconds, and close the store."""
        all_written = self._loop is None or self._committer.close(0.0 if self.lost else patience_s)
        if not all_written:
            self._logger.error(
                "journal closed before all was written", durable=self._gates.durable, added=self._committer.added
            )
        self._store.close()
        if self._snapshots is not None:
            if all_written and self._loop is not None:
                self._snapshots.end()
            else:
                self._snapshots.close()
        if self._lease is not None:
            self._lease.close()

    def _note_lost(self, reason: str) -> None:
        self._note_problem(StoreProblem(reason, lost=True))

    def _note_durable(self, sequence: int) -> None:
        if self._gates.problem is _UNANSWERED:
            self._note_problem(None)
        elif self._lease is not None:
            self._lease.note_fast_append()
        self._gates.note_durable(sequence)

    def _find_unanswered(self) -> int:
        """Returns the number of the record whose append has not been answered for too long, and says so; 0: there is
        none."""
        record = self._committer.find_unanswered(UNANSWERED_S)
        if record and self._gates.problem is None:
            self._note_problem(_UNANSWERED)
        return record

    def _note_problem(self, problem: StoreProblem | None) -> None:
        if self._gates.problem is not None and self._gates.problem.lost:
            return
        self._gates.note_problem(problem)
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
            replay.begin_afresh(self._beginning, self._end.at_ns)
        else:
            replay.drop_delivered()
            for place in replay.places.values():
                place.begin_epoch(self._beginning, self._end.at_ns)
        journal = Journal(
            settings,
            store,
            self._beginning,
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
