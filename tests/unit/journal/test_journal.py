"""What a journal promises: the same engine again, nothing before its record, and damage by its number."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import CommandRefused, UpdateConfiguration
from kornel.core.domain.effects import Allocated
from kornel.core.journal.content.calls import CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.records import Block, BlockWriter, RecordDamaged, read_block
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.database.export import Pseudonyms, write_line
from kornel.core.journal.database.reading import read_records, verify_store
from kornel.core.journal.database.store import JournalStore
from kornel.core.journal.journal import Journal
from kornel.core.journal.writing import committer
from kornel.core.service.wire.status_codes import JournalFull, JournalUnavailable
from tests.examples import mark_rest_long
from tests.history_databases import database, postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.unit.journal.made import (
    BEGINNING,
    PARTITION,
    RM,
    asks,
    copy_journal,
    decide,
    open_journal,
    open_store,
    settings_for,
    small_cluster,
)
from tests.waiting import until

__all__ = ["database", "postgres", "postgres_server"]


def allocations_of(journal: Journal) -> dict[str, str]:
    """Returns the node of each allocation that the engine has."""
    state = journal.first.engine.partition(PARTITION)
    assert state is not None
    return {key: node.node_id for node in state.nodes.values() for key in node.allocations}


async def make_journal(where: str | Path, *, rounds: int = 3) -> dict[str, str]:
    """Writes a journal and ends it well. Returns the allocations."""
    journal = open_journal(where)
    journal.start()
    await decide(journal, small_cluster())
    for number in range(rounds):
        await decide(journal, [asks(20 * number + at, 5) for at in (0, 5)])
    made = allocations_of(journal)
    journal.close(PATIENCE_S)
    return made


def flip_bit(path: Path, block: Block, at: int) -> None:
    """Flips a bit of byte *at* of the payload of *block*; of a later byte if that changes no record, as when a
    repetition is then copied from another place with the same bytes (test_damage tries every byte)."""
    records = list(read_block(block))
    while True:
        changed = bytearray(block.payload)
        changed[at] ^= 0x10
        try:
            assert list(read_block(block._replace(payload=bytes(changed)))) == records
        except RecordDamaged:
            break
        at += 1
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE journal_blocks SET payload = ? WHERE first = ?", (bytes(changed), block.first))


async def test_a_core_goes_on_where_the_last_one_ended(database: str) -> None:
    """The engine that is made from a journal has the same allocations and decides the next ask."""
    made = await make_journal(database)
    assert len(made) == 30
    journal = open_journal(database)
    journal.start()
    assert allocations_of(journal) == made
    assert journal.first.engine.rm_id == RM
    await decide(journal, [asks(100)])
    assert set(allocations_of(journal)) == {*made, "ask-100"}
    assert journal.status().epoch == 2
    journal.close(PATIENCE_S)
    with closing(open_store(database)) as store:
        found = verify_store(store)
        assert not found.damage
        assert found.records == found.last
        assert Replay().play_all(read.record for read in read_records(store)) is None


async def test_what_was_decided_lately_is_sent_again(tmp_path: Path) -> None:
    """Effects of the registered manager that may not have arrived are kept, and none of an earlier registration."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    journal = open_journal(path)
    journal.start()
    assert sum(isinstance(effect, Allocated) for effect in journal.first.untold) == 30
    await decide(journal, [*small_cluster(), asks(50)])
    await asyncio.to_thread(journal.close, PATIENCE_S)
    journal = open_journal(path)
    assert [effect.spec.key for effect in journal.first.untold if isinstance(effect, Allocated)] == ["ask-50"]
    journal.close(1)


class Counts:
    """Responses of one kind, as many as a test says."""

    def __init__(self) -> None:
        self.entered = self.gone = 0

    def count_entered(self) -> tuple[int, ...]:
        return (self.entered,)

    def count_gone(self) -> tuple[int, ...]:
        return (self.gone,)


async def test_what_the_transport_took_is_known_while_more_keeps_coming(tmp_path: Path) -> None:
    """A core that is never idle would else send all of a day again; what it took long ago and no client read, too."""
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    journal.start()
    journal.first.gate.responses = counts = Counts()
    await decide(journal, small_cluster())
    for number in range(6):
        await decide(journal, [asks(number)])
        journal.last_ns += 600 * 10**9
        counts.entered += 1
        counts.gone = min(number, 4)  # There is always one on its way, and the last two stay there.
        await journal.first.gate.wait_for_room()
    await decide(journal, [asks(6)])
    await asyncio.to_thread(journal.close, PATIENCE_S)
    journal = open_journal(path)
    told = [effect.spec.key for effect in journal.first.untold if isinstance(effect, Allocated)]
    assert told == ["ask-4", "ask-5", "ask-6"]
    journal.close(1)


