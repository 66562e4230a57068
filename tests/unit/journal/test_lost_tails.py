"""A core does not take the place where its log was damaged or cut for the end of the log.

The journals here were confirmed up to a record. Whatever happens to their files then, a core that starts has that
record, or does not start.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.journal.content.records import Block
from kornel.core.journal.database.choices import JournalSync, JournalUnusable
from kornel.core.journal.database.end_marker import SLOT_BYTES, read_marker
from kornel.core.journal.database.store import JournalStore
from kornel.core.journal.journal import Journal
from tests.patience import PATIENCE_S
from tests.prepared import python
from tests.unit.journal.made import (
    BEGINNING,
    LOGGER,
    START_NS,
    asks,
    decide,
    open_journal,
    open_store,
    settings_for,
    small_cluster,
    written,
)

NAME: Final = "journal.db"
MARKER: Final = f"{NAME}.end"
ASKS: Final = 25
FEW, MANY = 40, 300


@dataclass(frozen=True)
class Confirmed:
    """The files of a journal, and the last record that was confirmed, with its checksum."""

    files: Path
    last: int
    chain: int


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and not path.name.endswith((".lock", "-shm"))]


async def write_confirmed(folder: Path, *, killed: bool) -> Confirmed:
    """Writes a journal, and keeps its files as they are after a kill, with the write-ahead log, or after an end."""
    path, kept = folder / NAME, folder / "kept"
    kept.mkdir()
    async with written(path) as journal:
        await decide(journal, small_cluster())
        for number in range(ASKS):
            await decide(journal, [asks(number)])
        last = journal.status().last_durable
        if killed:
            for file in list_files(folder):
                shutil.copy(file, kept)
    if not killed:
        for file in list_files(folder):
            shutil.copy(file, kept)
    with closing(open_store(path)) as store:
        chain = store.find_chain(last)
    assert chain is not None
    return Confirmed(kept, last, chain)


def damage_place(path: Path, dice: random.Random) -> str:
    """Cuts *path* at a random place, flips a bit there, or clears what stands there."""
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    kind = dice.choice(["cut", "flip", "clear"])
    if kind == "cut":
        del data[at:]
    elif kind == "flip":
        data[at] ^= 1 << dice.randrange(8)
    else:
        end = min(len(data), at + dice.randrange(1, 8_192))
        data[at:end] = bytes(end - at)
    path.write_bytes(data)
    return f"{kind} {path.name} at {at}"


def starts_whole(folder: Path, confirmed: Confirmed) -> bool:
    """Tells whether a core starts on the journal in *folder*. One that starts has what was confirmed."""
    try:
        journal = open_journal(folder / NAME)
    except JournalUnusable:
        return False
    journal.close(PATIENCE_S)
    with closing(open_store(folder / NAME)) as store:
        assert store.find_chain(confirmed.last) == confirmed.chain
    return True


def copy_damaged(confirmed: Confirmed, folder: Path, dice: random.Random) -> str:
    shutil.copytree(confirmed.files, folder)
    files = sorted(path for path in list_files(folder))
    return damage_place(dice.choice(files), dice)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_no_damage_loses_what_was_confirmed(tmp_path: Path, count: int) -> None:
    """At random places of the log, its write-ahead log and its end marker, after a kill and after an end."""
    began = 0
    for killed in (True, False):
        (tmp_path / str(killed)).mkdir()
        confirmed = asyncio.run(write_confirmed(tmp_path / str(killed), killed=killed))
        for seed in range(count // 2):
            folder = tmp_path / f"{killed}-{seed}"
            what = copy_damaged(confirmed, folder, random.Random(seed))
            try:
                began += starts_whole(folder, confirmed)
            except AssertionError as error:
                raise AssertionError(f"{what}, {killed=}, {seed=}") from error
            shutil.rmtree(folder)
    assert 0 < began < count


@pytest.fixture
def confirmed(tmp_path: Path) -> Confirmed:
    """A journal of a core that was killed. Its last records are in the write-ahead log only."""
    return asyncio.run(write_confirmed(tmp_path, killed=True))


def cut_log(confirmed: Confirmed, *, frames: int) -> Path:
    """Cuts *frames* pages off the write-ahead log. Returns the file of the journal."""
    log = confirmed.files / f"{NAME}-wal"
    log.write_bytes(log.read_bytes()[: -frames * (4_096 + 24)])
    return confirmed.files / NAME


def test_a_core_refuses_a_log_that_has_lost_its_end(confirmed: Confirmed) -> None:
    """It says where the log ends and where it should, again and again, and leaves the files as they are."""
    path = cut_log(confirmed, frames=8)
    before = {file: file.read_bytes() for file in list_files(confirmed.files)}
    for _ in range(2):
        with pytest.raises(
            JournalUnusable, match=r"the log ends at record (\d+), and its end marker says (\d+)"
        ) as said:
            open_journal(path)
        assert f"says {confirmed.last}: with --journal-accept-loss" in str(said.value)
    done = CliRunner().invoke(app, ["journal", "verify", str(path)])
    assert done.exit_code == 1
    assert f"its end marker says {confirmed.last}" in done.output
    assert {file: file.read_bytes() for file in list_files(confirmed.files)} == before


def test_an_empty_file_does_not_take_its_log_with_it(confirmed: Confirmed) -> None:
    """SQLite removes a write-ahead log beside which the file is empty, and all that is in it."""
    path = confirmed.files / NAME
    head = path.read_bytes()
    path.write_bytes(b"")
    before = {file: file.read_bytes() for file in list_files(confirmed.files)}
    said = "the file is empty, and its write-ahead log is not"
    for command in ("verify", "info"):
        done = CliRunner().invoke(app, ["journal", command, str(path)])
        assert done.exit_code == 1
        assert said in " ".join(done.output.split())
    with pytest.raises(JournalUnusable, match=f"{said}: with --journal-accept-loss"):
        open_journal(path)
    assert {file: file.read_bytes() for file in list_files(confirmed.files)} == before
    path.write_bytes(head)
    assert starts_whole(confirmed.files, confirmed)


def test_an_operator_can_accept_the_loss_of_all(confirmed: Confirmed) -> None:
    """The core begins with nothing."""
    path = confirmed.files / NAME
    path.write_bytes(b"")
    open_journal(path, accept_loss=True).close(PATIENCE_S)
    open_journal(path).close(PATIENCE_S)


def test_an_operator_can_accept_the_loss(confirmed: Confirmed) -> None:
    """The core goes on with what is there, and marks the end of what it writes from then on."""
    path = cut_log(confirmed, frames=8)
    journal = open_journal(path, accept_loss=True)
    assert journal.status().last_record < confirmed.last
    journal.close(PATIENCE_S)
    open_journal(path).close(PATIENCE_S)
    assert CliRunner().invoke(app, ["journal", "verify", str(path)]).exit_code == 0


def test_an_engine_that_begins_afresh_needs_no_end(confirmed: Confirmed) -> None:
    """Nothing of the log is used then."""
    path = cut_log(confirmed, frames=8)
    open_journal(path, afresh=True).close(PATIENCE_S)
    open_journal(path).close(PATIENCE_S)


def test_the_marker_brings_the_last_block_back(confirmed: Confirmed) -> None:
    """Log and marker are flushed at once: after a power failure either may be ahead of the other by a block."""
    with closing(open_store(confirmed.files / NAME)) as store:
        first = [block.first for block, _ in store.read_blocks()][-1]
    path = cut_log(confirmed, frames=1)
    with closing(open_store(path)) as store:
        assert store.find_end().sequence == first - 1
    assert starts_whole(confirmed.files, confirmed)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_slot_of_the_marker_may_be_half_written(confirmed: Confirmed, slot: int) -> None:
    """The other one says enough."""
    marker = confirmed.files / MARKER
    data = bytearray(marker.read_bytes())
    data[slot * SLOT_BYTES + 20] ^= 1
    marker.write_bytes(data)
    assert starts_whole(confirmed.files, confirmed)


def test_a_log_whose_marker_is_gone_is_refused(confirmed: Confirmed) -> None:
    """Nobody can tell whether it is whole: also a hard link, beside which is no write-ahead log, has no marker."""
    other = confirmed.files.parent / "other.db"
    other.hardlink_to(confirmed.files / NAME)
    with pytest.raises(JournalUnusable, match=r"the log ends at record \d+, and its end marker is missing"):
        open_journal(other)


def test_a_journal_of_an_earlier_version_gets_its_marker(confirmed: Confirmed) -> None:
    """Its log has never had one."""
    path = confirmed.files / NAME
    (confirmed.files / MARKER).unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 0")
    assert starts_whole(confirmed.files, confirmed)
    assert (confirmed.files / MARKER).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("made", [0, 4_096, SLOT_BYTES])
def test_a_marker_that_was_not_finished_marks_nothing(tmp_path: Path, made: int) -> None:
    """The core was killed while it made the first one, or the disk was full: nothing was confirmed by then."""
    (tmp_path / MARKER).write_bytes(bytes(made))
    for _ in range(2):
        open_journal(tmp_path / NAME).close(PATIENCE_S)
    assert (tmp_path / MARKER).stat().st_size == 2 * SLOT_BYTES


def test_a_marker_for_which_there_is_no_room_is_no_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is nearly full takes a part of it, and refuses the rest. The core starts once there is room."""
    left = [5_000]

    def write(file: int, data: bytes, at: int) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(left[0], len(data))
        left[0] -= taken
        return pwrite(file, data[:taken], at)

    pwrite = os.pwrite
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", write)
        with pytest.raises(JournalUnusable, match="No space left"):
            open_journal(tmp_path / NAME)
    assert (tmp_path / MARKER).stat().st_size == 5_000
    open_journal(tmp_path / NAME).close(PATIENCE_S)


