"""A standby: a core that follows the journal, and takes over when no core leads.

One thread makes all accesses to the database. The records that it reads are replayed in the event loop, a few
milliseconds at a time, so that queries see the state between two records.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from operator import is_
from typing import Final, NamedTuple, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.replay import Configured, ReplayedPlace
from kornel.core.journal.database.choices import JournalSync, JournalUnusable
from kornel.core.journal.database.lease import LeaseKeeper, LeaseSight, LeaseTable, is_gone, name_holder
from kornel.core.journal.database.settings import JournalSettings
from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, StoreMoved, StoreTaken, describe_error
from kornel.core.journal.following.following import FetchedBlock, Follower, Obstacle
from kornel.core.journal.following.starting import Started, list_usable
from kornel.core.journal.journal import Journal, NextEpoch, follow_to_end, naming_problems
from kornel.core.journal.snapshots.snapshot_store import opened_snapshots
from kornel.core.journal.snapshots.snapshots import SnapshotUnusable
from kornel.core.service.configuration.configuration_history import ConfigurationState
from kornel.core.service.managers.standing import Role, Standing

POLL_S: Final = 0.04
"""The pause between two queries for new records."""

LOOK_S: Final = 0.2
"""The longest time between two queries of the lease."""

CLOSING_S: Final = 2.0
"""The longest wait at the end for a database that does not answer."""

TURN_S: Final = 0.004
"""The time for which records are replayed before other tasks may run."""

T = TypeVar("T")


class FollowedClock(Protocol):
    """The clock of a core that follows another one."""

    def now_ns(self) -> int:
        """Returns the core's own time."""

    def follow_time(self, at_ns: int, not_before_ns: int) -> None:
        """Set the clock to *at_ns*, the present time of the leader (0: unknown), but never before *not_before_ns*."""


class Followed(NamedTuple):
    """The places of the leader. ``changed``: those whose configuration, or the versions of it, are not as before."""

    places: Sequence[ReplayedPlace]
    changed: Sequence[ReplayedPlace]


