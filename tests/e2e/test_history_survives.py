"""Kill -9 at any moment: the history opens clean, and nothing that was said to be stored is missing."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa

from kornel.core.archive.database import connect
from kornel.core.archive.settings import history_settings
from kornel.core.archive.tables import TABLES
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import history_pb2 as pb
from kornel.v1.history_pb2_grpc import HistoryServiceStub
from tests.e2e.harness import CONFIG, allocation_request, application_request, ask, create, node_request
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.prepared import kill_program
from tests.waiting import until

ROUNDS = 5
LEAST_STORED = 100
SEED = 20260901


@dataclass
class Promises:
    """What cores said is stored: for each run the highest number that was read from one."""

    stored: dict[int, int] = field(default_factory=dict)

    def note(self, status: pb.GetHistoryStatusResponse) -> None:
        assert status.enabled
        self.stored[status.run] = max(self.stored.get(status.run, 0), status.stored)


def _start(database: str, tmp_path: Path, ready: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--ready-file", str(ready),
        "--history", database, "--history-spool", str(tmp_path / "spool"),
    ]  # fmt: skip
    with (tmp_path / "core.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


@asynccontextmanager
async def core_process(database: str, tmp_path: Path) -> AsyncIterator[tuple[subprocess.Popen[bytes], str]]:
    """``kornel serve`` with a history, and its address."""
    ready = tmp_path / "ready"
    ready.unlink(missing_ok=True)
    process = _start(database, tmp_path, ready)
    try:
        await until(lambda: ready.exists() or process.poll() is not None, "the core to serve")
        assert ready.exists()
        yield process, ready.read_text().strip()
    except BaseException:
        print((tmp_path / "core.log").read_text())
        raise
    finally:
        await asyncio.to_thread(kill_program, process)


async def work(channel: grpc.aio.Channel) -> None:
    """A shim that never rests: applications come, ask, and leave."""
    scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
    await scheduler.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG))
    nodes, applications, allocations = (
        scheduler.UpdateNode(),
        scheduler.UpdateApplication(),
        scheduler.UpdateAllocation(),
    )
    reading = [asyncio.create_task(_read(call)) for call in (nodes, applications, allocations)]
    try:
        await nodes.write(node_request(*(create(f"node-{n}", vcore=10**9, memory=10**9) for n in range(5))))
        for number in itertools.count():
            name = f"app-{number}"
            await applications.write(application_request(name))
            await allocations.write(allocation_request(*(ask(f"{name}-{n}", name) for n in range(20))))
            if number > 5:
                gone = si.RemoveApplicationRequest(applicationID=f"app-{number - 5}")
                await applications.write(si.ApplicationRequest(rmID="rm-1", remove=[gone]))
            await asyncio.sleep(0.005)
    finally:
        for task in reading:
            task.cancel()


async def _read(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def run_until_killed(
    address: str, process: subprocess.Popen[bytes], promises: Promises, enough: Awaitable[object]
) -> None:
    """Work until *enough* and ask all the time what is stored; then the core dies without a word."""
    async with grpc.aio.insecure_channel(address) as channel:
        service: Any = HistoryServiceStub(channel)
        busy = asyncio.create_task(work(channel))
        waiting = asyncio.ensure_future(enough)
        while not waiting.done():
            promises.note(await service.GetHistoryStatus(pb.GetHistoryStatusRequest()))
            await asyncio.sleep(0.01)
        await asyncio.to_thread(kill_program, process)
        await waiting
        busy.cancel()
        # A stream that has ended with the core takes no more.
        with suppress(asyncio.CancelledError, asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await busy


async def enough_stored(promises: Promises, run_s: float, least: int) -> None:
    """Returns after *run_s*, once at least so many records are stored in all."""
    await asyncio.sleep(run_s)
    await until(lambda: sum(promises.stored.values()) >= least, f"{least} records to be stored")


async def caught_up(address: str) -> pb.GetHistoryStatusResponse:
    """Once nothing waits any more: how the history is doing."""
    async with grpc.aio.insecure_channel(address) as channel:
        service: Any = HistoryServiceStub(channel)

        async def ask() -> pb.GetHistoryStatusResponse | None:
            status: pb.GetHistoryStatusResponse = await service.GetHistoryStatus(pb.GetHistoryStatusRequest())
            return None if status.problem or status.spool_bytes or status.queued else status

        found: pb.GetHistoryStatusResponse = await until(ask, "the history to have caught up")
        return found


def sequences(database: str) -> dict[int, set[int]]:
    """Numbers of the records that the database has, by run."""
    settings = history_settings(database)
    assert settings is not None
    engine = connect(settings.url, 10.0, read_only=True)
    found: dict[int, set[int]] = {}
    with engine.connect() as connection:
        for table in TABLES.values():
            for run, seq in connection.execute(sa.select(table.c.run, table.c.seq)):
                assert seq not in found.setdefault(run, set())
                found[run].add(seq)
    engine.dispose()
    return found


def children(pid: int) -> list[int]:
    """Processes that *pid* has started and that are alive."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # Threads come and go meanwhile.
            found += map(int, task.read_text().split())
    return [child for child in found if alive(child)]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def three_deaths(core: int, random: Random, promises: Promises) -> list[int]:
    """Kill the committing process three times, and go on until something is stored: the processes that are left."""
    killed: set[int] = set()
    while len(killed) < 3:
        await asyncio.sleep(random.uniform(0.05, 1.3))
        for pid in children(core):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
    await enough_stored(promises, 0.0, LEAST_STORED)
    return children(core)