def test_a_copy_does_not_take_the_marker_of_another_journal(confirmed: Confirmed, tmp_path: Path) -> None:
    """Somebody has removed the file of an earlier copy, and not what lies beside it."""
    (tmp_path / "copy.db.end").write_bytes((confirmed.files / MARKER).read_bytes())
    done = CliRunner().invoke(app, ["journal", "copy", str(confirmed.files / NAME), str(tmp_path / "copy.db")])
    assert done.exit_code == 1
    assert "copy.db.end is there already" in " ".join(done.output.split())
    assert not (tmp_path / "copy.db").exists()


async def test_a_running_core_is_copied_with_its_marker(tmp_path: Path) -> None:
    """As docs/operations.md says. A plain copy of the database is refused, until somebody accepts the loss."""
    plain, copy = tmp_path / "plain.db", tmp_path / "copy.db"
    async with written(tmp_path / NAME) as journal:
        await decide(journal, [*small_cluster(), asks(0)])
        last = journal.status().last_durable
        with closing(sqlite3.connect(tmp_path / NAME)) as running, closing(sqlite3.connect(plain)) as target:
            running.backup(target)
        done = await asyncio.to_thread(CliRunner().invoke, app, ["journal", "copy", str(tmp_path / NAME), str(copy)])
        assert done.exit_code == 0, done.output
        await decide(journal, [asks(1)])
    open_journal(copy).close(PATIENCE_S)
    with closing(open_store(copy)) as store:
        assert store.find_end().sequence > last
    with pytest.raises(JournalUnusable, match="its end marker is missing"):
        open_journal(plain)


