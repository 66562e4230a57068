"""A core begins with the newest snapshot that can be used, and what was written since; what lies before may go."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog

from kornel.core.domain.commands import SetOperatorDrain
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.database.reading import read_records
from kornel.core.journal.database.settings import KeptJournal, SnapshotTimes
from kornel.core.journal.database.store import JournalStore
from kornel.core.journal.following.copying import copy_records
from kornel.core.journal.following.following import Follower
from kornel.core.journal.following.starting import begin_replay
from kornel.core.journal.journal import Journal
from kornel.core.journal.snapshot_process import Assignment, Outcome, make_snapshot
from kornel.core.journal.snapshots.retention import Stretch, choose_kept, prune_journal
from kornel.core.journal.snapshots.snapshot_store import SnapshotStore, open_snapshots
from kornel.core.journal.snapshots.snapshots import SnapshotHead, SnapshotUnusable, check_snapshot, read_head
from tests.history_databases import database, postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.properties.test_snapshots import trace
from tests.unit.journal.made import (
    BEGINNING,
    LOGGER,
    PARTITION,
    RM,
    START_NS,
    asks,
    catch_up,
    decide,
    open_store,
    settings_for,
    small_cluster,
    written,
)
from tests.waiting import until

__all__ = ["database", "postgres", "postgres_server"]

KEEP_ALL = KeptJournal(0, 0)
Logged = list[dict[str, Any]]


def assignment_for(where: str | Path, *, kept: KeptJournal = KEEP_ALL, version: str = "test") -> Assignment:
    """Returns the work of making one snapshot of the journal at *where*."""
    url = settings_for(where).url.render_as_string(hide_password=False)
    return Assignment(url, PATIENCE_S, version, kept.age_s, kept.size_bytes)


def snapshot(where: str | Path, *, kept: KeptJournal = KEEP_ALL, version: str = "test") -> Outcome:
    """Makes a snapshot of the journal at *where*, in this process."""
    outcome = make_snapshot(assignment_for(where, kept=kept, version=version))
    assert not outcome.problem
    return outcome


def snapshots_of(where: str | Path) -> SnapshotStore:
    """Returns the snapshots of the journal at *where*."""
    return open_snapshots(settings_for(where).url, PATIENCE_S)


async def make_journal(where: str | Path, *, then: int = 5) -> str:
    """Writes a journal with two snapshots, and *then* more asks. Returns the state of its engine at the end."""
    async with written(where) as journal:
        await decide(journal, [*small_cluster(), asks(0, 5)])
        snapshot(where)
        await decide(journal, [asks(5, 5)])
        snapshot(where)
        await decide(journal, [asks(10 + number) for number in range(then)])
        return state_of(journal.first.engine)


def state_of(engine: RecordingEngine) -> str:
    """Returns everything that decides of *engine*, as text."""
    return trace(engine)


def begin(where: str | Path, *, version: str = "test") -> tuple[Journal, Logged]:
    """Returns the journal at *where* as the next core opens it, and what that says in the log."""
    said: Logged = []

    def keep(_logger: object, level: str, event: dict[str, Any]) -> str:
        said.append({**event, "level": level})
        return ""

    logger = structlog.wrap_logger(structlog.PrintLogger(io.StringIO()), processors=[keep])
    beginning = BEGINNING._replace(version=version)
    return Journal.open(settings_for(where), beginning, now_ns=lambda: START_NS, logger=logger), said


def played(said: Logged) -> dict[str, Any]:
    """Returns what the log *said* of the replay."""
    (line,) = [line for line in said if line["event"] == "journal was replayed"]
    return line


def warnings(said: Logged) -> list[dict[str, Any]]:
    """Returns the lines that an operator has to see."""
    return [line for line in said if line["level"] not in ("info", "debug")]


def files_of(path: Path) -> list[Path]:
    """Returns the snapshots beside the file *path*, the oldest first."""
    return sorted(Path(f"{path}.snapshots").iterdir())


async def test_a_core_begins_with_the_newest_snapshot(database: str) -> None:
    """It plays what was written since, and is where the core before it was, with all that may not have arrived."""
    before = await make_journal(database)
    with closing(open_store(database)) as store:
        whole = Follower(store, version="test")
        records = catch_up(whole)
    journal, said = begin(database)
    assert state_of(journal.first.engine) == before
    assert whole.replay.first is not None
    assert journal.first.untold == whole.replay.first.list_untold()
    assert journal.first.configured == whole.replay.first.configured
    assert played(said)["snapshot"] > 0
    assert 0 < played(said)["records"] < records / 2
    assert not warnings(said)
    journal.start()
    await decide(journal, [asks(100, 3)])
    journal.close(PATIENCE_S)


async def test_a_core_that_ends_leaves_a_snapshot(tmp_path: Path) -> None:
    """Behind its last record, so that the next core plays nothing but that, and counts itself as the second one."""
    path = tmp_path / "journal.db"
    settings = settings_for(path, times=SnapshotTimes())
    journal = Journal.open(settings, BEGINNING, now_ns=lambda: START_NS, logger=LOGGER)
    journal.start()
    await decide(journal, [*small_cluster(), asks(0, 5)])
    before, last = state_of(journal.first.engine), journal.status().last_record
    journal.close(PATIENCE_S)
    journal, said = begin(path)
    assert played(said)["snapshot"] == last
    assert not played(said)["records"]
    assert state_of(journal.first.engine) == before
    assert journal.status().epoch == 2
    journal.close(PATIENCE_S)


async def test_snapshots_are_made_while_the_core_goes_on(tmp_path: Path) -> None:
    """As soon as enough has happened, by a process of its own; the status says so."""
    path = tmp_path / "journal.db"
    times = SnapshotTimes(every_steps=10, look_s=0.01, most_work=1.0, ending_s=0)
    settings = settings_for(path, times=times)
    journal = Journal.open(settings, BEGINNING, now_ns=lambda: START_NS, logger=LOGGER)
    journal.start()
    await decide(journal, [*small_cluster(), asks(0, 50)])
    while not journal.status().snapshots.sequence:
        await decide(journal, [])
        assert not journal.status().snapshots.problem
    status = journal.status().snapshots
    assert status.size > 0
    assert 0 < status.at_ns <= journal.last_ns
    assert [kept.sequence for kept in snapshots_of(path).list_snapshots()] == [status.sequence]
    journal.close(PATIENCE_S)


async def test_a_core_that_had_to_replay_much_makes_a_snapshot_soon(tmp_path: Path) -> None:
    """So one that is killed again and again does not replay more each time; one that replayed little waits."""
    path = tmp_path / "journal.db"
    await make_journal(str(path))
    for snapshot in snapshots_of(path).list_snapshots():
        snapshots_of(path).remove_snapshot(snapshot.sequence)
    for least, made in ((10**6, False), (10, True)):
        times = SnapshotTimes(replayed_steps=least, look_s=0.01, most_work=1.0, ending_s=0)
        journal = Journal.open(settings_for(path, times=times), BEGINNING, now_ns=lambda: START_NS, logger=LOGGER)
        journal.start()
        if made:
            await until(lambda at=journal: at.status().snapshots.sequence, "a snapshot")
        else:
            await decide(journal, [asks(200, 3)])
            assert not journal.status().snapshots.sequence
        journal.close(PATIENCE_S)


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Changes the bytes of the file *path*."""
    path.write_bytes(change(path.read_bytes()))


