"""Shims that go on exactly where their streams broke, while the core is killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kornel.core.domain.effects import Allocated as Placed
from kornel.core.domain.effects import Released as Ended
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.reading import read_records, verify_store
from kornel.shim_client import (
    Allocated,
    ApplicationUpdated,
    Ask,
    CallFailed,
    Released,
    ShimClient,
    StreamReopened,
)
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import status_pb2
from tests.e2e.harness import CONFIG, create
from tests.patience import PATIENCE_S
from tests.prepared import find_program, kill_program, python
from tests.unit.journal.made import open_store
from tests.waiting import until

ASKS_AT_ONCE = 7


class KilledCore:
    """One ``kornel serve`` after the other, at the same address and on the same journal."""

    def __init__(self, home: Path, *options: str) -> None:
        self.address = f"unix:{home / 'core'}"
        self.journal = str(home / "journal.db")
        self._home = home
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Starts a core, and returns once it serves."""
        ready = self._home / "ready"
        ready.unlink(missing_ok=True)
        command = [
            python(), "-m", "kornel", "serve", "--grpc", self.address, "--ready-file", str(ready),
            "--rest-address", "off", "--history", "off", "--journal", self.journal, *self._options,
        ]  # fmt: skip
        with (self._home / "core.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220 - forks once
        process = self._process
        await until(lambda: ready.exists() or process.poll() is not None, "the core to serve")
        assert ready.exists(), (self._home / "core.log").read_text()

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Kills the core that runs, or ends it in order: it leaves a snapshot then."""
        assert self._process is not None
        os.kill(find_program(self._process.pid), number)
        await asyncio.to_thread(self._process.wait)

    def close(self) -> None:
        """Leaves nothing running."""
        if self._process is not None:
            kill_program(self._process)


@asynccontextmanager
async def killed_core(home: Path, *options: str) -> AsyncIterator[KilledCore]:
    """A core that has started."""
    core = KilledCore(home, *options)
    try:
        await core.start()
        yield core
    finally:
        core.close()


@dataclass
class Books:
    """What a shim heard, entry by entry."""

    placed: Counter[str] = field(default_factory=Counter)
    released: Counter[str] = field(default_factory=Counter)
    states: list[str] = field(default_factory=list)
    reopened: int = 0
    inexact: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep(self, client: ShimClient) -> None:
        """Notes everything, and ends what is placed at once: an ask that were applied again would be placed again."""
        async for update in client.updates():
            match update:
                case Allocated(key=key, application_id=application):
                    self.placed[key] += 1
                    await client.release([client.release_of(application, key, si.STOPPED_BY_RM)])
                case Released(key=key):
                    self.released[key] += 1
                case ApplicationUpdated(state=state):
                    self.states.append(state)
                case StreamReopened(exact=exact):
                    self.reopened += 1
                    self.inexact += not exact
            self.changed.set()

    async def wait_for(self, count: int, reopened: int = 0) -> None:
        """Returns when *count* were released, and streams have been reopened as many times as *reopened* says."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self.released.total() < count or self.reopened < reopened:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"waited {PATIENCE_S:g} s for {count} released and {reopened} streams reopened:"
                f" {self.placed.total()} were placed, {self.released.total()} released, {self.reopened} reopened"
            ) from None


async def wait_while_kept(waiting: Awaitable[Any], *keeping: asyncio.Task[None]) -> None:
    """Returns when *waiting* has returned. Fails with it, and when a listener ends, because that has failed."""
    waits = asyncio.ensure_future(waiting)
    await asyncio.wait([waits, *keeping], return_when=asyncio.FIRST_COMPLETED)
    for task in keeping:
        assert not task.done(), task.exception()
    await waits


async def place_asks(client: ShimClient, count: int) -> None:
    """Sends asks without a pause for an answer."""
    for first in range(0, count, ASKS_AT_ONCE):
        keys = [f"ask-{number}" for number in range(first, min(first + ASKS_AT_ONCE, count))]
        await client.submit_asks([Ask(key, "app", {"vcore": 1}) for key in keys])
        await asyncio.sleep(0.001)


async def look_at_partition(client: ShimClient) -> status_pb2.PartitionStatus:
    """Returns what the core has, its books checked, once it is connected again."""

    async def look() -> status_pb2.PartitionStatus | None:
        with suppress(CallFailed):
            (partition,) = (await client.status(audit=True)).partitions
            return partition
        return None

    found: status_pb2.PartitionStatus = await until(look, "the core to answer again")
    return found


def books_of_journal(journal: str) -> tuple[Counter[str], Counter[str]]:
    """Returns how often each ask was placed and each allocation ended, by the records alone."""
    placed: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    with closing(open_store(journal)) as store:
        assert not verify_store(store).damage
        replay = Replay()
        for record, _ in read_records(store):
            assert replay.play(record) is None
            placed.update(effect.spec.key for effect in replay.last_effects if isinstance(effect, Placed))
            ended.update(effect.key for effect in replay.last_effects if isinstance(effect, Ended))
    return placed, ended


async def run_with_kills(home: Path, asks: int, kills: list[int]) -> Books:
    """Has *asks* placed and ended while the core is killed whenever one of *kills* of them have ended, and a stream has
    been opened again since the last time. Returns the shim's books, which were compared with the core's."""
    books = Books()
    async with killed_core(home) as core, ShimClient(core.address, "rm-1", batch=3) as client:
        await client.register(config=CONFIG)
        await client.create_nodes([create("n1", vcore=10**9)])
        await client.add_applications(
            [si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=si.UserGroupInformation(user="ann"))]
        )
        keeping = asyncio.create_task(books.keep(client))
        placing = asyncio.create_task(place_asks(client, asks))
        reopened = 0
        for turn, ended in enumerate(kills):
            await wait_while_kept(books.wait_for(ended, reopened), keeping)
            await core.kill(signal.SIGTERM if turn % 3 == 1 else signal.SIGKILL)
            reopened = books.reopened + 1
            await core.start()
        await placing
        await wait_while_kept(books.wait_for(asks, reopened), keeping)
        partition = await look_at_partition(client)
        assert (partition.allocation_count, partition.pending_ask_count, partition.invariant_violations) == (0, 0, 0)
        keeping.cancel()
    keys = {f"ask-{number}" for number in range(asks)}
    assert books.placed.keys() == books.released.keys() == keys
    assert set(books.placed.values()) == set(books.released.values()) == {1}
    assert books.inexact == 0
    placed, ended = books_of_journal(core.journal)
    assert (placed, ended) == (books.placed, books.released)
    return books


async def test_each_decision_arrives_once_however_often_the_core_is_killed(tmp_path: Path) -> None:
    """With a journal, nothing is lost and nothing comes twice across kills and ends at many points of a run."""
    dice = random.Random(5)
    books = await run_with_kills(tmp_path, 600, sorted(dice.sample(range(1, 590), 6)))
    assert books.reopened >= 6


@pytest.mark.long
async def test_each_decision_arrives_once_in_a_long_run(tmp_path: Path) -> None:
    """The same with many more kills."""
    dice = random.Random(11)
    books = await run_with_kills(tmp_path, 6_000, sorted(dice.sample(range(1, 5_900), 60)))
    assert books.reopened >= 60