def test_a_large_block_is_marked_after_it(tmp_path: Path) -> None:
    """The marker has no room for it, so the log is never behind the marker."""
    path = tmp_path / NAME
    noise = random.Random(0).randbytes(2 * SLOT_BYTES)
    with closing(JournalStore(settings_for(path).url, PATIENCE_S)) as store:
        store.open()
        store.append_block(Block(1, 1, 1, 1, 0, 7, 0, noise), 1)
        marked = read_marker(Path(f"{path}.end"))
    assert marked is not None
    assert (marked.block.last, marked.block.chain, marked.has_payload) == (1, 7, False)


@pytest.mark.parametrize("sync", [JournalSync.WRITTEN, JournalSync.OFF])
async def test_a_journal_that_is_not_flushed_has_a_marker_too(tmp_path: Path, sync: JournalSync) -> None:
    """It survives the end of the core, as the log does."""
    journal = Journal.open(settings_for(tmp_path / NAME, sync), BEGINNING, now_ns=lambda: START_NS, logger=LOGGER)
    journal.start()
    await decide(journal, small_cluster())
    await asyncio.to_thread(journal.close, PATIENCE_S)
    marked = read_marker(tmp_path / MARKER)
    assert marked is not None
    assert marked.block.last == journal.status().last_record


@pytest.mark.parametrize("link", [Path.hardlink_to, Path.symlink_to])
async def test_a_second_core_is_refused_by_whatever_name(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    """The file has one writer, whatever it is called."""
    other = tmp_path / "elsewhere" / "other.db"
    other.parent.mkdir()
    async with written(tmp_path / NAME):
        link(other, tmp_path / NAME)
        with pytest.raises(JournalUnusable, match="another core writes"):
            open_journal(other)


async def test_a_core_is_started_by_a_symbolic_link(tmp_path: Path) -> None:
    """Log, marker and snapshots lie beside the file that it leads to."""
    (tmp_path / "link.db").symlink_to(tmp_path / NAME)
    async with written(tmp_path / NAME) as journal:
        await decide(journal, small_cluster())
        last = journal.status().last_record
    async with written(tmp_path / "link.db") as journal:
        assert journal.status().last_record > last
    assert {path.name for path in list_files(tmp_path)} == {NAME, MARKER, "link.db"}


def lock_as_nfs(file: int, _operation: int) -> None:
    """Locks all bytes of *file*, as the kernel does over NFS."""
    lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)


async def test_a_core_keeps_its_journal_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, the two kinds of locks know of each other, and SQLite has to get those that it asks for."""
    monkeypatch.setattr(fcntl, "flock", lock_as_nfs)
    async with written(tmp_path / NAME) as journal:
        await decide(journal, small_cluster())
        with pytest.raises(JournalUnusable, match="another core writes"):
            open_journal(tmp_path / NAME)


CLOSE_LAST: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM journal_blocks").fetchall()
connection.close()
"""


async def test_locks_of_sqlite_stay_whole(tmp_path: Path) -> None:
    """A process loses its locks on a file with any descriptor that it closes. Another process would take itself for the
    last one that has the file open, and remove the write-ahead log."""
    path = tmp_path / NAME
    async with written(path) as journal:
        await decide(journal, small_cluster())
        with closing(open_store(path)) as store:
            store.find_end()
        with closing(JournalStore(settings_for(path).url, PATIENCE_S)) as writing:
            writing.prune_before(1)
        await asyncio.to_thread(subprocess.run, [python(), "-c", CLOSE_LAST, str(path)], check=True)
        assert path.with_name(f"{NAME}-wal").exists()
        await decide(journal, [asks(0)])
    open_journal(path).close(PATIENCE_S)