async def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    """For the one before it, with one line in the log; and for the beginning where none can be used."""
    path = tmp_path / "journal.db"
    before = await make_journal(path)
    older, newer = files_of(path)
    spoil(newer, lambda data: data[:200] + bytes([data[200] ^ 8]) + data[201:])
    journal, said = begin(path)
    assert state_of(journal.first.engine) == before
    assert played(said)["snapshot"] == int(older.stem)
    (line,) = warnings(said)
    assert line["record"] == int(newer.stem)
    assert line["problem"] == "its checksum does not hold"
    journal.close(PATIENCE_S)
    for file in files_of(path):
        spoil(file, lambda data: data[:-1])
    journal, said = begin(path)
    assert state_of(journal.first.engine) == before
    assert not played(said)["snapshot"]
    journal.close(PATIENCE_S)


async def test_a_snapshot_cut_at_any_byte_is_known_as_such(tmp_path: Path) -> None:
    """Whatever is missing of it, and whichever of its bits is another one."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    data = files_of(path)[-1].read_bytes()
    assert check_snapshot(data) == read_head(data)
    for size in range(len(data)):
        with pytest.raises(SnapshotUnusable):
            check_snapshot(data[:size])
    for at in range(0, 8 * len(data), 7):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(SnapshotUnusable):
            check_snapshot(bytes(flipped))


async def test_a_core_begins_whatever_is_left_of_the_newest_snapshot(tmp_path: Path) -> None:
    """A file cut anywhere, or none at all, is one line in the log, and the older one serves."""
    path = tmp_path / "journal.db"
    before = await make_journal(path, then=1)
    older, newer = files_of(path)
    data = newer.read_bytes()
    with closing(open_store(path)) as store:
        snapshots = snapshots_of(path)
        for size in [*range(0, 120, 7), *range(120, len(data), len(data) // 40), len(data) - 1]:
            newer.write_bytes(data[:size])
            replay, first = begin_replay(store, snapshots, 10**6)
            assert first == int(older.stem) + 1, size
            assert replay.play_all(read.record for read in read_records(store, first)) is None
            assert replay.engine is not None
            assert state_of(replay.engine) == before


async def test_a_snapshot_of_other_records_is_not_used(tmp_path: Path) -> None:
    """A database that lost its newest commits got others in their place: the snapshot is of the lost ones."""
    path = tmp_path / "journal.db"
    async with written(path) as journal:
        await decide(journal, [*small_cluster(), asks(0, 5)])
        copy = tmp_path / "copy.db"
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            shutil.copy(f"{path}.end", f"{copy}.end")
        await decide(journal, [asks(5)])
        snapshot(path)
    async with written(copy) as journal:
        await decide(journal, [asks(50), asks(60)])
    shutil.copytree(f"{path}.snapshots", f"{copy}.snapshots", dirs_exist_ok=True)
    journal, said = begin(copy)
    assert not warnings(said)
    assert played(said)["snapshot"] in (0, *(int(file.stem) for file in files_of(copy)[1:]))
    journal.close(PATIENCE_S)


async def test_a_snapshot_that_goes_on_otherwise_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the records behind it come out differently, the one before it serves."""
    path = tmp_path / "journal.db"
    before = await make_journal(path)
    newest = int(files_of(path)[-1].stem)
    real = Follower.start_from_snapshot

    def drain_node(self: Follower, data: bytes) -> object:
        head = real(self, data)
        if head.sequence == newest:
            assert self.engine is not None
            self.engine.apply(SetOperatorDrain(RM, PARTITION, "n1", True, "nobody"), head.at_ns)
        return head

    monkeypatch.setattr(Follower, "start_from_snapshot", drain_node)
    journal, said = begin(path)
    assert state_of(journal.first.engine) == before
    assert played(said)["snapshot"] < newest
    assert [line["record"] for line in warnings(said)] == [newest]
    journal.close(PATIENCE_S)


