"""Several engines in one journal: each record belongs to a place, and each place goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import orjson
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.domain.commands import (
    Command,
    RegisterManager,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.journal.content.calls import CallKind, CallOutcome, EngineCall
from kornel.core.journal.content.records import read_block
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.reading import read_records, verify_store
from kornel.core.journal.database.store import JournalStore
from kornel.core.journal.following.following import Follower, Obstacle
from kornel.core.journal.following.starting import begin_replay
from kornel.core.journal.journal import Journal
from kornel.core.journal.snapshots.snapshot_store import SnapshotFiles
from kornel.core.journal.snapshots.snapshots import list_places, restore_snapshot
from kornel.core.journal.writing.places import JournalPlace
from kornel.core.service.streams.resuming import ProgressValues
from tests.history_databases import database, postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.unit.journal.made import (
    CONFIG,
    PARTITION,
    RM,
    START_NS,
    asks,
    catch_up,
    copy_journal,
    open_journal,
    open_store,
    settings_for,
    small_cluster,
    written,
)
from tests.unit.journal.test_journal import flip_bit
from tests.unit.journal.test_snapshots import snapshot, snapshots_of
from tests.unit.partition.graph import digest
from tests.waiting import until

__all__ = ["database", "postgres", "postgres_server"]

OTHER = "other"
HOUR_NS = 3_600 * 10**9


def rename(command: Command) -> Command:
    """Returns *command* as the other manager sends it."""
    partition = PARTITION.replace(RM, OTHER)
    if isinstance(command, RegisterManager):
        return RegisterManager(OTHER, CONFIG)
    if isinstance(command, UpdateNodes):
        return UpdateNodes(OTHER, tuple(spec._replace(partition=partition) for spec in command.nodes))
    if isinstance(command, UpdateApplications):
        return UpdateApplications(OTHER, tuple(spec._replace(partition=partition) for spec in command.add))
    assert isinstance(command, UpdateAllocations)
    return UpdateAllocations(OTHER, tuple(spec._replace(partition=partition) for spec in command.allocations))


def apply_at(place: JournalPlace, commands: Sequence[Command], now_ns: int = START_NS) -> None:
    """Has the engine of *place* decide *commands*, each followed by a slice, at *now_ns* or after its last call.

    The places of a core have one clock, and a block of records has the time of its first one. Where ages matter, the
    caller gives the same *now_ns* for each place.
    """
    now_ns = max(now_ns, place.engine.last_ns)
    for command in commands:
        now_ns += 1_000_000
        place.engine.apply(command, now_ns)
        place.engine.cycle(now_ns, 100)


def keys_at(engine: object) -> set[str]:
    """Returns the keys of what runs on the node of *engine*."""
    names = engine.partition_names()  # type: ignore[attr-defined]
    (state,) = [engine.partition(name) for name in names]  # type: ignore[attr-defined]
    return set(state.nodes["n1"].allocations)


async def fill_places(journal: Journal) -> JournalPlace:
    """Has two managers, whose calls alternate, and returns the place of the second."""
    other = journal.open_place()
    apply_at(journal.first, small_cluster())
    apply_at(other, [rename(command) for command in small_cluster()])
    for number in range(5):
        apply_at(journal.first, [asks(number)])
        apply_at(other, [rename(asks(100 + number))])
    await wait_for_all(journal)
    return other


@asynccontextmanager
async def two_managers(where: str | Path) -> AsyncIterator[tuple[Journal, JournalPlace]]:
    """A core with two managers that writes the journal at *where*, and the place of the second."""
    async with written(where) as journal:
        yield journal, await fill_places(journal)


async def wait_for_all(journal: Journal) -> None:
    """Returns when everything is durable, the records of places that were closed among it."""
    await until(lambda: journal._gates.durable == journal._committer.added, "all records to be durable")


def trace(place: object) -> str:
    """Returns everything that an engine holds, as text."""
    engine = place.engine  # type: ignore[attr-defined]
    return digest({"state": engine._partitions, "outbox": engine._outbox, "rm": engine.rm_id})


async def test_each_place_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its engine, its untold effects, its configuration and its progress; and it is written further."""
    path = tmp_path / "journal.db"
    async with two_managers(path) as (first, _):
        before = [trace(place) for place in first.places]
        epochs = {place.progress.as_values().epoch for place in first.places}
        assert len(epochs) <= 2
    for _ in range(2):
        async with written(path) as again:
            assert [place.number for place in again.places] == [0, 1]
            assert [place.engine.rm_id for place in again.places] == [RM, OTHER]
            assert [trace(place) for place in again.places] == before
            assert [len(place.untold) > 0 for place in again.places] == [True, True]
            for place, name in zip(again.places, (RM, OTHER), strict=True):
                assert place.configured is not None
                assert place.configured.command.rm_id == name
    with closing(open_store(path)) as store:
        assert not verify_store(store).damage
        assert Replay().play_all(read.record for read in read_records(store)) is None


