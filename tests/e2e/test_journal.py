"""A core with a journal and real bad days: killed, without a disk, without its database."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kornel.core.domain.commands import UpdateAllocations
from kornel.core.domain.effects import Allocated
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.reading import read_records, verify_store
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
)
from tests.history_databases import database, postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.prepared import kill_program, python
from tests.unit.journal.made import open_store
from tests.waiting import until

__all__ = ["database", "postgres", "postgres_server"]

KILLS = 4
JOURNAL = "kornel.v1.Journal"


@asynccontextmanager
async def core_process(
    journal: str, tmp_path: Path, *options: str
) -> AsyncIterator[tuple[subprocess.Popen[bytes], grpc.aio.Channel]]:
    """``kornel serve`` with a journal, and a channel to it."""
    ready = tmp_path / "ready"
    ready.unlink(missing_ok=True)
    command = [
        python(), "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--ready-file", str(ready),
        "--rest-address", "off", "--history", "off", "--journal", journal, *options,
    ]  # fmt: skip
    with (tmp_path / "core.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220 - forks once
    try:
        await until(lambda: ready.exists() or process.poll() is not None, "the core to serve")
        assert ready.exists(), (tmp_path / "core.log").read_text()
        async with grpc.aio.insecure_channel(ready.read_text().strip()) as channel:
            yield process, channel
    finally:
        await asyncio.to_thread(kill_program, process)


@dataclass
class Shim:
    """What a shim heard of its asks, over all cores that it has spoken to."""

    heard: dict[str, set[str]] = field(default_factory=dict)
    sent: int = 0

    async def prepare(self, channel: grpc.aio.Channel) -> None:
        """Registers, and has a node and an application."""
        scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
        await scheduler.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG))
        for call, request in (
            (scheduler.UpdateNode(), node_request(create("n1", vcore=10**9), create("n2", vcore=10**9))),
            (scheduler.UpdateApplication(), application_request("app")),
        ):
            await call.write(request)
            assert await asyncio.wait_for(call.read(), PATIENCE_S) is not grpc.aio.EOF
            call.cancel()

    async def place(self, channel: grpc.aio.Channel, seconds: float, each: int = 7, *, pause_s: float = 0.005) -> None:
        """Sends asks for so many seconds, *each* of them with a message after every pause, and notes what comes back.

        Returns once at least one is placed: on a busy machine that may take longer. So the first message is sent
        however long the stream takes to open.
        """
        scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
        call = scheduler.UpdateAllocation()
        reading = asyncio.create_task(self.listen(call))
        await asyncio.wait_for(self.send_asks(call, each), PATIENCE_S)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await asyncio.sleep(pause_s)
                    await self.send_asks(call, each)
        except TimeoutError:
            await until(lambda: self.heard or reading.done(), "the first ask to be placed")
        reading.cancel()

    async def send_asks(self, call: Any, count: int) -> None:
        """Sends *count* new asks in one message."""
        await call.write(allocation_request(*(ask(f"ask-{self.sent + n}", "app", vcore=1) for n in range(count))))
        self.sent += count

    async def place_more(self, channel: grpc.aio.Channel, than: int) -> None:
        """Sends asks until it has heard of more of them *than* so many."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.heard) <= than:
                await self.place(channel, 0.5)

    async def place_for_ever(self, channel: grpc.aio.Channel) -> None:
        """Sends asks until it is cancelled, on another stream whenever one ends.

        A full disk may have room again for a moment, because SQLite takes back what it could not write whole. Where it
        is cancelled while it writes on a stream that the core has ended, gRPC raises what the core said instead.
        """
        task = asyncio.current_task()
        assert task is not None, "the caller runs it in one"
        while not task.cancelling():
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self.place(channel, PATIENCE_S)
            await asyncio.sleep(0.01)

    async def hear_all(self, channel: grpc.aio.Channel, last: str, decided: set[str]) -> None:
        """Opens a stream without registering, asks for one more, and hears everything that was missed."""
        scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
        call = scheduler.UpdateAllocation()
        await call.write(allocation_request(ask(last, "app", vcore=1)))
        listening = asyncio.create_task(self.listen(call))
        await until(lambda: {*decided, last} <= self.heard.keys(), "everything that was decided to be heard")
        listening.cancel()
        call.cancel()

    async def listen(self, call: Any) -> None:
        """Notes what is placed where, until the stream ends."""
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                for placed in response.new:
                    self.heard.setdefault(placed.allocationKey, set()).add(placed.nodeID)
        except grpc.aio.AioRpcError:
            return


def decided_in(journal: str) -> dict[str, str]:
    """Returns what is placed where by the engine that a journal makes. Fails if the journal is not sound."""
    with closing(open_store(journal)) as store:
        assert not verify_store(store).damage
        replay, placed = Replay(), {}
        for record, _ in read_records(store):
            found = replay.play(record)
            assert found is None, found.describe()
            for effect in replay.last_effects:
                if isinstance(effect, Allocated):
                    placed[effect.spec.key] = effect.node_id
    return placed


