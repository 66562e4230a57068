"""Journals, snapshots and bundles that somebody else has made are read within bounds, or refused with a reason."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kornel.cli.app import app
from kornel.core.journal.content import inflating, records
from kornel.core.journal.content.records import Block, RecordDamaged, read_block
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database import store as stores
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.snapshots import snapshot_store
from kornel.core.journal.snapshots.snapshots import SnapshotUnusable, restore_snapshot
from kornel.v1 import journal_pb2
from tests.examples import mark_rest_long
from tests.unit.journal.made import asks, decide, open_journal, open_store, small_cluster, written

MIB = 2**20
COMMANDS = (["journal", "verify"], ["journal", "export"], ["journal", "info"], ["replay"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal that was written and closed."""

    async def write() -> None:
        async with written(tmp_path / "journal.db") as journal:
            await decide(journal, small_cluster())
            await decide(journal, [asks(0, 3)])

    asyncio.run(write())
    return tmp_path / "journal.db"


def run_command(command: list[str], path: Path) -> Result:
    return CliRunner().invoke(app, [*command, str(path)])


def change_last_payload(path: Path, payload: bytes) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE journal_blocks SET payload = ? WHERE first = (SELECT max(first) FROM journal_blocks)", (payload,)
        )


@pytest.mark.long
def test_a_block_that_unfolds_too_far_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than twice the bound is held, since Python joins what zlib has given."""
    monkeypatch.setattr(inflating, "LEAST_BOUND", 16 * MIB)
    bomb = zlib.compress(bytes(100 * MIB), 9)
    assert len(bomb) < MIB
    tracemalloc.start()
    with pytest.raises(RecordDamaged, match="record 4: it unfolds to more than 16 MiB"):
        list(read_block(Block(4, 9, 1, 1, 0, 0, 0, bomb)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40 * MIB


def test_commands_and_a_start_refuse_a_block_that_unfolds_too_far(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflating, "LEAST_BOUND", MIB)
    change_last_payload(path, zlib.compress(bytes(8 * MIB), 9))
    for command in (["journal", "verify"], ["journal", "export"], ["replay"]):
        done = run_command(command, path)
        assert done.exit_code == 1, command
        assert "it unfolds to more than 1 MiB" in done.output
    with pytest.raises(JournalUnusable, match="it unfolds to more than 1 MiB"):
        open_journal(path)


@pytest.mark.parametrize("seed", mark_rest_long(range(30), keep=8))
def test_the_sound_part_of_a_block_is_all_before_its_damage(seed: int) -> None:
    """As somebody finds who gives the inflater one byte after the other, which takes a minute for 20 MiB."""
    dice = random.Random(seed)
    damaged = bytearray(zlib.compress(dice.randbytes(dice.choice([10, 1_000, 150_000])), 1))
    at = dice.randrange(len(damaged))
    if seed % 2:
        del damaged[at:]
    else:
        damaged[at] ^= 1 << dice.randrange(8)
    inflater, sound = zlib.decompressobj(), b""
    with suppress(zlib.error):
        for byte in damaged:
            sound += inflater.decompress(bytes([byte]))
    assert inflating.inflate_sound_part(bytes(damaged)) == sound


def test_the_sound_part_of_a_damaged_block_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflating, "LEAST_BOUND", MIB)
    damaged = zlib.compress(bytes(8 * MIB), 9)[:-1]
    with pytest.raises(inflating.UnfoldsTooFar):
        inflating.inflate_sound_part(damaged)


def test_a_snapshot_that_unfolds_too_far_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflating, "LEAST_BOUND", MIB)
    head = journal_pb2.JournalSnapshot(version="test", sequence=1).SerializeToString()
    data = b"kornelS1" + struct.pack("<I", len(head)) + head + zlib.compress(bytes(8 * MIB), 9)
    data += struct.pack("<I", zlib.crc32(data))
    with pytest.raises(SnapshotUnusable, match="it unfolds to more than 1 MiB"):
        restore_snapshot(data, Replay())


def test_a_block_ends_where_it_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So what a core writes never unfolds too far, whatever waits."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 200)

    async def write() -> int:
        async with written(tmp_path / "journal.db") as journal:
            await decide(journal, small_cluster())
            for number in range(20):
                journal.first.engine.apply(asks(number, 5), journal.last_ns)
            await journal.first.gate.wait_until_passed()
            return journal.status().last_record

    last = asyncio.run(write())
    with closing(open_store(tmp_path / "journal.db")) as store:
        blocks = [block for block, _ in store.read_blocks()]
    assert blocks[-1].last == last
    assert all(len(zlib.decompress(block.payload)) < 1_500 for block in blocks)
    open_journal(tmp_path / "journal.db").close(1)


def test_few_large_blocks_are_fetched_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All come all the same."""
    with closing(open_store(path)) as store:
        every = [block for block, _ in store.read_blocks()]
        monkeypatch.setattr(stores, "FETCHED_BYTES", 1)
        assert len(store.fetch_blocks(1, 10)) == 1
        assert [block for block, _ in store.read_blocks()] == every


