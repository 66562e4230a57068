"""A follower plays what another core writes, and stops where that is not what it would have decided."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from kornel.core.domain.effects import Allocated, EventRecorded
from kornel.core.engine.engine import CycleResult
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.following.following import FETCHED_AT_ONCE, FetchedBlock, Follower, Obstacle
from kornel.core.journal.following.starting import play_all
from kornel.core.journal.journal import Journal
from kornel.core.journal.snapshots.snapshot_store import opened_snapshots
from tests.patience import PATIENCE_S
from tests.unit.journal.made import (
    LOGGER,
    PARTITION,
    asks,
    catch_up,
    decide,
    open_journal,
    open_store,
    settings_for,
    small_cluster,
)


def keys_of(follower: Follower) -> set[str]:
    """Returns the allocations of the follower's engine."""
    assert follower.engine is not None
    state = follower.engine.partition(PARTITION)
    assert state is not None
    return {key for node in state.nodes.values() for key in node.allocations}


@asynccontextmanager
async def written_journal(path: Path) -> AsyncIterator[Journal]:
    """A journal of a small cluster, which is written on."""
    journal = open_journal(path)
    journal.start()
    await decide(journal, small_cluster())
    try:
        yield journal
    finally:
        journal.close(PATIENCE_S)


async def test_a_follower_is_where_the_writer_is(tmp_path: Path) -> None:
    """After each look, with the same allocations and the same sum of effects."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            assert catch_up(follower) == journal.status().last_durable
            for number in range(3):
                await decide(journal, [asks(10 * number, 5)])
                assert catch_up(follower)
                assert len(keys_of(follower)) == 5 * (number + 1)
                assert follower.sequence == follower.point.sequence == journal.status().last_durable
                assert not follower.behind
            assert follower.problem is None
            assert follower.replay.first is not None
            told = follower.replay.first.list_untold()
            assert sum(isinstance(effect, Allocated) for effect in told) == 15
            assert not any(isinstance(effect, EventRecorded) for effect in told)


async def test_playing_may_pause_between_any_two_records(tmp_path: Path) -> None:
    """What is left of the blocks is played later; the number of records behind says how many."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        await decide(journal, [asks(0, 5), asks(5, 5)])
        last = journal.status().last_durable
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            playing = follower.play_blocks(follower.fetch_blocks())
            for number, record in enumerate(playing, start=1):
                assert record.sequence == follower.sequence == number
                assert follower.behind == last - number
            assert follower.sequence == last


async def test_a_follower_goes_on_behind_a_snapshot(tmp_path: Path) -> None:
    """With the engine and the numbers that are in it."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        await decide(journal, [asks(0, 5)])
        with closing(open_store(path)) as store:
            first = Follower(store, version="test")
            catch_up(first)
            assert first.engine is not None
            second = Follower(store, version="test")
            second.start_from_snapshot(first.take_snapshot()[1])
            await decide(journal, [asks(5, 5)])
            assert catch_up(second)
            assert second.problem is None
            assert len(keys_of(second)) == 10


async def test_a_start_does_not_wait_for_a_writer_to_pause(tmp_path: Path) -> None:
    """A standby and a snapshot begin with what was there when they started, however fast the leader goes on."""
    path = tmp_path / "journal.db"
    loop = asyncio.get_running_loop()
    async with written_journal(path) as journal:

        class Chasing(Follower):
            """Finds further records at each look."""

            looks = 0

            def fetch_blocks(self, most: int = FETCHED_AT_ONCE) -> list[FetchedBlock]:
                self.looks += 1
                assert self.looks < 100, "it follows the writer for ever"
                writing = decide(journal, [asks(self.looks)])
                asyncio.run_coroutine_threadsafe(writing, loop).result(PATIENCE_S)
                return super().fetch_blocks(most)

        with closing(open_store(path)) as store, opened_snapshots(settings_for(path).url, PATIENCE_S) as snapshots:
            last = journal.status().last_durable
            follower = Chasing(store, version="test")
            await asyncio.to_thread(play_all, follower, snapshots, LOGGER)
            assert follower.sequence >= last


async def test_a_new_life_is_followed_from_its_beginning(tmp_path: Path) -> None:
    """A core that begins afresh empties the follower's engine, whatever was played before; what lies between is not
    needed."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        await decide(journal, [asks(0, 5)])
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            catch_up(follower)
            await decide(journal, [asks(5, 5)])
            journal.close(PATIENCE_S)
            afresh = open_journal(path, afresh=True)
            afresh.start()
            await decide(afresh, [*small_cluster(), asks(50)])
            catch_up(follower)
            assert follower.problem is None
            assert keys_of(follower) == {"ask-50"}
            afresh.close(PATIENCE_S)


async def test_another_decision_ends_the_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record that comes out differently is named with both sides, and nothing is played behind it."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            catch_up(follower)
            await decide(journal, [asks(0), asks(1)])
            monkeypatch.setattr(RecordingEngine, "cycle", lambda self, now_ns, budget: CycleResult([], more=False))
            catch_up(follower)
            assert follower.problem is not None
            assert follower.problem.obstacle is Obstacle.DIFFERENT
            assert f"record {follower.sequence} (slice" in follower.problem.text
            assert "replay:  done, 0 effects" in follower.problem.text
            assert follower.sequence < journal.status().last_durable
            assert not follower.fetch_blocks()


async def test_another_version_ends_the_following(tmp_path: Path) -> None:
    """Records of another version are not played."""
    path = tmp_path / "journal.db"
    async with written_journal(path):
        with closing(open_store(path)) as store:
            follower = Follower(store, version="other")
            catch_up(follower)
            assert follower.problem is not None
            assert follower.problem.obstacle is Obstacle.VERSION
            assert "version test" in follower.problem.text
            assert follower.engine is None


@pytest.mark.parametrize("others", [0, 1, 3])
async def test_a_database_without_the_newest_commits_ends_the_following(tmp_path: Path, others: int) -> None:
    """Whether it holds fewer records than were played, other ones in their place, or others and more."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        await decide(journal, [asks(0), asks(1)])
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            catch_up(follower)
            played = follower.sequence
            journal.close(PATIENCE_S)
            with closing(sqlite3.connect(path)) as connection, connection:
                (newest,) = connection.execute("SELECT max(first) FROM journal_blocks").fetchone()
                connection.execute("DELETE FROM journal_blocks WHERE first = ?", (newest,))
            if others:
                path.with_name(f"{path.name}.end").unlink()  # It has the newest block, too.
                other = open_journal(path, accept_loss=True)
                other.start()
                await decide(other, [asks(10 + number) for number in range(others)])
                other.close(PATIENCE_S)
            catch_up(follower)
            assert follower.problem is not None
            assert follower.problem.obstacle is Obstacle.BEHIND
            assert str(played) in follower.problem.text
            assert follower.sequence == played


async def test_a_missing_record_ends_the_following(tmp_path: Path) -> None:
    """It is named."""
    path = tmp_path / "journal.db"
    async with written_journal(path) as journal:
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            catch_up(follower)
            at = follower.sequence
            await decide(journal, [asks(0)])
            await decide(journal, [asks(1)])
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM journal_blocks WHERE first = ?", (at + 1,))
            catch_up(follower)
            assert follower.problem is not None
            assert follower.problem.obstacle is Obstacle.DAMAGED
            assert f"record {at + 1}: it is missing" in follower.problem.text