async def test_a_new_life_needs_no_snapshot_of_the_one_before(tmp_path: Path) -> None:
    """A core that began empty is followed by one that begins there."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    async with written(path, afresh=True) as journal:
        await decide(journal, [*small_cluster(), asks(70)])
        before = state_of(journal.first.engine)
    for file in files_of(path)[2:]:
        file.unlink()
    journal, said = begin(path)
    assert not played(said)["snapshot"]
    assert state_of(journal.first.engine) == before
    journal.close(PATIENCE_S)


async def test_the_past_is_pruned_and_the_rest_goes_on(database: str) -> None:
    """Records behind the oldest kept snapshot go; a core begins as before, and the kept past can be played."""
    before = await make_journal(database)
    with (
        closing(JournalStore(settings_for(database).url, PATIENCE_S)) as store,
        closing(snapshots_of(database)) as snapshots,
    ):
        sequences = [kept.sequence for kept in snapshots.list_snapshots()]
        pruned = prune_journal(store, snapshots, KeptJournal(0, 1))
        kept = [kept.sequence for kept in snapshots.list_snapshots()]
        assert kept == sequences[: len(kept)]
        assert pruned.blocks > 0
        assert pruned.first == kept[-1] + 1
        assert store.count_bytes()[0] <= kept[-1]
        assert store.find_chain(kept[-1]) == snapshots.list_snapshots()[-1].head.chain
        for sequence in (0, pruned.first, pruned.first + 3, 10**6):
            replay, first = begin_replay(store, snapshots, sequence)
            assert first >= pruned.first
            assert replay.play_all(read.record for read in read_records(store, first)) is None
    journal, said = begin(database)
    assert state_of(journal.first.engine) == before
    assert not warnings(said)
    journal.close(PATIENCE_S)


async def test_an_old_state_is_copied_into_a_journal_of_its_own(database: str, tmp_path: Path) -> None:
    """From the newest snapshot before a record: a core that starts there is where the one was that wrote it."""
    await make_journal(database)
    copy = tmp_path / "copy" / "journal.db"
    with closing(open_store(database)) as store, closing(snapshots_of(database)) as snapshots:
        oldest = snapshots.list_snapshots()[-1].sequence
        copied = copy_records(store, snapshots, oldest + 2, copy)
        assert copied.snapshot == copied.first == oldest
        assert copied.last >= oldest + 2
        replay, first = begin_replay(store, snapshots, 1)
        then = [read.record for read in read_records(store, first) if read.record.sequence <= copied.last]
        assert replay.play_all(then) is None
        with pytest.raises(FileExistsError):
            copy_records(store, snapshots, oldest, copy)
    journal, said = begin(copy)
    assert played(said)["snapshot"] == oldest
    assert replay.engine is not None
    assert state_of(journal.first.engine) == state_of(replay.engine)
    journal.close(PATIENCE_S)


async def test_a_state_that_is_not_kept_is_not_copied(database: str, tmp_path: Path) -> None:
    """The records that lead to it were pruned: a core on such a copy would begin empty."""
    await make_journal(database)
    copy = tmp_path / "journal.db"
    with (
        closing(JournalStore(settings_for(database).url, PATIENCE_S)) as store,
        closing(snapshots_of(database)) as snapshots,
    ):
        prune_journal(store, snapshots, KeptJournal(0, 1))
        oldest = snapshots.list_snapshots()[-1].sequence
        for last in (1, oldest):
            with pytest.raises(FileNotFoundError, match=f"the state after record {last} is not kept"):
                copy_records(store, snapshots, last, copy)
        assert not copy.exists()
        assert copy_records(store, snapshots, oldest + 1, copy).snapshot == oldest


async def test_without_snapshots_a_pruned_journal_says_so(tmp_path: Path) -> None:
    """One line says which records are gone, and what can be done."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    with closing(JournalStore(settings_for(path).url, PATIENCE_S)) as store:
        prune_journal(store, snapshots_of(path), KeptJournal(0, 1))
    shutil.rmtree(f"{path}.snapshots")
    with pytest.raises(JournalUnusable, match=r"records 1 to \d+ were pruned, and none of the snapshots.*afresh"):
        begin(path)