def make_view(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE journal_blocks RENAME TO blocks")
    connection.execute("CREATE VIEW journal_blocks AS SELECT * FROM blocks")


def make_trigger(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TRIGGER quiet AFTER INSERT ON journal_blocks BEGIN DELETE FROM journal_blocks; END")


def make_virtual(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(word)")


def make_computed(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE journal_blocks ADD COLUMN more GENERATED ALWAYS AS (zeroblob(1000000000))")


@pytest.mark.parametrize("change", [make_view, make_trigger, make_virtual, make_computed])
def test_a_journal_has_plain_tables_only(path: Path, change: Callable[[sqlite3.Connection], None]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        change(connection)
    for command in (*COMMANDS, ["journal", "prune"]):
        done = run_command(command, path)
        assert done.exit_code == 1, command
        assert "a journal has plain tables only" in done.output, command
    with pytest.raises(JournalUnusable, match="a journal has plain tables only"):
        open_journal(path)


def test_no_command_makes_a_journal_that_is_not_there(tmp_path: Path) -> None:
    for command in (*COMMANDS, ["journal", "prune"]):
        done = run_command(command, tmp_path / "journal.db")
        assert (done.exit_code, "No such file" in done.output) == (1, True), command
    assert not list(tmp_path.iterdir())


def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    """A link to itself, and a name that is longer than file systems have."""
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    for name in ("loop.db", f"{'a' * 300}.db"):
        done = run_command(["journal", "info"], tmp_path / name)
        assert (done.exit_code, "names no file for the journal" in done.output) == (2, True), done.output


def test_a_host_whose_name_cannot_be_written_is_an_error() -> None:
    """The name of a host has parts of at most 63 characters."""
    url = f"postgresql://u:hunter2@{'a' * 64}/db"
    done = CliRunner().invoke(app, ["journal", "info", url])
    assert done.exit_code == 1
    assert "label" in done.output
    assert "hunter2" not in done.output
    with pytest.raises(JournalUnusable, match="label"):
        open_journal(url)


@pytest.mark.parametrize("suffix", ["", "-wal", ".end", ".snapshots/00000000000000000001.snapshot"])
def test_a_journal_has_regular_files_only(path: Path, suffix: str) -> None:
    """A pipe would be waited for without end."""
    pipe = Path(f"{path}{suffix}")
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    for command in (["journal", "verify"], ["journal", "info"], ["replay"]):
        done = run_command(command, path)
        assert (done.exit_code, "it is no regular file" in done.output) == (1, True), command
    with pytest.raises(JournalUnusable, match="it is no regular file"):
        open_journal(path)


def test_a_snapshot_without_end_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_store, "MOST_BYTES", MIB)
    snapshots = Path(f"{path}.snapshots")
    snapshots.mkdir()
    with (snapshots / "00000000000000000001.snapshot").open("wb") as file:
        file.truncate(1 << 40)
    done = run_command(["journal", "verify"], path)
    assert (done.exit_code, "it is longer than" in done.output) == (1, True)
    open_journal(path).close(1)