def check_heard(shim: Shim, journal: str) -> dict[str, str]:
    """Fails unless everything that was heard was decided so, once. Returns what was decided."""
    decided = decided_in(journal)
    for key, nodes in shim.heard.items():
        assert nodes == {decided[key]}, f"{key}: heard {nodes}, decided {decided.get(key)}"
    return decided


@pytest.mark.parametrize("sync", ["full", pytest.param("written", marks=pytest.mark.long)])
async def test_nothing_that_a_shim_heard_is_lost_by_a_kill(database: str, tmp_path: Path, sync: str) -> None:
    """A core killed while it places asks goes on with all that it said, and says what may not have arrived again."""
    shim = Shim()
    for number in range(KILLS):
        async with core_process(database, tmp_path, "--journal-sync", sync) as (process, channel):
            if not number:
                await shim.prepare(channel)
            await shim.place_more(channel, len(shim.heard))
            await shim.place(channel, 0.13 * number)
            await asyncio.to_thread(kill_program, process)
        decided = check_heard(shim, database)
    async with core_process(database, tmp_path, "--journal-sync", sync) as (_, channel):
        await shim.hear_all(channel, "last", set(decided))
    assert all(len(nodes) == 1 for nodes in shim.heard.values())


@pytest.mark.parametrize("kills", [12, pytest.param(667, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])])
def test_a_process_that_is_killed_after_each_record_is_gone_on_from(database: str, kills: int) -> None:
    """Each process starts from what the one before left, and writes at most three records. What was told is in the
    journal, once, and nothing is damaged; what was not told may be there or not."""
    command = [python(), "-m", "tests.unit.journal.killed_writers", database, str(kills)]
    ended = subprocess.run(command, capture_output=True, check=False, text=True, timeout=3_500)
    assert ended.returncode == 0, ended.stderr
    told = dict(line.split() for line in ended.stdout.splitlines())
    decided = decided_in(database)
    assert len(told) >= kills / 2
    assert told.items() <= decided.items()
    with closing(open_store(database)) as store:
        placed = [
            spec.key
            for read in read_records(store)
            if isinstance(read.record.call.command, UpdateAllocations)
            for spec in read.record.call.command.allocations
        ]
        assert len(set(placed)) == len(placed) <= kills
        assert store.find_end().epoch == kills + 1