async def test_nothing_passes_before_its_record_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was passed on waits for the commit of the call before it, and leaves in order."""
    committed = asyncio.Event()
    loop = asyncio.get_running_loop()
    append = JournalStore.append_block
    journal = open_journal(tmp_path / "journal.db")

    def append_later(self: JournalStore, block: Block, life: int) -> None:
        asyncio.run_coroutine_threadsafe(committed.wait(), loop).result(PATIENCE_S)
        append(self, block, life)

    monkeypatch.setattr(JournalStore, "append_block", append_later)
    journal.start()
    left: list[int] = []
    journal.first.gate.pass_on(lambda: left.append(0))
    assert left == [0]
    for number, command in enumerate([*small_cluster(), asks(0)], 1):
        journal.first.engine.apply(command, journal.last_ns)
        journal.first.gate.pass_on(lambda number=number: left.append(number))
    await asyncio.sleep(0)
    assert left == [0]
    assert journal.first.gate.waiting == 4
    committed.set()
    await asyncio.wait_for(journal.first.gate.wait_until_passed(), PATIENCE_S)
    assert left == [0, 1, 2, 3, 4]
    await asyncio.to_thread(journal.close, PATIENCE_S)


async def test_a_burst_is_written_in_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block takes the interpreter from the engine, so after a large one the next one waits for more; small ones
    follow each other at once."""
    monkeypatch.setattr(committer, "BURST_PAUSE_S", 3_600.0)
    journal = open_journal(tmp_path / "journal.db")
    journal.start()
    await decide(journal, small_cluster())
    for number in range(5):
        await decide(journal, [asks(number)])
    await decide(journal, [asks(5, 2 * committer.BURST_STEPS)])
    journal.first.engine.apply(asks(1_000), journal.last_ns)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(journal.first.gate.wait_until_passed(), 0.05)
    await asyncio.to_thread(journal.close, PATIENCE_S)
    with closing(open_store(tmp_path / "journal.db")) as store:
        last = [read.record.sequence for read in read_records(store)][-1]
    assert last == journal.status().last_record


@pytest.mark.parametrize(
    ("error", "refusal"),
    [(sqlite3.SQLITE_FULL, JournalFull), (sqlite3.SQLITE_IOERR, JournalUnavailable)],
)
async def test_a_store_that_fails_stops_the_intake_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, refusal: type[Exception]
) -> None:
    """While the store takes nothing the intake is refused and nothing leaves; then all of it is written."""
    failing = True
    append = JournalStore.append_block
    problems: list[str] = []
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    journal.on_problem = problems.append

    def fail(self: JournalStore, block: Block, life: int) -> None:
        if failing:
            cause = sqlite3.OperationalError("no")
            cause.sqlite_errorcode = error
            raise OperationalError("INSERT", {}, cause)
        append(self, block, life)

    monkeypatch.setattr(JournalStore, "append_block", fail)
    journal.start()
    for command in [*small_cluster(), asks(0, 10)]:
        journal.first.engine.apply(command, journal.last_ns)
    left: list[str] = []
    journal.first.gate.pass_on(lambda: left.append("out"))
    await until(lambda: problems, "the failure to be noticed")
    with pytest.raises(refusal):
        journal.first.gate.check_intake()
    room = asyncio.ensure_future(journal.first.gate.wait_for_room())
    await asyncio.sleep(0)
    assert not room.done()
    assert not left
    failing = False
    await asyncio.wait_for(room, PATIENCE_S)
    await journal.first.gate.wait_until_passed()
    journal.first.gate.check_intake()
    assert left == ["out"]
    assert problems[-1] == ""
    await asyncio.to_thread(journal.close, PATIENCE_S)
    with closing(open_store(path)) as store:
        assert [read.record.call.kind for read in read_records(store)] == [CallKind.BEGIN, *[CallKind.COMMAND] * 4]


async def test_another_core_on_the_same_journal_fences_the_first(postgres: Any) -> None:
    """A second core goes on in the journal; from then on nothing of the first is written or leaves it."""
    first = open_journal(postgres.url)
    first.start()
    await decide(first, small_cluster())
    second = open_journal(postgres.url)
    second.start()
    left: list[str] = []
    first.first.engine.apply(asks(0, 10), first.last_ns)
    first.first.engine.cycle(first.last_ns, 100)
    first.first.gate.pass_on(lambda: left.append("never"))
    with pytest.raises(JournalUnavailable):
        await asyncio.wait_for(first.first.gate.wait_until_passed(), PATIENCE_S)
    with pytest.raises(JournalUnavailable):
        await first.first.gate.wait_for_room()
    assert not left
    await decide(second, [asks(100)])
    assert set(allocations_of(second)) == {"ask-100"}
    for journal in (first, second):
        await asyncio.to_thread(journal.close, PATIENCE_S)