def opens_clean(database: str) -> None:
    """What a file that was left in the middle of something says of itself; PostgreSQL is not ours to be killed."""
    if "://" not in database and Path(database).exists():
        with sqlite3.connect(database) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


def kept(database: str, promises: Promises) -> None:
    found = sequences(database)
    for run, stored in promises.stored.items():
        missing = set(range(1, stored + 1)) - found.get(run, set())
        assert not missing, (
            f"of {stored} stored records of run {run}, {len(missing)} are missing: {sorted(missing)[:9]}"
        )


@pytest.mark.long
async def test_nothing_stored_is_lost_when_the_core_is_killed(database: str, tmp_path: Path) -> None:
    """At random moments, several times, the one right after the start included."""
    random = Random(SEED)
    promises = Promises()
    for number in range(ROUNDS):
        async with core_process(database, tmp_path) as (process, address):
            for_s = 0.02 if number == 1 else random.uniform(0.2, 1.5)
            least = 5 * LEAST_STORED if number == ROUNDS - 1 else 0
            await run_until_killed(address, process, promises, enough_stored(promises, for_s, least))
        opens_clean(database)
    async with core_process(database, tmp_path) as (_, address):
        status = await caught_up(address)
    assert status.dropped == 0
    assert len(promises.stored) == ROUNDS
    kept(database, promises)


@pytest.mark.long
async def test_nor_when_the_committing_process_is(database: str, tmp_path: Path) -> None:
    """The core does not notice but for its health, has a new one, and takes its process along when it dies itself."""
    random = Random(SEED)
    promises = Promises()
    async with core_process(database, tmp_path) as (process, address):
        deaths = asyncio.create_task(three_deaths(process.pid, random, promises))
        await run_until_killed(address, process, promises, deaths)
        await until(lambda: not any(alive(pid) for pid in deaths.result()), "its processes to end")
    opens_clean(database)
    async with core_process(database, tmp_path) as (_, address):
        status = await caught_up(address)
    assert status.dropped == 0
    kept(database, promises)


@pytest.mark.long
async def test_nor_when_the_database_is_dead_meanwhile(postgres: Postgres, tmp_path: Path) -> None:
    """The server goes away, the core is killed twice, and all comes from the spool once both are back."""
    promises = Promises()
    async with core_process(postgres.url, tmp_path) as (process, address):
        await run_until_killed(address, process, promises, enough_stored(promises, 0.5, 1))
    await asyncio.to_thread(postgres.stop)
    for _ in range(2):
        async with core_process(postgres.url, tmp_path) as (process, address):
            before = sum(promises.stored.values())
            await run_until_killed(address, process, promises, enough_stored(promises, 0.7, before + 1))
    await asyncio.to_thread(postgres.start)
    async with core_process(postgres.url, tmp_path) as (_, address):
        await caught_up(address)
    assert len(promises.stored) == 3
    assert all(promises.stored.values())
    kept(postgres.url, promises)


@pytest.mark.long
async def test_sqlite_file_is_whole_after_sigterm(tmp_path: Path) -> None:
    """A copy of the one file has all that was stored, although somebody else had it open all the time."""
    file = tmp_path / "history.db"
    async with core_process(str(file), tmp_path) as (process, address):
        async with grpc.aio.insecure_channel(address) as channel:
            service: Any = HistoryServiceStub(channel)
            busy = asyncio.create_task(work(channel))
            while (await service.GetHistoryStatus(pb.GetHistoryStatusRequest())).committed < LEAST_STORED:  # noqa: ASYNC110 - it asks a core
                await asyncio.sleep(0.05)
            other = sqlite3.connect(file)
            assert other.execute("SELECT count(*) FROM events").fetchone()[0] > 0
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)
            # On a busy machine the committer is behind by more than a stop waits for.
            while (await service.GetHistoryStatus(pb.GetHistoryStatusRequest())).spool_bytes:  # noqa: ASYNC110 - it asks a core
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    assert "left_in_spool_bytes=0" in (tmp_path / "core.log").read_text()
    try:
        _check_copy(file, other)
    finally:
        other.close()


def _check_copy(file: Path, other: sqlite3.Connection) -> None:
    assert Path(f"{file}-wal").stat().st_size == 0
    copy = file.with_name("copy.db")
    copy.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(copy)) as copied:
        rows = copied.execute("SELECT count(*) FROM events").fetchone()
    assert rows == other.execute("SELECT count(*) FROM events").fetchone()