async def test_nothing_goes_that_a_damaged_snapshot_stood_for(tmp_path: Path) -> None:
    """The records behind a snapshot stay as long as it cannot be read."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    for file in files_of(path)[:-1]:
        spoil(file, lambda data: data[:-1])
    with closing(JournalStore(settings_for(path).url, PATIENCE_S)) as store:
        assert not prune_journal(store, snapshots_of(path), KeptJournal(0, 1)).blocks
        assert store.count_bytes()[0] == 1


def stretch(first: int, at_s: float, *, life: int = 1, size: int = 10) -> Stretch:
    """Returns a stretch that begins with a snapshot, or with its life."""
    return Stretch(first, life, int(at_s * 10**9), 0 if first == life else first - 1, size)


def kept_of(stretches: list[Stretch], kept: KeptJournal, now_s: float) -> list[int]:
    """Returns with which records the stretches begin that are kept."""
    return [each.first for each in choose_kept(stretches, kept, int(now_s * 10**9))]


def test_what_is_too_old_goes() -> None:
    """A stretch goes when its newest record is too old, and two that reach the end stay whatever their age."""
    line = [stretch(1, 0), stretch(100, 1_000), stretch(200, 2_000), stretch(300, 3_000)]
    assert kept_of(line, KeptJournal(10_000, 0), 3_600) == [1, 100, 200, 300]
    assert kept_of(line, KeptJournal(2_000, 0), 3_600) == [100, 200, 300]
    assert kept_of(line, KeptJournal(1_600, 0), 3_600) == [200, 300]
    assert kept_of(line, KeptJournal(1, 0), 3_600) == [200, 300]
    assert kept_of(line[:1], KeptJournal(1, 0), 3_600) == [1]


def test_what_is_too_much_goes() -> None:
    """The oldest first, until the rest fits or no more may go."""
    line = [stretch(1, 0), stretch(100, 1_000), stretch(200, 2_000), stretch(300, 3_000)]
    assert kept_of(line, KeptJournal(0, 40), 3_600) == [1, 100, 200, 300]
    assert kept_of(line, KeptJournal(0, 39), 3_600) == [100, 200, 300]
    assert kept_of(line, KeptJournal(0, 1), 3_600) == [200, 300]


def test_other_lives_go_before_the_two_that_are_needed() -> None:
    """A life that is over is nobody's beginning."""
    line = [stretch(1, 0), stretch(100, 1_000), stretch(200, 2_000, life=200)]
    assert kept_of(line, KeptJournal(1, 0), 9_000) == [200]
    assert kept_of(line, KeptJournal(0, 0), 3_000) == [1, 100, 200]