def test_a_file_that_another_core_writes_is_refused(tmp_path: Path) -> None:
    """One core to a file, for as long as it lives."""
    journal = open_journal(tmp_path / "journal.db")
    with pytest.raises(JournalUnusable, match="another core writes"):
        open_journal(tmp_path / "journal.db")
    journal.close(1)
    open_journal(tmp_path / "journal.db").close(1)


async def test_a_flipped_bit_is_named(tmp_path: Path) -> None:
    """Wherever it is in a block: the first record that cannot be trusted is named, and those before it are read."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    with closing(open_store(path)) as store:
        blocks = [block for block, _ in store.read_blocks()]
    block = max(blocks, key=lambda each: each.last - each.first)
    assert block.last > block.first
    for at in range(0, len(block.payload) - 8, 3):
        copy = tmp_path / "copy.db"
        copy_journal(path, copy)
        flip_bit(copy, block, at)
        with closing(open_store(copy)) as store:
            found = verify_store(store)
            assert len(found.damage) == 1, at
            assert block.first <= found.damage[0].first <= found.damage[0].last == block.last
            read = []
            with pytest.raises(RecordDamaged) as damaged:
                read.extend(each.record for each in read_records(store))
            assert damaged.value.sequence == found.damage[0].first == len(read) + 1
    copy_journal(path, copy)
    flip_bit(copy, block, len(block.payload) // 2)
    with pytest.raises(JournalUnusable, match=r"record \d+: it"):
        open_journal(copy)
    open_journal(copy, afresh=True).close(1)


def test_each_record_of_a_block_can_be_the_damaged_one() -> None:
    """A record whose bytes were changed before they were deflated is found by the chain alone."""
    writer = BlockWriter(10, 7, 3)
    calls = [
        (EngineCall(CallKind.SLICE, 5 + number, budget=100), CallResult(CallOutcome.DONE, 0, 0)) for number in range(5)
    ]
    block = writer.make_block(calls, 0)
    assert [record.sequence for record in read_block(block)] == [11, 12, 13, 14, 15]
    for changed in (block._replace(epoch=4), block._replace(first=12, last=16), block._replace(chain_before=8)):
        with pytest.raises(RecordDamaged) as found:
            list(read_block(changed))
        assert found.value.sequence == changed.first


async def test_a_missing_block_is_named(tmp_path: Path) -> None:
    """A hole has the numbers of the records that are not there."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    with closing(open_store(path)) as store:
        gone = [block for block, _ in store.read_blocks()][1]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM journal_blocks WHERE first = ?", (gone.first,))
    with closing(open_store(path)) as store:
        [damage] = verify_store(store).damage
    assert (damage.first, damage.last) == (gone.first, gone.last)


