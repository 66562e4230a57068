"""The lease: one core at a time, by the database's clock, and the fence that reads it with each append."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from kornel.core.journal.content.calls import CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.records import Block, BlockWriter
from kornel.core.journal.database import lease as lease_module
from kornel.core.journal.database.lease import LEASE_MS, LeaseKeeper, LeaseTable, is_gone, name_holder
from kornel.core.journal.database.store import JournalStore, StoreMoved, StoreTaken
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.unit.journal.made import BEGINNING, START_NS, settings_for
from tests.waiting import until

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


def expire_lease(postgres: Postgres) -> None:
    """Lets the time of the lease pass, for the database."""
    with postgres.connect() as connection:
        connection.execute("UPDATE journal_lease SET until_ms = until_ms - %s", (LEASE_MS,))


def first_block(epoch: int, sequence: int = 0, chain: int = 0) -> Block:
    """Returns a block of one record of *epoch*."""
    call = EngineCall(CallKind.BEGIN, START_NS, beginning=BEGINNING)
    return BlockWriter(sequence, chain, epoch).make_block([(call, CallResult(CallOutcome.DONE, 0, 0))], 0)


def test_one_core_holds_the_lease(table: LeaseTable, postgres: Postgres) -> None:
    """A second one gets it when its time has passed, or when it is handed over, and a new epoch begins."""
    assert table.read_lease().free
    assert table.take_lease("one", "host-1:1") == 1
    seen = table.read_lease()
    assert (seen.holder, seen.address, seen.epoch, seen.free) == ("one", "host-1:1", 1, False)
    assert table.take_lease("two", "host-2:1") is None
    expire_lease(postgres)
    assert table.take_lease("two", "host-2:1") == 2
    assert not table.renew_lease(1, START_NS)
    assert table.renew_lease(2, START_NS)
    table.hand_over(1)
    assert not table.read_lease().free
    table.hand_over(2)
    assert table.read_lease().free
    assert table.take_lease("one", "host-1:1") == 3


def test_a_lease_that_ran_out_is_still_its_holders(table: LeaseTable, postgres: Postgres) -> None:
    """As long as nobody has taken it, a core that was stopped goes on."""
    epoch = table.take_lease("one", "")
    assert epoch is not None
    expire_lease(postgres)
    assert table.renew_lease(epoch, START_NS)
    assert not table.read_lease().free


def test_a_holder_that_has_ended_is_not_waited_for(table: LeaseTable) -> None:
    """And only that one: the lease may be another's by then."""
    table.take_lease("one", "")
    assert table.take_lease("two", "", gone="zero") is None
    assert table.take_lease("two", "", gone="one") == 2


def test_the_lease_says_what_the_leaders_clock_shows(table: LeaseTable, postgres: Postgres) -> None:
    """Counted on by the database's clock, so that no other one matters."""
    epoch = table.take_lease("one", "")
    assert epoch is not None
    assert table.read_lease().core_now_ns == 0
    table.renew_lease(epoch, START_NS)
    with postgres.connect() as connection:
        connection.execute("UPDATE journal_lease SET renewed_ms = renewed_ms - 3000")
    assert START_NS + 3 * 10**9 <= table.read_lease().core_now_ns <= START_NS + 60 * 10**9


def test_an_epoch_follows_what_was_written_without_a_lease(store: JournalStore, table: LeaseTable) -> None:
    """An older version wrote no lease."""
    plain = JournalStore(store._url, PATIENCE_S)
    with closing(plain):
        plain.append_block(first_block(7), 1)
    assert table.take_lease("one", "") == 8


def test_only_the_epoch_of_the_lease_is_written(store: JournalStore, table: LeaseTable, postgres: Postgres) -> None:
    """A leader whose lease another core has taken writes nothing, whenever it wakes up; told twice, it writes once."""
    assert table.take_lease("one", "") == 1
    block = first_block(1)
    store.append_block(block, 1)
    store.append_block(block, 1)
    late = first_block(1, block.last, block.chain)
    expire_lease(postgres)
    assert table.take_lease("two", "host-2:1") == 2
    with pytest.raises(StoreTaken, match="another core at host-2:1"):
        store.append_block(late, 1)
    assert store.find_end().sequence == block.last
    store.append_block(first_block(2, block.last, block.chain), 1)
    assert store.find_end().epoch == 2
    # What was committed before counts, though its answer was lost and another core leads by now.
    store.append_block(block, 1)


def test_nothing_is_written_where_the_journal_ends_otherwise(store: JournalStore, table: LeaseTable) -> None:
    """The newest commits are missing, or others stand in their place: both end the leader's writing."""
    assert table.take_lease("one", "") == 1
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
        takes = [asyncio.to_thread(each.take_lease, f"core-{number}", "") for number, each in enumerate(tables)]
        return await asyncio.gather(*takes)

    for expected in range(1, 6):
        taken = [epoch for epoch in asyncio.run(race()) if epoch is not None]
        assert taken == [expected]
        expire_lease(postgres)
    for each in tables:
        each.close()


async def test_a_keeper_renews_until_another_core_takes_over(
    table: LeaseTable, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so once, and a database that is away for a moment is no reason."""
    monkeypatch.setattr(lease_module, "RENEW_S", 0.01)
    epoch = table.take_lease("one", "")
    assert epoch is not None
    keeper = LeaseKeeper(LeaseTable(settings_for(postgres.url).url), epoch, now_ns=lambda: START_NS)
    lost = asyncio.Event()
    keeper.on_lost = lambda reason: lost.set()
    keeper.start()
    await until(lambda: table.read_lease().core_ns == START_NS, "the lease to be renewed")
    await asyncio.to_thread(postgres.stop)
    await until(lambda: keeper.problem, "the database to be missed")
    await asyncio.to_thread(postgres.start)
    await until(lambda: not keeper.problem, "the database to be found again")
    table.forget_connections()
    assert not lost.is_set()
    await asyncio.to_thread(table.take_lease, "two", "", gone="one")
    await until(lost.is_set, "the loss of the lease to be noticed")
    keeper.close()


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