class Standby:
    """The part of one core in a journal that several cores share. Use: :meth:`open`, then :meth:`start` and
    :meth:`stop`.

    Once it leads, only the journal that was passed to ``on_lead`` has to be closed.
    """

    def __init__(
        self,
        settings: JournalSettings,
        store: JournalStore,
        table: LeaseTable,
        beginning: Beginning,
        logger: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._store = store
        self._table = table
        self._started = Started()
        self._beginning = beginning
        self._logger = logger
        self.engine: Final = RecordingEngine.begin_empty(beginning)
        """The engine that follows that of the leader's first place. It is the same object in all lives."""
        self._follower = Follower(store, version=beginning.version, make_engine=self._empty_engine)
        self.standing: Final = Standing(shared=True)
        """The standing of the core."""
        self._lease = LeaseSight()
        self.standing.find_lease_age = lambda: self._lease.age_s
        self._looked_s = -math.inf
        self._holder = name_holder()
        self._address = ""
        self._clock: FollowedClock | None = None
        self._on_lead: Callable[[Journal], None] = lambda journal: None
        self._on_followed: Callable[[Followed], None] = lambda followed: None
        self._on_problem: Callable[[str], None] = lambda problem: None
        self._waits_for_end = False
        """Tells whether a core of another version leads, so that this core begins with the snapshot that the leader
        leaves at its end."""
        self._free_since_s = math.inf
        self._tried_snapshot = 0
        self._has_more = False
        """Tells whether the journal held more records at the last look than one query returns."""
        self._followed: dict[RecordingEngine, tuple[Configured | None, ConfigurationState | None]] = {}
        """The places that were followed last, by their engines, and what was known then of their configurations."""
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="standby")
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    def open(cls, settings: JournalSettings, beginning: Beginning, *, logger: FilteringBoundLogger) -> Standby:
        """Opens the journal and replays everything in it. Raises :class:`JournalUnusable`."""
        durable = settings.sync is JournalSync.FULL
        with naming_problems(settings), ExitStack() as opened:
            store = JournalStore(settings.url, settings.patience_s, durable=durable, fenced=True)
            standby = cls(settings, store, LeaseTable(settings.url), beginning, logger)
            opened.callback(standby._close)
            store.open()
            standby._play_what_is_there()
            opened.pop_all()
        return standby

    @property
    def sequence(self) -> int:
        """Returns the number of the last replayed record."""
        return self._follower.sequence

    @property
    def last_ns(self) -> int:
        """Returns the time of the last replayed record."""
        return self._follower.replay.last_ns

    async def start(
        self,
        clock: FollowedClock,
        address: str,
        *,
        on_lead: Callable[[Journal], None],
        on_followed: Callable[[Followed], None],
        on_problem: Callable[[str], None],
    ) -> None:
        """Checks once which core leads, takes over if none does, and follows the journal from then on.

        *address* is the address of this core for others when it leads. The event loop calls *on_lead* when this core
        takes over; before that, *on_followed* whenever a place was opened or closed, a configuration has come into
        force, or the leader has noted a version; and *on_problem* with a problem, and with an empty text when it is
        over.
        """
        self._clock, self._address = clock, address
        self._on_lead, self._on_followed, self._on_problem = on_lead, on_followed, on_problem
        self._note_followed()
        # A core that was started again need not wait for the lease of its former process to expire.
        await self._look_once(is_gone)
        if self._settings.afresh and not self.standing.leads:
            raise JournalUnusable(
                f"{self._settings.shown}: another core leads ({self._lease.view.address}), and goes on with what the"
                " journal holds; end it before you start one with --journal-afresh"
            )
        self._task = asyncio.create_task(self._follow_for_ever(), name="standby")

    async def stop(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if not self.standing.leads:
            # The thread finishes what it has begun, and returns its connection.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    await asyncio.to_thread(self._threads.shutdown)
            self._close()

    def _empty_engine(self, beginning: Beginning, place: int) -> RecordingEngine:
        if place:
            return RecordingEngine.begin_empty(beginning, place)
        self.engine.begin_again(beginning)
        return self.engine

    def _play_what_is_there(self) -> None:
        self._lease.note_view(self._table.read_lease())
        self._started = follow_to_end(self._follower, self._settings, self._logger, self._others_lead)
        self._waits_for_end = self._follower.problem is not None

    def _others_lead(self) -> bool:
        """Tells whether another core leads, once that is known."""
        before = self._lease.view
        while not self._lease.free and not is_gone(before.holder):
            self._lease.note_view(self._table.read_lease())
            if self._lease.view.is_renewal_of(before):
                return not self._lease.free
            time.sleep(LOOK_S)
        return False

    async def _follow_for_ever(self) -> None:
        try:
            while not self.standing.leads:
                await asyncio.sleep(0 if self._has_more else POLL_S)
                await self._look_once()
        except Exception as error:
            # Callers have to learn that this core no longer follows.
            self._logger.critical("bug in the standby, it no longer follows the leader", exc_info=error)
            self.standing.give_up(f"bug in the standby: {type(error).__name__}: {error}")
            self._on_problem(self.standing.problem)

    async def _look_once(self, is_gone: Callable[[str], bool] = lambda holder: False) -> None:
        """Replays the new records, and takes over if no core leads."""
        began = time.monotonic()
        self._has_more = False
        try:
            if began - self._looked_s >= LOOK_S:
                self._lease.note_view(await self._in_thread(self._table.read_lease))
                self._looked_s = began
                self._note_lease()
            if self._waits_for_end and not await self._begin_at_end():
                return
            caught_up = await self._follow_once(began)
            if caught_up and (self._lease.free or is_gone(self._lease.view.holder)):
                await self._take_over()
        except StoreTaken:
            self._looked_s = -math.inf  # Another core was faster, or took over from this one at once.
        except STORE_ERRORS as error:
            self._report_problem(describe_error(error))
            self._store.forget_connections()
            self._table.forget_connections()
        else:
            if self.standing.role is not Role.UNFIT:
                self._report_problem("")

    async def _begin_at_end(self) -> bool:
        """Begins with the snapshot that the leader of another version has left after its last record. Returns false
        while there is none; a leader that ended long ago without leaving one never will."""
        problem = self._follower.problem
        assert problem is not None, "it waits because of that"
        if self._lease.free and await self._in_thread(self._restore_end):
            self._waits_for_end = False
            self._report_problem("")
            self._logger.info("snapshot of another version taken over", record=self._follower.sequence)
            return True
        now_s = time.monotonic()
        self._free_since_s = min(self._free_since_s, now_s) if self._lease.free else math.inf
        if now_s - self._free_since_s > self._settings.times.ending_s:
            self._waits_for_end = False
            self._note_problem()
        else:
            self._report_problem(f"{problem.text}; it begins when that version ends and leaves a snapshot")
        return False

    def _restore_end(self) -> bool:
        """Restores the snapshot after the last record of the journal, if there is a usable one."""
        end = self._store.find_end()
        with opened_snapshots(self._settings.url, self._settings.patience_s, read_only=True) as snapshots:
            newest = next(list_usable(self._store, snapshots, end), None)
            if newest is None or newest.sequence != end.sequence or newest.sequence == self._tried_snapshot:
                return False
            self._tried_snapshot = newest.sequence
            problem = self._follower.problem
            try:
                self._follower.start_from_snapshot(snapshots.read_snapshot(newest.sequence))
            except SnapshotUnusable as error:
                self._follower.problem = problem
                self._logger.error("snapshot cannot be used", record=newest.sequence, problem=str(error))
                return False
        self._started = Started(newest.sequence, newest.head.at_ns, newest.size)
        return True

    async def _follow_once(self, began: float) -> bool:
        """Replays the records that one query finds. Returns whether there were none, so that this core is at the end of
        the journal."""
        fetched = await self._in_thread(self._follower.fetch_blocks)
        self.standing.records_behind = self._follower.behind
        await self._play_fetched(fetched)
        self._note_problem()
        if self._follower.problem is not None:
            return False
        self._has_more = bool(fetched) and self._follower.behind > 0
        if not self._has_more:
            # A leader that never pauses has written further records meanwhile, and the next look finds them.
            self.standing.note_caught_up(began)
        return not fetched

    async def _play_fetched(self, fetched: list[FetchedBlock]) -> None:
        began = time.perf_counter()
        for _ in self._follower.play_blocks(fetched):
            if time.perf_counter() - began >= TURN_S:
                self.standing.records_behind = self._follower.behind
                await asyncio.sleep(0)
                began = time.perf_counter()
        self.standing.records_behind = self._follower.behind
        self._note_followed()

    async def _take_over(self) -> None:
        """Takes the lease if it is still as this core has seen it, replays everything that was written until then, and
        leads."""
        began = time.monotonic()
        seen = self._lease.view
        epoch = await self._in_thread(partial(self._table.take_lease, self._holder, self._address, seen))
        self._looked_s = -math.inf
        if epoch is None:
            return
        assert self._clock is not None
        self._clock.follow_time(self._lease.core_now_ns, self.last_ns)
        offered = seen.until_ms < 0
        keeper = LeaseKeeper(self._table, epoch, now_ns=self._clock.now_ns, taken_s=began, offered=offered)
        keeper.start()
        try:
            journal = await self._begin_epoch(keeper)
        except (StoreTaken, asyncio.CancelledError):
            await self._let_go(keeper)
            raise
        if journal is None:
            await self._let_go(keeper)
            return
        self._threads.shutdown(wait=False)
        self.standing.lead(epoch, self._address)
        self.standing.find_lease_age = lambda: keeper.age_s
        took_ms = round((time.monotonic() - began) * 1_000, 1)
        self._logger.info("this core leads", epoch=epoch, record=self._follower.sequence, took_ms=took_ms)
        self._on_lead(journal)

    async def _let_go(self, keeper: LeaseKeeper) -> None:
        await keeper.hand_over()
        keeper.close()

    async def _begin_epoch(self, keeper: LeaseKeeper) -> Journal | None:
        """Returns the journal that this core writes, or ``None`` if its state is not that at the end of the journal.

        Raises :class:`StoreTaken` if another core has taken the lease meanwhile, or may have.
        """
        epoch: NextEpoch | None = None
        while not keeper.lost:
            try:
                if epoch is None:
                    while not await self._follow_once(time.monotonic()):
                        if self._follower.problem is not None:
                            return None
                    epoch = self._make_epoch(keeper)
                await self._in_thread(partial(epoch.append_first, self._store))
                if not keeper.lost:
                    return epoch.begin_journal(self._settings, self._store, self._logger)
            except StoreMoved:
                epoch = None  # The former leader had written further records, which have to be replayed first.
            except STORE_ERRORS as error:
                self._report_problem(describe_error(error))
                self._store.forget_connections()
                await asyncio.sleep(POLL_S)
        raise StoreTaken(keeper.lost)

    def _make_epoch(self, keeper: LeaseKeeper) -> NextEpoch:
        assert self._clock is not None
        afresh = self._settings.afresh or not self._follower.sequence
        at_ns = max(self._clock.now_ns(), self.last_ns)
        return NextEpoch(
            self._follower, self._beginning, keeper.epoch, at_ns, self._started, lease=keeper, afresh=afresh
        )

    def _note_lease(self) -> None:
        lease, standing = self._lease, self.standing
        standing.leader_address, standing.epoch = "" if lease.free else lease.view.address, lease.view.epoch
        if self._clock is not None:
            self._clock.follow_time(lease.core_now_ns, self.last_ns)

    def _note_followed(self) -> None:
        places = tuple(self._follower.replay.places.values())
        before = self._followed
        self._followed = {place.engine: (place.configured, place.kept.state) for place in places}
        changed = [
            place
            for place in places
            if not all(map(is_, before.get(place.engine, (None, None)), self._followed[place.engine]))
        ]
        if changed or list(before) != list(self._followed):
            self._on_followed(Followed(places, changed))

    def _note_problem(self) -> None:
        problem = self._follower.problem
        if problem is not None and problem.obstacle is Obstacle.VERSION and not self._lease.free:
            # It ends some day, and then leaves a snapshot.
            self._waits_for_end, self._free_since_s = True, math.inf
        elif problem is not None and self.standing.role is not Role.UNFIT:
            self.standing.give_up(problem.text)
            self._logger.error(
                "the journal cannot be followed, this core never leads", why=problem.obstacle, problem=problem.text
            )
            self._on_problem(problem.text)

    def _report_problem(self, problem: str) -> None:
        if problem != self.standing.problem:
            self.standing.problem = problem
            if problem:
                self._logger.error("journal cannot be read", problem=problem)
            else:
                self._logger.info("journal is read again")
            self._on_problem(problem)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._threads.shutdown(wait=False)
            with suppress(*STORE_ERRORS):
                self._table.close()
            self._store.close()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