async def test_a_place_is_played_by_itself(tmp_path: Path) -> None:
    """From the beginning and from a snapshot, without the engine of the other; the sums hold."""
    path = tmp_path / "journal.db"
    async with two_managers(path) as (journal, other):
        with closing(open_store(path)) as store:
            whole, alone, behind = Follower(store, version="test"), Follower(store, version="test", only=1), None
            catch_up(whole)
            catch_up(alone)
            assert list(whole.replay.places) == [0, 1]
            assert list(alone.replay.places) == [1]
            assert trace(alone.replay.places[1]) == trace(other)
            _, data = whole.take_snapshot()
            assert list_places(data) == [0, 1]
            behind = Follower(store, version="test", only=1)
            behind.start_from_snapshot(data)
            apply_at(other, [rename(asks(200, 3))])
            apply_at(journal.first, [asks(300, 3)])
            await wait_for_all(journal)
            catch_up(behind)
            assert behind.problem is None
            assert list(behind.replay.places) == [1]
            assert trace(behind.replay.places[1]) == trace(other)


async def test_a_difference_is_found_in_any_place(tmp_path: Path) -> None:
    """It is named with the record and the place; the sum of one place does not depend on the others."""
    path = tmp_path / "journal.db"
    async with two_managers(path):
        pass
    with closing(open_store(path)) as store:
        records = [record for record, _ in read_records(store)]
    for wanted in (0, 1):
        changed = list(records)
        at = max(n for n, record in enumerate(records) if record.call.place == wanted and record.result.effects)
        result = records[at].result
        changed[at] = records[at]._replace(result=result._replace(effects_sum=result.effects_sum ^ 1))
        found = Replay().play_all(changed)
        assert found is not None
        assert found.sequence == records[at].sequence
        assert ("place 1" in found.describe()) is bool(wanted)