async def health_of(channel: grpc.aio.Channel, service: str) -> int:
    """Returns the state that the core gives for *service*."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
    return int(answer.status)


async def wait_for_health(channel: grpc.aio.Channel, expected: int) -> None:
    """Returns when both the journal and the core have the *expected* state."""

    async def is_reached() -> bool:
        return {await health_of(channel, JOURNAL), await health_of(channel, "")} == {expected}

    await until(is_reached, f"health {expected} of core and journal")


async def end_of(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """Returns how a stream ends on which asks are sent until it does: one ask may still find room on a full disk."""
    scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
    numbers = itertools.count()
    async with Conversation.open(scheduler.UpdateAllocation()) as stream:
        ending = asyncio.create_task(stream.end())

        async def has_ended() -> bool:
            await stream.send(allocation_request(ask(f"refused-{next(numbers)}", "app", vcore=1)))
            return ending.done()

        await until(has_ended, "the stream to end")
        code, _ = await ending
    return code


async def test_a_database_that_is_away_ends_the_core(postgres: Postgres, tmp_path: Path) -> None:
    """While PostgreSQL is stopped asks are refused UNAVAILABLE; a core that is started later goes on."""
    shim = Shim()
    async with core_process(postgres.url, tmp_path) as (core, channel):
        await shim.prepare(channel)
        await shim.place(channel, 0.3)
        placing = asyncio.create_task(shim.place(channel, 1.5))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(postgres.stop)
        assert await end_of(channel) is grpc.StatusCode.UNAVAILABLE
        await asyncio.gather(placing, return_exceptions=True)
        await asyncio.wait_for(asyncio.to_thread(core.wait), PATIENCE_S)
    await asyncio.to_thread(postgres.start)
    async with core_process(postgres.url, tmp_path) as (_, channel):
        await wait_for_health(channel, health_pb2.HealthCheckResponse.SERVING)
        before = len(shim.heard)
        await shim.place(channel, 1.0)
        await shim.place_more(channel, before)
    check_heard(shim, postgres.url)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes, where one can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=False)


async def test_a_full_disk_stops_the_intake_until_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    """RESOURCE_EXHAUSTED while there is no room; nothing is lost, and with room the core goes on by itself."""
    journal = str(small_disk / "journal.db")
    ballast = small_disk / "ballast"
    shim = Shim()
    async with core_process(journal, tmp_path) as (_, channel):
        await shim.prepare(channel)
        ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 20_000))
        placing = asyncio.create_task(shim.place_for_ever(channel))
        await wait_for_health(channel, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await end_of(channel) is grpc.StatusCode.RESOURCE_EXHAUSTED
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        ballast.unlink()
        await wait_for_health(channel, health_pb2.HealthCheckResponse.SERVING)
        await shim.place_more(channel, len(shim.heard))
    check_heard(shim, journal)


@dataclass
class Disk:
    """A file system of its own, which the kernel makes read-only when it has an error."""

    image: Path
    home: Path

    def mount(self) -> None:
        """Raises ``CalledProcessError`` where nothing can be mounted."""
        self._run("mount", "-o", "loop,errors=remount-ro", self.image, self.home)

    def unmount(self) -> None:
        """Nobody may use it any more."""
        self._run("umount", self.home)

    def fail(self) -> None:
        """Has the kernel meet an error, after which nothing can be written, whichever files are open."""
        device = self.home.stat().st_dev
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("planted")

    def protect(self, *, writable: bool) -> None:
        """Has the kernel refuse to write the files of the database, or allow it again; not its index of the log, which
        is written in memory, so that a refusal ends the process."""
        files = [file for file in self.home.glob("journal.db*") if file.suffix in (".db", ".db-wal")]
        self._run("chattr", "-i" if writable else "+i", *files)

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S)


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk, where one can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    disk = Disk(tmp_path / "image", tmp_path / "disk")
    disk.home.mkdir()
    with disk.image.open("wb") as image:
        image.truncate(32 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", disk.image], capture_output=True, check=True)
        disk.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {getattr(error, 'stderr', error)}")
    yield disk
    with suppress(OSError, subprocess.CalledProcessError):
        disk.protect(writable=True)
    subprocess.run(["umount", "-l", disk.home], check=False)


@pytest.mark.long
async def test_a_disk_that_takes_no_more_writes_stops_the_intake_until_it_does(
    tmp_path: Path, failing_disk: Disk
) -> None:
    """UNAVAILABLE while the files cannot be written; nothing is lost, and the core goes on by itself."""
    journal = str(failing_disk.home / "journal.db")
    shim = Shim()
    async with core_process(journal, tmp_path) as (_, channel):
        await shim.prepare(channel)
        await shim.place(channel, 0.3)
        placing = asyncio.create_task(shim.place(channel, 3.0))
        failing_disk.protect(writable=False)
        await wait_for_health(channel, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await end_of(channel) is grpc.StatusCode.UNAVAILABLE
        await asyncio.gather(placing, return_exceptions=True)
        failing_disk.protect(writable=True)
        await wait_for_health(channel, health_pb2.HealthCheckResponse.SERVING)
        await shim.place_more(channel, len(shim.heard))
    check_heard(shim, journal)


@pytest.mark.long
async def test_a_disk_that_the_kernel_makes_read_only_loses_nothing(tmp_path: Path, failing_disk: Disk) -> None:
    """Nothing is accepted or told any more; mounted again, the disk has all that was told, and a core goes on with it.

    An operator cannot make a disk read-only while the journal is open on it: the kernel calls it busy. Nothing is
    written while the disk fails, because ext4 may then confirm what is lost, to whichever program.
    """
    journal = str(failing_disk.home / "journal.db")
    shim = Shim()
    async with core_process(journal, tmp_path) as (process, channel):
        await shim.prepare(channel)
        await shim.place(channel, 0.3)
        # Once this ask is placed, everything before it is durable.
        await shim.hear_all(channel, "settled", set())
        failing_disk.fail()
        await asyncio.gather(shim.place(channel, 0.3), return_exceptions=True)
        await wait_for_health(channel, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await end_of(channel) is grpc.StatusCode.UNAVAILABLE
        heard = len(shim.heard)
        await asyncio.gather(shim.place(channel, 0.3), return_exceptions=True)
        assert len(shim.heard) == heard
        await asyncio.to_thread(kill_program, process)
    failing_disk.unmount()
    failing_disk.mount()
    async with core_process(journal, tmp_path) as (_, channel):
        await wait_for_health(channel, health_pb2.HealthCheckResponse.SERVING)
        await shim.place_more(channel, heard)
    check_heard(shim, journal)


def test_a_disk_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """A core that cannot keep the journal that it was asked to keep does not start."""
    place = tmp_path / "file"
    place.write_text("")
    command = [python(), "-m", "kornel", "serve", "--grpc", "127.0.0.1:0", "--rest-address", "off"]
    command += ["--history", "off", "--journal", str(place / "journal.db")]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, text=True)
    assert ended.returncode == 1
    assert "journal.db" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_the_commands_look_at_a_journal(tmp_path: Path) -> None:
    """``info``, ``verify``, ``export`` and ``replay`` work on what a core that was killed left."""
    journal = str(tmp_path / "journal.db")
    shim = Shim()
    async with core_process(journal, tmp_path) as (process, channel):
        await shim.prepare(channel)
        await shim.place(channel, 0.3)
        await asyncio.to_thread(kill_program, process)

    def run(*arguments: str) -> str:
        command = [python(), "-m", "kornel", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "epoch 1" in run("journal", "info", journal)
    assert "records are sound" in run("journal", "verify", journal)
    assert "rm-1" not in run("journal", "export", journal, "--anonymise")
    assert "rm-1" in run("journal", "export", journal)
    assert "all decisions are the same" in run("replay", journal, "--verify")
    assert "Allocated" in run("replay", journal, "--from", "5")
    assert "0 blocks" in run("journal", "prune", journal)