def test_old_snapshots_are_thinned_out() -> None:
    """Of those of an hour that is past, the first one; the records stay, since that one leads to them."""
    line = [stretch(1, 0), *(stretch(600 * n, 600 * n) for n in range(1, 25))]
    kept = kept_of(line, KEEP_ALL, 14_400)
    assert kept == [1, 3_600, 7_200, 10_800, 11_400, 12_000, 12_600, 13_200, 13_800, 14_400]


async def test_an_engine_of_another_version_begins_with_what_the_old_one_left(tmp_path: Path) -> None:
    """Where its last record has a snapshot; otherwise one line says who wrote what comes."""
    path = tmp_path / "journal.db"
    async with written(path) as journal:
        await decide(journal, [*small_cluster(), asks(0, 5)])
        before = state_of(journal.first.engine)
        last = journal.status().last_record
    snapshot(path)
    journal, said = begin(path, version="next")
    assert played(said)["snapshot"] == last
    assert state_of(journal.first.engine) == before
    journal.start()
    await decide(journal, [asks(5, 5)])
    before = state_of(journal.first.engine)
    shutil.copytree(tmp_path, tmp_path.with_suffix(".killed"))
    journal.close(PATIENCE_S)
    again, said = begin(tmp_path.with_suffix(".killed") / "journal.db", version="next")
    assert played(said)["snapshot"] == last
    assert state_of(again.first.engine) == before
    again.close(PATIENCE_S)
    with pytest.raises(JournalUnusable, match=r"record \d+ on were written by version next.*--journal-afresh"):
        begin(tmp_path.with_suffix(".killed") / "journal.db", version="third")


def test_nobody_else_reads_snapshots(tmp_path: Path) -> None:
    """They hold configurations and names of users."""
    snapshots = open_snapshots(settings_for(tmp_path / "journal.db").url, PATIENCE_S)
    snapshots.add_snapshot(head_of(7), b"data")
    (file,) = files_of(tmp_path / "journal.db")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def head_of(sequence: int) -> SnapshotHead:
    """Returns the head of a snapshot after record *sequence*."""
    return SnapshotHead("test", sequence, 1, 1, 0, 0, 0)


def test_a_snapshot_that_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a part of it nor a file of another name; a writer that was killed leaves one that the next removes."""
    snapshots = open_snapshots(settings_for(tmp_path / "journal.db").url, PATIENCE_S)
    snapshots.add_snapshot(head_of(7), b"data")
    left = files_of(tmp_path / "journal.db")[0].parent / "00000000000000000008.snapshot.new"
    left.write_bytes(b"da")

    def fail(_: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="space"):
            snapshots.add_snapshot(head_of(9), b"data")
    assert [file.name for file in files_of(tmp_path / "journal.db")] == ["00000000000000000007.snapshot"]


def test_the_process_says_what_is_wrong(tmp_path: Path) -> None:
    """A journal that cannot be read is a problem and no exception."""
    assert "unable to open" in make_snapshot(assignment_for(tmp_path / "none" / "journal.db")).problem
