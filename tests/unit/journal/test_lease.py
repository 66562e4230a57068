"""The lease: one core at a time, by the database's clock, and the fence that reads it with each append."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy.exc import DBAPIError

from kornel.core.journal.content.calls import CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.records import Block, BlockWriter
from kornel.core.journal.database import lease as lease_module
from kornel.core.journal.database.lease import LeaseKeeper, LeaseSight, LeaseTable, LeaseView, is_gone, name_holder
from kornel.core.journal.database.settings import SnapshotTimes
from kornel.core.journal.database.store import JournalStore, StoreMoved, StoreTaken
from kornel.core.journal.journal import Journal, NextEpoch
from kornel.core.journal.snapshots.snapshot_store import opened_snapshots
from kornel.core.journal.standby import Standby
from kornel.core.service.machine.clock import ManualClock
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.silent_proxy import silent_proxy
from tests.unit.journal.made import BEGINNING, LOGGER, START_NS, asks, decide, settings_for, small_cluster
from tests.waiting import until, wait_until

__all__ = ["postgres", "postgres_server"]


@pytest.fixture
def store(postgres: Postgres) -> Iterator[JournalStore]:
    """A store that cores share, with its tables."""
    made = JournalStore(settings_for(postgres.url).url, PATIENCE_S, fenced=True)
    made.open()
    yield made
    made.close()


@pytest.fixture
def table(store: JournalStore, postgres: Postgres) -> Iterator[LeaseTable]:
    """The lease of *store*."""
    made = LeaseTable(settings_for(postgres.url).url)
    yield made
    made.close()


def take(table: LeaseTable, holder: str, address: str = "") -> int | None:
    """Takes the lease as it is now, whoever holds it."""
    return table.take_lease(holder, address, table.read_lease())


def first_block(epoch: int, sequence: int = 0, chain: int = 0) -> Block:
    """Returns a block of one record of *epoch*."""
    call = EngineCall(CallKind.BEGIN, START_NS, beginning=BEGINNING)
    return BlockWriter(sequence, chain, epoch).make_block([(call, CallResult(CallOutcome.DONE, 0, 0))], 0)


def test_one_core_holds_the_lease(table: LeaseTable) -> None:
    """A second one gets it if it was not renewed since that core has looked, and a new epoch begins."""
    assert not table.read_lease().until_ms
    assert take(table, "one", "host-1:1") == 1
    seen = table.read_lease()
    assert (seen.holder, seen.address, seen.epoch) == ("one", "host-1:1", 1)
    assert table.renew_lease(1, START_NS)
    assert table.take_lease("two", "host-2:1", seen) is None
    assert take(table, "two", "host-2:1") == 2
    assert not table.renew_lease(1, START_NS + 1)
    assert table.renew_lease(2, START_NS + 1)
    table.hand_over(1)
    assert table.read_lease().until_ms
    table.hand_over(2)
    assert not table.read_lease().until_ms
    assert take(table, "one", "host-1:1") == 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of this core, which a test sets."""
    shown = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: shown[0])
    return shown


def test_a_core_that_stands_by_counts_by_its_own_clock(clock: list[float]) -> None:
    """Three seconds since it saw the lease change, whatever the database's clock says; released, it is free at once."""
    sight = LeaseSight()
    view = LeaseView("one", "", 1, until_ms=5, core_ns=START_NS, since_ms=3_600_000)
    sight.note_view(view)
    assert not sight.free
    clock[0] += 2.9
    sight.note_view(view._replace(since_ms=-3_600_000))
    assert not sight.free
    view = view._replace(until_ms=7, core_ns=START_NS + 1)
    sight.note_view(view)
    clock[0] += 2.9
    sight.note_view(view)
    assert not sight.free
    assert sight.core_now_ns == pytest.approx(START_NS + 2.9 * 10**9, abs=10**6)
    clock[0] += 0.1
    assert sight.free
    sight.note_view(view._replace(epoch=2))
    assert not sight.free
    sight.note_view(view._replace(epoch=2, until_ms=0))
    assert sight.free


def test_a_holder_whose_connection_closed_is_waited_for_a_second(clock: list[float]) -> None:
    """If there was one: an earlier version, or one behind a pooler of connections, holds no lock."""
    for held, free in ((True, True), (False, False)):
        sight = LeaseSight()
        view = LeaseView("one", "", 1, until_ms=5, core_ns=START_NS, held=held)
        sight.note_view(view)
        sight.note_view(view._replace(held=False))
        assert not sight.free
        clock[0] += 1.0
        assert sight.free is free


