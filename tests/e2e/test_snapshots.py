"""Cores that start from snapshots: killed, upgraded, without room on the disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kornel.core.journal.snapshots.snapshot_store import KeptSnapshot, open_snapshots
from tests.e2e.cores import CoreProcess, Cores, cores_on
from tests.e2e.test_journal import Shim, small_disk
from tests.history_databases import database, postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.unit.journal.made import settings_for
from tests.waiting import until

__all__ = ["database", "postgres", "postgres_server", "small_disk"]

NOT_OFTEN = ("--journal-snapshots", "1000")


def snapshots_of(journal: str) -> list[KeptSnapshot]:
    """Returns the snapshots of *journal*, the newest first."""
    snapshots = open_snapshots(settings_for(journal).url, PATIENCE_S)
    try:
        return snapshots.list_snapshots()
    finally:
        snapshots.close()


async def run_shim(cores: Cores, journal: str, **options: str) -> tuple[Shim, CoreProcess]:
    """Returns a shim with some placements, and the core that made them."""
    core, shim = await cores.start(*NOT_OFTEN, **options), Shim()
    await shim.prepare(core.channel)
    await shim.place_more(core.channel, 0)
    return shim, core


async def test_a_core_that_ends_leaves_everything_to_another_version(database: str, tmp_path: Path) -> None:
    """It starts from the snapshot, and the shim goes on without a registration."""
    async with cores_on(database, tmp_path) as cores:
        shim, first = await run_shim(cores, database, version="1.0-old")
        first.send(signal.SIGTERM)
        assert await first.ended() == 0
        (snapshot,) = snapshots_of(database)
        assert snapshot.head.version == "1.0-old"
        second = await cores.start(version="1.1-new")
        await shim.hear_all(second.channel, "last", set())
        status = await second.status()
        assert sum(partition.allocation_count for partition in status.partitions) == len(shim.heard)
        # What the new version has written is its own, wherever it began.
        second.send(signal.SIGKILL)
        await second.ended()
        third = await cores.start(version="1.1-new")
        await shim.hear_all(third.channel, "last again", set())
    assert all(len(nodes) == 1 for nodes in shim.heard.values())


async def test_another_version_refuses_what_a_killed_core_left(tmp_path: Path) -> None:
    """With one line that says which version wrote it, and what can be done."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        _, first = await run_shim(cores, journal, version="1.0-old")
        first.send(signal.SIGKILL)
        await first.ended()
        with pytest.raises(AssertionError) as refused:
            await cores.start(version="1.1-new")
    said = str(refused.value)
    assert "were written by version 1.0-old, and version 1.1-new does not decide them again" in said
    assert "Traceback" not in said


@pytest.mark.long
async def test_a_rolling_upgrade_loses_nothing(postgres: Postgres, tmp_path: Path) -> None:
    """The new version stands by until the old one ends, and begins with the snapshot that it leaves."""
    async with cores_on(postgres.url, tmp_path) as cores:
        shim, first = await run_shim(cores, postgres.url, version="1.0-old")
        second = await cores.start(version="1.1-new")
        assert not await second.serves()
        assert "written by version 1.0-old" in (await second.status()).standing.problem
        await shim.place(first.channel, 0.3)
        first.send(signal.SIGTERM)
        assert await cores.leader(first) is second
        assert await first.ended() == 0
        await shim.hear_all(second.channel, "last", set())
        status = await second.check_books()
        assert sum(partition.allocation_count for partition in status.partitions) == len(shim.heard)
        assert not status.standing.problem


@pytest.mark.long
async def test_a_writer_that_is_killed_leaves_no_snapshot(tmp_path: Path) -> None:
    """Only what was there before; the core goes on, and makes the next one."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start("--journal-snapshots", "0.1"), Shim()
        await shim.prepare(core.channel)
        await shim.place(core.channel, 0.3)

        def is_killed() -> bool:
            for pid in makers_of(core):
                with_signal(pid)
            return "ended by signal 9" in core.log.read_text()

        await until(is_killed, "a snapshot's maker to be killed")
        await place_until(shim, core, lambda: bool(snapshots_of(journal)))
        assert not any(kept.problem for kept in snapshots_of(journal))
        core.send(signal.SIGKILL)
        await core.ended()
        again = await cores.start()
        await shim.hear_all(again.channel, "last", set())


def makers_of(core: CoreProcess) -> list[int]:
    """Returns the processes that make a snapshot for *core* now."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and b"snapshot_process" in (entry / "cmdline").read_bytes():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == core.find_program():
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


def with_signal(pid: int) -> None:
    """Kills *pid*, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.long
async def test_without_room_there_is_no_snapshot_and_the_core_goes_on(tmp_path: Path, small_disk: Path) -> None:
    """The log says so; what was written in part is gone; with room again the next one is made."""
    journal, ballast = str(tmp_path / "journal.db"), small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free))
    os.symlink(small_disk, f"{journal}.snapshots")  # noqa: PTH211
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start("--journal-snapshots", "0.1"), Shim()
        await shim.prepare(core.channel)
        await place_until(shim, core, lambda: "could not be made" in core.log.read_text())
        assert "No space left" in core.log.read_text()
        assert os.listdir(small_disk) == ["ballast"]  # noqa: PTH208 - not even a part of one
        ballast.unlink()
        await place_until(shim, core, lambda: bool(snapshots_of(journal)))
        core.send(signal.SIGKILL)
        await core.ended()
        again = await cores.start()
        await shim.hear_all(again.channel, "last", set())


async def place_until(shim: Shim, core: CoreProcess, condition: Callable[[], bool]) -> None:
    """Has asks placed until *condition* holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await shim.place(core.channel, 0.05)
            await asyncio.sleep(0.2)


async def test_a_core_starts_from_its_snapshot_without_the_records_before(tmp_path: Path) -> None:
    """After a kill, from a snapshot made on the way and what came behind it, with the records before it pruned."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start("--journal-snapshots", "0.1", "--journal-keep", "1m,1"), Shim()
        await shim.prepare(core.channel)
        await place_until(shim, core, lambda: len(snapshots_of(journal)) >= 2)
        await shim.place(core.channel, 0.3)
        core.send(signal.SIGKILL)
        await core.ended()
        shutil.copytree(f"{journal}.snapshots", tmp_path / "kept")
        again = await cores.start()
        assert "snapshot=" in again.log.read_text()
        await shim.hear_all(again.channel, "last", set())
        await again.check_books()
    assert all(len(nodes) == 1 for nodes in shim.heard.values())