async def test_a_flipped_bit_is_named_in_a_record_of_any_place(tmp_path: Path) -> None:
    """Wherever it is, the records before it can be played, and nothing behind it is trusted unnoticed."""
    path = tmp_path / "journal.db"
    async with two_managers(path):
        pass
    with closing(open_store(path)) as store:
        blocks = [block for block, _ in store.read_blocks()]
        places = [{record.call.place for record in read_block(block)} for block in blocks]
    assert {0, 1} <= set().union(*places)
    for block in blocks:
        copy = tmp_path / "copy.db"
        copy_journal(path, copy)
        flip_bit(copy, block, len(block.payload) // 2)
        with closing(open_store(copy)) as store:
            (damage,) = verify_store(store).damage
            assert block.first <= damage.first <= block.last
            follower = Follower(store, version="test")
            catch_up(follower)
            assert follower.problem is not None
            assert follower.problem.obstacle is Obstacle.DAMAGED
            assert follower.sequence == damage.first - 1


async def test_a_closed_place_is_gone_and_its_number_is_not_given_again(tmp_path: Path) -> None:
    """Also across a snapshot in which it is no more, and one that was vacant when the core ended is closed."""
    path = tmp_path / "journal.db"
    async with two_managers(path) as (journal, other):
        other.engine.apply(UnregisterManager(OTHER), other.engine.last_ns + 1)
        journal.close_place(other)
        other.engine.cycle(other.engine.last_ns + 1, 100)
        await other.gate.wait_until_durable()
        last = journal.status().last_record
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            catch_up(follower)
            assert follower.problem is None
            assert follower.sequence == last
            assert list(follower.replay.places) == [0]
            _, data = follower.take_snapshot()
        replay = Replay()
        restore_snapshot(data, replay)
        assert (list(replay.places), replay.last_place) == ([0], 1)
        assert journal.open_place().number == 2
    async with written(path) as again:
        assert [place.number for place in again.places] == [0]
        assert again.open_place().number == 3


async def test_the_first_place_may_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with two_managers(path) as (journal, _):
        before = trace(journal.places[1])
        journal.close_place(journal.first)
    async with written(path) as again:
        assert [place.number for place in again.places] == [1]
        assert trace(again.first) == before
        apply_at(again.first, [rename(asks(500))])
        assert "ask-500" in keys_at(again.first.engine)


async def test_a_core_that_begins_afresh_has_one_place(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with two_managers(path):
        pass
    async with written(path, afresh=True) as afresh:
        assert [(place.number, place.engine.rm_id) for place in afresh.places] == [(0, "")]
        apply_at(afresh.first, small_cluster())
        assert afresh.open_place().number == 1
        await wait_for_all(afresh)
        with closing(open_store(path)) as store:
            follower = Follower(store, version="test")
            catch_up(follower)
            assert follower.problem is None
            assert list(follower.replay.places) == [0, 1]


async def test_a_place_waits_for_its_own_records_only(tmp_path: Path) -> None:
    """A call of one manager is answered although another one never stops."""
    journal = open_journal(tmp_path / "journal.db")
    other = journal.open_place()
    apply_at(journal.first, small_cluster())
    apply_at(other, [rename(command) for command in small_cluster()])
    journal.start()
    flooding = True

    async def flood() -> None:
        number = 1_000
        while flooding:
            apply_at(journal.first, [asks(number)])
            number += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(flood())
    apply_at(other, [rename(asks(1))])
    await asyncio.wait_for(other.gate.wait_until_passed(), PATIENCE_S)
    assert not other.gate.behind
    flooding = False
    await task
    await wait_for_all(journal)
    journal.close(PATIENCE_S)


async def test_places_share_the_room_ahead_of_the_store(tmp_path: Path) -> None:
    """One that has used up its part waits, and the other goes on."""
    journal = open_journal(tmp_path / "journal.db")
    other = journal.open_place()
    ahead = settings_for(tmp_path).calls_ahead
    apply_at(other, [rename(small_cluster()[0])])
    apply_at(journal.first, small_cluster())
    while journal.first.gate.behind < ahead // 2:
        journal.first.engine.cycle(START_NS, 100)
    waiting = asyncio.create_task(journal.first.gate.wait_for_room())
    await asyncio.wait_for(other.gate.wait_for_room(), PATIENCE_S)
    assert not waiting.done()
    journal.start()
    await asyncio.wait_for(waiting, PATIENCE_S)
    journal.close(PATIENCE_S)


class Counts:
    """Responses of a place: how many entered, and all of them are gone."""

    entered = (0,)

    def count_entered(self) -> tuple[int, ...]:
        return self.entered

    def count_gone(self) -> tuple[int, ...]:
        return self.entered


async def test_nothing_counts_as_delivered_while_a_call_of_another_place_waits(tmp_path: Path) -> None:
    """What that call decided has not been passed on yet."""
    journal = open_journal(tmp_path / "journal.db")
    other = journal.open_place()
    for place in journal.places:
        place.gate.responses = Counts()
    apply_at(journal.first, small_cluster())
    called = journal.status().last_record
    call = asyncio.create_task(journal.first.gate.wait_until_passed())
    await asyncio.sleep(0)
    journal._gates.note_durable(called)
    apply_at(other, [rename(small_cluster()[0])])
    await other.gate.wait_for_room()
    assert journal._committer.delivered < called
    await call
    await other.gate.wait_for_room()
    assert journal._committer.delivered == called
    journal.close(PATIENCE_S)


async def test_a_record_of_a_place_that_is_not_open_cannot_be_played(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with written(path) as journal:
        place = journal.first
        place.add(EngineCall(CallKind.SLICE, START_NS, budget=1, place=7), CallOutcome.DONE, ())
        await wait_for_all(journal)
    with closing(open_store(path)) as store:
        assert isinstance(store, JournalStore)
        follower = Follower(store, version="test")
        catch_up(follower)
        assert follower.problem is not None
        assert follower.problem.obstacle is Obstacle.DAMAGED
        assert "place 7" in follower.problem.text


async def test_one_place_is_shown_and_replayed_by_the_commands(tmp_path: Path) -> None:
    """``--place`` leaves out the records of all others, and ``info`` says which places a snapshot has."""
    path = tmp_path / "journal.db"
    async with two_managers(path):
        pass
    with closing(open_store(path)) as store:
        follower = Follower(store, version="test")
        catch_up(follower)
        SnapshotFiles(Path(f"{path}.snapshots")).add_snapshot(*follower.take_snapshot())

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output

    exported = [orjson.loads(line) for line in run("journal", "export", str(path), "--place", "1").splitlines()]
    assert {line["place"] for line in exported} == {1}
    assert exported[0]["call"] == "OPEN"
    assert "which has places 0, 1" in run("journal", "info", str(path))
    assert "sound" in run("journal", "verify", str(path))
    assert "all decisions are the same" in run("replay", str(path), "--verify", "--place", "1")
    shown = run("replay", str(path), "--place", "1")
    assert "(place 1)" in shown
    assert f"rm_id='{OTHER}'" in shown
    assert f"rm_id='{RM}'" not in shown


def replay_places(database: str) -> dict[int, tuple[str, ProgressValues]]:
    """Returns what a journal says of each place, played from its beginning: the engine, and what its shim may know."""
    with closing(open_store(database)) as store, closing(snapshots_of(database)) as snapshots:
        replay, first = begin_replay(store, snapshots, 0)
        assert replay.play_all(read.record for read in read_records(store, first)) is None
        return {number: (trace(place), place.progress.as_values()) for number, place in replay.places.items()}


async def test_pruning_spares_what_each_place_needs(database: str) -> None:
    """Of an idle place, all of whose records go; of one that was closed between two snapshots, of one that was opened
    then, and of one that is in no snapshot. Everybody goes on, the kept past can be played place by place, and numbers
    of places whose records are gone are not given again."""
    async with two_managers(database) as (journal, idle):
        closed = journal.open_place()
        apply_at(closed, [rename(command) for command in small_cluster()])
        journal.close_place(journal.open_place())
        apply_at(journal.first, [asks(500, 5)])
        await wait_for_all(journal)
        snapshot(database)
        idle_until = idle.gate.last_record
        for hour in (1, 2, 3):
            now_ns = START_NS + hour * HOUR_NS
            apply_at(journal.first, [asks(1_000 * hour, 5)], now_ns)
            if hour == 2:
                opened = journal.open_place()
                apply_at(opened, [rename(command) for command in small_cluster()], now_ns)
                apply_at(closed, [rename(asks(5_000))], now_ns)
                journal.close_place(closed)
            await wait_for_all(journal)
            snapshot(database)
        unseen = journal.open_place()
        apply_at(unseen, [rename(command) for command in small_cluster()], now_ns)
        apply_at(opened, [rename(asks(6_000, 5))], now_ns)
        apply_at(journal.first, [asks(7_000, 5)], now_ns)
        await wait_for_all(journal)
        before = {place.number: trace(place) for place in journal.places}
    assert list(before) == [0, 1, 4, 5]
    told = replay_places(database)
    assert {number: engine for number, (engine, _) in told.items()} == before

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output

    assert "0 snapshots, and 0 blocks" in run("journal", "prune", database, "--keep", "1d")
    assert "0 blocks" not in run("journal", "prune", database, "--keep", "90m")
    assert "are sound" in run("journal", "verify", database)
    with closing(open_store(database)) as store, closing(snapshots_of(database)) as snapshots:
        first_kept = store.count_bytes()[0]
        kept = [
            (each.sequence, list_places(snapshots.read_snapshot(each.sequence))) for each in snapshots.list_snapshots()
        ]
        assert [places for _, places in kept] == [[0, 1, 4], [0, 1, 4], [0, 1, 2]]
        assert idle_until < first_kept
        assert {record.call.place for record, _ in read_records(store, kept[-1][0] + 1)} == {0, 2, 4, 5}
    for place in ((), ("--place", "0"), ("--place", "1"), ("--place", "2"), ("--place", "4"), ("--place", "5")):
        assert "all decisions are the same" in run("replay", database, "--verify", *place)
    assert replay_places(database) == told
    async with written(database) as again:
        assert {place.number: trace(place) for place in again.places} == before
        apply_at(again.places[1], [rename(asks(8_000))])
        assert "ask-8000" in keys_at(again.places[1].engine)
        assert again.open_place().number == 6