def test_the_database_sees_the_holders_connection_close(table: LeaseTable, postgres: Postgres) -> None:
    """The lock of its epoch lasts as long as the connection."""
    holder = LeaseTable(settings_for(postgres.url).url)
    assert take(holder, "one") == 1
    assert not table.read_lease().held
    assert holder.renew_lease(1, START_NS)
    assert holder.renew_lease(1, START_NS + 1)
    assert table.read_lease().held
    holder.close()
    wait_until(lambda: not table.read_lease().held, "the database to see it")


def test_the_lease_can_be_offered(table: LeaseTable) -> None:
    """Until a renewal takes the offer back, any other core may take it, however long ago it has looked."""
    assert take(table, "one") == 1
    assert table.renew_lease(1, START_NS, offered=True)
    seen = table.read_lease()
    sight = LeaseSight()
    sight.note_view(seen)
    assert sight.free
    assert table.renew_lease(1, START_NS + 1)
    assert table.take_lease("two", "", seen) is None
    assert table.renew_lease(1, START_NS + 2, offered=True)
    seen = table.read_lease()
    assert table.renew_lease(1, START_NS + 3, offered=True)
    assert table.take_lease("two", "", seen) == 2
    assert table.take_lease("three", "", seen) is None


def test_the_lease_says_what_the_leaders_clock_shows(table: LeaseTable, postgres: Postgres) -> None:
    """A core that has just started has only the database's clock to count on by."""
    epoch = take(table, "one")
    assert epoch is not None
    sight = LeaseSight()
    sight.note_view(table.read_lease())
    assert sight.core_now_ns == 0
    table.renew_lease(epoch, START_NS)
    with postgres.connect() as connection:
        connection.execute("UPDATE journal_lease SET renewed_ms = renewed_ms - 3000")
    sight = LeaseSight()
    sight.note_view(table.read_lease())
    assert START_NS + 3 * 10**9 <= sight.core_now_ns <= START_NS + 60 * 10**9


def test_an_epoch_follows_what_was_written_without_a_lease(store: JournalStore, table: LeaseTable) -> None:
    """An older version wrote no lease."""
    plain = JournalStore(store._url, PATIENCE_S)
    with closing(plain):
        plain.append_block(first_block(7), 1)
    assert take(table, "one") == 8


def test_only_the_epoch_of_the_lease_is_written(store: JournalStore, table: LeaseTable) -> None:
    """A leader whose lease another core has taken writes nothing, whenever it wakes up; told twice, it writes once."""
    assert take(table, "one") == 1
    block = first_block(1)
    store.append_block(block, 1)
    store.append_block(block, 1)
    late = first_block(1, block.last, block.chain)
    assert take(table, "two", "host-2:1") == 2
    with pytest.raises(StoreTaken, match="another core at host-2:1"):
        store.append_block(late, 1)
    assert store.find_end().sequence == block.last
    store.append_block(first_block(2, block.last, block.chain), 1)
    assert store.find_end().epoch == 2
    # What was committed before counts, though its answer was lost and another core leads by now.
    store.append_block(block, 1)


def test_nothing_is_written_where_the_journal_ends_otherwise(store: JournalStore, table: LeaseTable) -> None:
    """The newest commits are missing, or others stand in their place: both end the leader's writing."""
    assert take(table, "one") == 1
    block = first_block(1)
    store.append_block(block, 1)
    for sequence, chain in ((block.last + 1, block.chain), (block.last, block.chain + 1)):
        with pytest.raises(StoreMoved, match="the database holds records up to 1"):
            store.append_block(first_block(1, sequence, chain), 1)
    assert store.find_end().sequence == block.last


def test_two_cores_take_the_lease_at_once(table: LeaseTable, postgres: Postgres) -> None:
    """One of many gets it, each time."""
    url = settings_for(postgres.url).url
    tables = [LeaseTable(url) for _ in range(6)]

    async def race() -> list[int | None]:
        seen = table.read_lease()
        takes = [asyncio.to_thread(each.take_lease, f"core-{number}", "", seen) for number, each in enumerate(tables)]
        return await asyncio.gather(*takes)

    for expected in range(1, 6):
        taken = [epoch for epoch in asyncio.run(race()) if epoch is not None]
        assert taken == [expected]
    for each in tables:
        each.close()


def make_keeper(table: LeaseTable, epoch: int) -> LeaseKeeper:
    """Returns a keeper that began to take the lease just now."""
    times = itertools.count(START_NS)
    return LeaseKeeper(table, epoch, now_ns=lambda: next(times), taken_s=time.monotonic())