@pytest.mark.parametrize("step", mark_rest_long([70, 7]))
async def test_a_log_cut_at_any_byte_leaves_what_was_committed_before(tmp_path: Path, step: int) -> None:
    """SQLite's log of a core that was killed, cut anywhere in its last commits: whole records, and all before them. If
    more than the last block is missing, the end marker says so."""
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    journal.start()
    await decide(journal, small_cluster())
    for number in range(5):
        await decide(journal, [asks(number)])
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in ("journal.db", "journal.db-wal", "journal.db.end"):
        shutil.copy(tmp_path / name, killed / name)
    log = (killed / "journal.db-wal").read_bytes()
    last = journal.status().last_record
    await asyncio.to_thread(journal.close, PATIENCE_S)
    with closing(open_store(path)) as store:
        before = [block.first for block, _ in store.read_blocks()][:-1]
    kept = set()
    for size in [*range(len(log), len(log) - 4_500, -step), *range(len(log) - 40, len(log), step // 7)]:
        (killed / "journal.db-wal").write_bytes(log[:size])
        (killed / "journal.db-shm").unlink(missing_ok=True)
        cut = tmp_path / "cut"
        shutil.rmtree(cut, ignore_errors=True)
        shutil.copytree(killed, cut)
        with closing(open_store(cut / "journal.db")) as store:
            found = verify_store(store)
            whole = found.last == last or [block.first for block, _ in store.read_blocks()] == before
            said = [] if whole else [f"the log ends at record {found.last}, and its end marker says {last}"]
            assert [damage.reason for damage in found.damage] == said
            assert found.records == found.last
            kept.add(found.last)
    assert max(kept) == last
    assert len(kept) > 1


async def test_another_version_does_not_decide_again(tmp_path: Path) -> None:
    """One line says so, and what can be done; a beginning with an empty engine is always possible."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    with pytest.raises(JournalUnusable, match=r"written by version test.*--journal-afresh"):
        open_journal(path, version="other")
    journal = open_journal(path, version="other", afresh=True)
    assert journal.first.engine.rm_id == ""
    journal.close(1)
    open_journal(path, version="other").close(1)
    with closing(JournalStore(settings_for(path).url, PATIENCE_S)) as store:
        life = store.find_end().life
        assert store.prune_before(life) > 0
        assert verify_store(store).first == life


async def test_refused_commands_are_played_too(tmp_path: Path) -> None:
    """A command that is refused is a call like others, and is refused again."""
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    journal.start()
    for command in (*small_cluster(), UpdateConfiguration("nobody"), UpdateConfiguration(RM, "partitions: 5")):
        with suppress(CommandRefused, ConfigError):
            journal.first.engine.apply(command, journal.last_ns)
    await journal.first.gate.wait_until_passed()
    await asyncio.to_thread(journal.close, PATIENCE_S)
    with closing(open_store(path)) as store:
        records = [read.record for read in read_records(store)]
    assert [record.result.outcome for record in records[-2:]] == [CallOutcome.REFUSED] * 2
    assert Replay().play_all(records) is None


async def test_another_decision_is_found_with_both_sides(tmp_path: Path) -> None:
    """A replay stops at the first call that has other effects than the journal says."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    with closing(open_store(path)) as store:
        records = [read.record for read in read_records(store)]
    number = next(n for n, record in enumerate(records) if record.result.effects and record.sequence > 8)
    result = records[number].result
    records[number] = records[number]._replace(result=result._replace(effects_sum=result.effects_sum ^ 1))
    found = Replay().play_all(records)
    assert found is not None
    assert found.sequence == records[number].sequence
    assert f"{result.effects_sum:08x}" in found.describe()


async def test_nobody_is_named_in_an_anonymous_export(tmp_path: Path) -> None:
    """Neither names nor texts of the shim are in it, and the same name always has the same number."""
    path = tmp_path / "journal.db"
    await make_journal(path)
    with closing(open_store(path)) as store:
        records = [read.record for read in read_records(store)]
    pseudonyms = Pseudonyms()
    lines = b"".join(write_line(record, pseudonyms) for record in records)
    for name in (b"ask-", b'"app"', b"n1", b"joe", b"[rm]"):
        assert name not in lines
        assert name in b"".join(map(write_line, records))
    assert lines.count(b'"application-1"') >= 3
    assert b'"vcore"' in lines


def test_what_a_core_finds_is_on_the_disk_before_it_goes_on(tmp_path: Path) -> None:
    """The core before it may have been killed between a flush that failed and its repetition: its last commit can be
    read from the log and is not on the disk. Somebody may read the journal meanwhile."""
    path = tmp_path / "journal.db"
    begin = EngineCall(CallKind.BEGIN, 1, beginning=BEGINNING)
    block = BlockWriter(0, 0, 1).make_block([(begin, CallResult(CallOutcome.DONE, 0, 0))], 0)
    store = JournalStore(settings_for(path).url, 0.2)
    store.open()
    store.append_block(block, 1)
    killed, alone = tmp_path / "killed", tmp_path / "alone"
    for folder in (killed, alone):
        folder.mkdir()
    for name in (path.name, f"{path.name}-wal", f"{path.name}.end"):
        shutil.copy(tmp_path / name, killed / name)
    store.close()
    with closing(sqlite3.connect(killed / path.name)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal_blocks").fetchall()
        with closing(JournalStore(settings_for(killed / path.name).url, 0.2)) as found:
            found.open()
            shutil.copy(killed / path.name, alone)
    with closing(open_store(alone / path.name)) as copied:
        assert [each for each, _ in copied.read_blocks()] == [block]


def test_a_block_whose_commit_was_not_confirmed_is_on_the_disk_when_it_is_found(tmp_path: Path) -> None:
    """A flush that failed may have left it in the log, readable but not on the disk, and the kernel does not write it
    again. It is confirmed only when it is in the file itself, of which the log is no part."""
    path = tmp_path / "journal.db"
    store = JournalStore(settings_for(path).url, 0.2)
    store.open()
    begin = EngineCall(CallKind.BEGIN, 1, beginning=BEGINNING)
    block = BlockWriter(0, 0, 1).make_block([(begin, CallResult(CallOutcome.DONE, 0, 0))], 0)
    store.append_block(block, 1)
    store.append_block(block, 1)
    (tmp_path / "copy").mkdir()
    shutil.copy(path, tmp_path / "copy")
    with closing(open_store(tmp_path / "copy" / path.name)) as copied:
        assert [found for found, _ in copied.read_blocks()] == [block]
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal_blocks").fetchall()
        later = BlockWriter(block.last, block.chain, 1).make_block([(begin, CallResult(CallOutcome.DONE, 0, 0))], 0)
        store.append_block(later, 1)
        with pytest.raises(OSError, match="reads the journal"):
            store.append_block(later, 1)
    store.append_block(later, 1)
    store.close()