async def test_a_keeper_renews_until_another_core_takes_over(
    table: LeaseTable, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so once, and a database that is away for a moment is no reason."""
    monkeypatch.setattr(lease_module, "RENEW_S", 0.01)
    monkeypatch.setattr(lease_module, "LEASE_MS", 1_000 * PATIENCE_S)
    monkeypatch.setattr(lease_module, "GONE_MS", 1_000 * PATIENCE_S)
    epoch = take(table, "one")
    assert epoch is not None
    keeper = make_keeper(LeaseTable(settings_for(postgres.url).url), epoch)
    lost = asyncio.Event()
    keeper.on_lost = lambda reason: lost.set()
    keeper.start()
    await until(lambda: table.read_lease().core_ns > START_NS, "the lease to be renewed")
    await asyncio.to_thread(postgres.stop)
    await until(lambda: keeper.problem, "the database to be missed")
    await asyncio.to_thread(postgres.start)
    await until(lambda: not keeper.problem, "the database to be found again")
    table.forget_connections()
    assert not lost.is_set()
    while await asyncio.to_thread(take, table, "two") is None:
        pass
    await until(lost.is_set, "the loss of the lease to be noticed")
    assert keeper.lost == "another core has taken over"
    keeper.close()


class DeafTable(LeaseTable):
    """A lease whose renewals are not answered any more."""

    def __init__(self) -> None:
        self.answered = threading.Event()

    def renew_lease(self, epoch: int, core_ns: int, *, offered: bool = False) -> bool:
        return self.answered.wait(PATIENCE_S)

    def close(self) -> None:
        pass


class ClosedTable(DeafTable):
    """A lease whose database refuses all connections."""

    def renew_lease(self, epoch: int, core_ns: int, *, offered: bool = False) -> bool:
        raise OSError("connection refused")

    def forget_connections(self) -> None:
        pass


def test_a_leader_whose_connection_failed_stops_before_others_take_it_for_gone(clock: list[float]) -> None:
    """The database may have seen it close just after the last renewal; with a new connection all is as before."""
    closed, working = ClosedTable(), DeafTable()
    working.answered.set()
    keeper = make_keeper(closed, 1)
    clock[0] += 0.5
    assert keeper._renew_once(clock[0], False)
    clock[0] += 0.2
    assert not keeper.lapsed
    clock[0] += 0.1
    assert keeper.lapsed
    keeper._table = working
    assert keeper._renew_once(clock[0], False)
    clock[0] += 2.4
    assert not keeper.lapsed


async def test_a_keeper_whose_connection_failed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the end of its lease."""
    monkeypatch.setattr(lease_module, "LEASE_MS", 1_000 * PATIENCE_S)
    keeper = make_keeper(ClosedTable(), 1)
    lost = asyncio.Event()
    keeper.on_lost = lambda reason: lost.set()
    keeper.start()
    await until(lost.is_set, "the keeper to stop")
    assert "another core may lead: connection refused" in keeper.lost
    assert time.monotonic() - keeper._renewed_s >= 0.8
    keeper.close()


async def test_a_keeper_with_a_bug_says_so() -> None:
    """A lease that nobody renews is lost, and the core has to end."""

    class BrokenTable(DeafTable):
        def renew_lease(self, epoch: int, core_ns: int, *, offered: bool = False) -> bool:
            raise KeyError("a bug")

    keeper = make_keeper(BrokenTable(), 1)
    reasons: list[str] = []
    keeper.on_lost = reasons.append
    keeper.start()
    await until(lambda: reasons, "the keeper to stop")
    assert reasons == [keeper.lost]
    assert "KeyError: 'a bug'" in keeper.lost
    assert keeper.lapsed
    keeper.close()


async def test_who_loses_the_lease_before_the_first_record_goes_on_standing_by(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads once it has taken the lease again, and kept it."""
    losing = True
    standby = Standby.open(settings_for(postgres.url), BEGINNING, logger=LOGGER)
    append = NextEpoch.append_first
    epochs: list[int] = []

    def append_late(self: NextEpoch, store: JournalStore) -> None:
        assert self._lease is not None
        epochs.append(self._lease.epoch)
        if losing:
            self._lease.lost = "it took too long"
            self._lease._threads.submit(lambda: None).result()  # A renewal may be under way.
        append(self, store)

    monkeypatch.setattr(NextEpoch, "append_first", append_late)
    led: list[Journal] = []
    await standby.start(
        ManualClock(START_NS), "", on_lead=led.append, on_followed=lambda _: None, on_problem=lambda _: None
    )
    assert epochs == [1]
    assert not led
    assert not standby.standing.leads
    losing = False
    await until(lambda: led, "the core to lead")
    assert epochs == [1, 2]
    led[0].start()
    await led[0].hand_over()
    await asyncio.to_thread(led[0].close, PATIENCE_S)


def test_a_renewal_counts_before_the_event_loop_knows_of_it(clock: list[float]) -> None:
    """The loop may be busy: who asks meanwhile hears that the core leads."""
    table = DeafTable()
    table.answered.set()
    keeper = make_keeper(table, 1)
    clock[0] += 2.6
    assert keeper.lapsed
    assert keeper._renew_once(clock[0] - 0.2, False)
    assert not keeper.lapsed
    assert keeper.age_s == pytest.approx(0.2)


async def test_who_handed_the_lease_over_may_take_its_time(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """To write what is left, and a last snapshot: it has nothing left to lose."""
    settings = settings_for(postgres.url, times=SnapshotTimes(every_s=math.inf))
    standby = Standby.open(settings, BEGINNING, logger=LOGGER)
    led: list[Journal] = []
    await standby.start(
        ManualClock(START_NS), "", on_lead=led.append, on_followed=lambda _: None, on_problem=lambda _: None
    )
    await until(lambda: led, "the core to lead")
    (journal,) = led
    journal.start()
    await decide(journal, [*small_cluster(), asks(0, 5)])
    await journal.hand_over()
    monkeypatch.setattr(lease_module, "MARGIN_MS", lease_module.LEASE_MS)
    assert not journal.lapsed
    await asyncio.to_thread(journal.close, PATIENCE_S)
    with opened_snapshots(settings.url, PATIENCE_S, read_only=True) as snapshots:
        (last,) = snapshots.list_snapshots()
    assert last.sequence == journal.status().last_durable


async def test_who_may_have_lost_the_lease_does_not_hand_it_over(
    table: LeaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does at its end is decided then, once."""
    epoch = take(table, "one")
    assert epoch is not None
    keeper = make_keeper(table, epoch)
    monkeypatch.setattr(lease_module, "MARGIN_MS", lease_module.LEASE_MS)
    await keeper.hand_over()
    assert "so another core may lead" in keeper.lost
    assert table.read_lease().until_ms
    keeper.close()


async def test_a_keeper_without_an_answer_stops_before_its_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own clock, while the renewal still waits."""
    monkeypatch.setattr(lease_module, "LEASE_MS", lease_module.MARGIN_MS + 200)
    table = DeafTable()
    began = time.monotonic()
    keeper = make_keeper(table, 1)
    lost = asyncio.Event()
    keeper.on_lost = lambda reason: lost.set()
    keeper.start()
    await until(lost.is_set, "the keeper to stop")
    assert time.monotonic() - began >= 0.2
    assert keeper.lapsed
    assert "the lease was last renewed 0." in keeper.lost
    table.answered.set()
    keeper.close()


def is_offered(keeper: LeaseKeeper, unanswered: int) -> bool:
    """Tells whether the next renewal offers the lease, while the append of that record waits; 0: none does."""
    keeper.find_unanswered = lambda: unanswered
    return keeper._has_to_offer()


def test_a_lease_is_offered_until_an_append_is_answered(clock: list[float]) -> None:
    """And for a later one again."""
    keeper = LeaseKeeper(DeafTable(), 1, now_ns=lambda: START_NS, taken_s=clock[0])
    assert [is_offered(keeper, record) for record in (0, 7, 7, 0, 9)] == [False, True, True, False, True]


def test_who_took_an_offered_lease_keeps_it(clock: list[float]) -> None:
    """Until its appends have been answered in time for a minute; an answer that came late proves nothing."""
    keeper = LeaseKeeper(DeafTable(), 2, now_ns=lambda: START_NS, taken_s=clock[0], offered=True)
    clock[0] += 3_600.0
    assert not is_offered(keeper, 7)
    keeper.note_fast_append()
    clock[0] += 59.0
    keeper.note_fast_append()
    assert not is_offered(keeper, 9)
    clock[0] += 59.0
    assert not is_offered(keeper, 9)
    keeper.note_fast_append()
    clock[0] += 60.0
    keeper.note_fast_append()
    assert is_offered(keeper, 11)
    assert is_offered(keeper, 11)


async def test_an_answer_that_does_not_come_is_not_waited_for(postgres: Postgres) -> None:
    """The deadline is the client's own: what stands between may hold the connection open and answer nothing."""
    async with silent_proxy(postgres.port) as proxy:
        url = settings_for(postgres.url.replace(str(postgres.port), str(proxy.port))).url
        with closing(JournalStore(url, 0.2, fenced=True)) as store:
            await asyncio.to_thread(store.open)
            proxy.silent = True
            with pytest.raises(DBAPIError, match="the database has not answered for"):
                await asyncio.to_thread(store.find_end)
            proxy.silent = False
            await asyncio.to_thread(store.find_end)


def test_a_process_of_this_machine_that_ended_is_gone() -> None:
    """Another machine's, or one that runs, is not; neither is what nobody can know."""
    assert not is_gone(name_holder())
    assert not is_gone("")
    assert not is_gone("elsewhere boot namespace 1@1")
    command = "from kornel.core.journal.database.lease import name_holder; print(name_holder(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as other:
        assert other.stdout is not None
        holder = other.stdout.readline().decode().strip()
        assert not is_gone(holder)
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(holder)  # It is still to be waited for, and has ended.
    assert is_gone(holder)
