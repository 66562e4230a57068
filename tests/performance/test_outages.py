"""The table of outages: how long shims of each kind wait for the next decision when the leader of two cores fails.

``make outages TIMES=20`` has each outage so often, and prints the table, with nothing else at work.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kornel.core.domain.effects import Allocated
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.reading import read_records
from tests.e2e.cores import CoreProcess, Cores, cores_on
from tests.go.toolchain import CLIENT, run_go
from tests.history_databases import postgres, postgres_server
from tests.performance.outage_shims import BookShim, GoShim, OutageShim, PythonShim
from tests.ports import reserve_port
from tests.postgres import Postgres
from tests.silent_proxy import SilentProxy, silent_proxy
from tests.unit.journal.made import open_store
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.alone

TIMES: Final = int(os.environ.get("KORNEL_OUTAGES", "1"))
"""How often each outage happens."""
PROBE_S: Final = 1.0
"""The period of the probes of readiness, and the time within which they have to be answered, as in the chart."""
STALL_S: Final = 1.0
AFTER: Final = 3
"""So many placements have to follow an outage before the next one."""


@dataclass
class Member:
    """One of the cores, with a proxy between it and the database. ``ready``: what its last probe has said."""

    core: CoreProcess
    proxy: SilentProxy
    database: Postgres
    http_port: int
    ready: bool = False

    @property
    def grpc_port(self) -> int:
        return int(self.core.address.rpartition(":")[2])

    def mute_appends(self) -> None:
        """Lets nothing through on the connection over which records are appended."""
        with self.database.connect() as connection:
            rows = connection.execute(
                "SELECT client_port FROM pg_stat_activity WHERE query LIKE '%INSERT INTO journal_blocks%'"
                " AND pid <> pg_backend_pid()"
            ).fetchall()
        self.proxy.muted |= {port for (port,) in rows}

    def slow_down(self) -> None:
        """Makes the database 300 ms away each way, and lets nothing through for a second."""
        self.proxy.delay_s = 0.3
        self.proxy.held_until_s = asyncio.get_running_loop().time() + STALL_S


class Outage(NamedTuple):
    """Something that happens to a leader.

    median_s, longest_s   the most that half of the times, and all of them, may take
    inflict               makes it happen
    changes_leader        tells whether another core leads afterwards
    offers_lease          tells whether that core has taken an offered lease, so that it keeps it for a minute
    """

    name: str
    longest_s: float
    inflict: Callable[[Member], object]
    median_s: float = 5.0
    changes_leader: bool = True
    offers_lease: bool = False


def fall_silent(member: Member) -> None:
    member.proxy.silent = True


def send_signal(number: signal.Signals) -> Callable[[Member], object]:
    return lambda member: member.core.send(number)


def cut_off(member: Member) -> None:
    member.proxy.silent = True


def close_database_ends(member: Member) -> None:
    member.proxy.close_far_ends()


OUTAGES: Final = {
    "killed": Outage("killed (SIGKILL)", 5.0, send_signal(signal.SIGKILL), median_s=2.0),
    "ends": Outage("ends (SIGTERM)", 5.0, send_signal(signal.SIGTERM), median_s=2.0),
    "stopped": Outage("stands still (SIGSTOP), all connections held open", 5.0, send_signal(signal.SIGSTOP)),
    "cut": Outage("cut off from the database, all connections held open", 5.0, cut_off),
    "half": Outage("cut off, the database's ends of its connections closed", 5.0, close_database_ends),
    "unanswered": Outage("no record confirmed, the lease renewed", 5.0, Member.mute_appends, offers_lease=True),
    "slow": Outage(
        "300 ms each way to the database, then nothing for 1 s", 5.0, Member.slow_down, changes_leader=False
    ),
}


async def ask_ready(port: int) -> bool:
    """Tells whether the core that serves HTTP at *port* is ready."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with closing(writer):
                writer.write(b"GET /healthz/ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
                return b" 200 " in await reader.readline()
    return False


class Cluster:
    """Two cores that share a journal. ``front``: leads new connections to the core that answered last that it is ready,
    as long as its next probe does not fail."""

    def __init__(self, cores: Cores, front: SilentProxy, members: list[Member]) -> None:
        self.front = front
        self.members = members
        self._cores = cores

    @property
    def addresses(self) -> str:
        return ",".join(member.core.address for member in self.members)

    async def probe(self, member: Member) -> None:
        """Asks a core every second whether it is ready, as the chart has the kubelet do: one failure is enough."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            member.ready = await ask_ready(member.http_port)
            ready = [each.grpc_port for each in (member, *self.members) if each.ready]
            if member.ready or self.front.to_port not in ready:
                self.front.to_port = ready[0] if ready else 0
            await asyncio.sleep(max(0.0, began + PROBE_S - loop.time()))

    async def find_leader(self) -> Member:
        leader = await self._cores.leader()
        return next(member for member in self.members if member.core is leader)

    async def follow(self, before: Member) -> Member:
        """Returns the core that leads after *before*, once it does."""
        [leader] = [member for member in self.members if member is not before]
        await until(leader.core.serves, "the other core to lead")
        return leader

    async def restart(self, member: Member) -> None:
        """Waits for the end of a core that led, and starts it again as its supervisor would."""
        if signal.SIGSTOP in member.core.signalled:
            member.core.send(signal.SIGCONT)
        await member.core.ended()
        await member.proxy.mend()
        member.core = await start_core(
            self._cores, member.proxy, member.database, member.http_port, member.core.address
        )
        await until(member.core.has_caught_up, "the core to stand by")


async def start_core(
    cores: Cores, proxy: SilentProxy, database: Postgres, http_port: int, address: str = ""
) -> CoreProcess:
    journal = database.url.replace(f":{database.port}/", f":{proxy.port}/")
    return await cores.start("--rest-address", f"127.0.0.1:{http_port}", address=address, journal=journal)


@asynccontextmanager
async def running_cluster(database: Postgres, home: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as opened:
        front = await opened.enter_async_context(silent_proxy(0))
        proxies = [await opened.enter_async_context(silent_proxy(database.port)) for _ in range(2)]
        cores = await opened.enter_async_context(cores_on(database.url, home))
        members = []
        for proxy in proxies:
            http_port = reserve_port()
            core = await start_core(cores, proxy, database, http_port)
            members.append(Member(core, proxy, database, http_port))
        cluster = Cluster(cores, front, members)
        probing = [asyncio.create_task(cluster.probe(member)) for member in members]
        yield cluster
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)


class Happened(NamedTuple):
    """One outage: when it began by the monotonic clock, the epoch of the leader that decides after it, and the least
    time that the outage itself takes."""

    began_s: float
    epoch: int
    lasts_s: float


@asynccontextmanager
async def running_shims(*shims: OutageShim) -> AsyncIterator[None]:
    """Has *shims* run; fails when one of them does."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(shim.run()) for shim in shims]
        yield
        for task in running:
            task.cancel()


async def hear_more(shims: list[OutageShim]) -> None:
    """Returns when each of *shims* has heard of some more placements."""
    enough = [len(shim.heard) + AFTER for shim in shims]
    for shim, count in zip(shims, enough, strict=True):
        await until(lambda shim=shim, count=count: len(shim.heard) >= count, f"{shim.kind} to hear of placements")


async def have_outages(outage: Outage, cluster: Cluster, shims: list[OutageShim]) -> list[Happened]:
    """Has an outage as often as is wanted, at any moment between two renewals of the lease and two probes."""
    luck = random.Random(35)
    happened = []
    leader = await cluster.find_leader()
    for _ in range(TIMES):
        await hear_more(shims)
        await asyncio.sleep(luck.uniform(0.0, PROBE_S))
        began_s = time.monotonic()
        outage.inflict(leader)
        if outage.changes_leader:
            before, leader = leader, await cluster.follow(leader)
        else:
            await asyncio.sleep(STALL_S)
        await hear_more(shims)
        epoch = (await leader.core.status()).standing.epoch
        happened.append(Happened(began_s, epoch, 0.0 if outage.changes_leader else STALL_S))
        if outage.changes_leader:
            await cluster.restart(before)
        if outage.offers_lease:
            leader.core.send(signal.SIGTERM)
            before, leader = leader, await cluster.follow(leader)
            await cluster.restart(before)
    leader.proxy.delay_s = 0.0
    return happened


def find_placements(journal: str) -> dict[str, int]:
    """Returns the epoch in which each ask was placed. Fails if one was placed twice, or if the journal is not sound."""
    placed: dict[str, int] = {}
    with closing(open_store(journal)) as store:
        replay = Replay()
        for record, _ in read_records(store):
            assert replay.play(record) is None
            for effect in replay.last_effects:
                if isinstance(effect, Allocated):
                    assert effect.spec.key not in placed
                    placed[effect.spec.key] = record.epoch
    return placed


@pytest.fixture(scope="module")
def go_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("go") / "example"
    run_go(CLIENT, "build", "-o", str(program), "./example")
    return program


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """The lines of the table, which is printed at the end."""
    lines: list[str] = []
    yield lines
    kinds = [kind.kind for kind in (PythonShim, GoShim, BookShim)]
    head = ["| What happens to the leader | " + " | ".join(kinds) + " |", "|---" * 4 + "|"]
    print(f"\nUntil the next decision, {TIMES} times each: median and longest in seconds, number within 5 s")
    print("\n".join([*head, *lines]))


@pytest.mark.timeout(300 + 60 * TIMES)
@pytest.mark.parametrize("name", OUTAGES)
async def test_shims_hear_of_the_next_decision_soon(
    name: str, postgres: Postgres, tmp_path: Path, go_example: Path, table: list[str]
) -> None:
    """Each of them, whatever happens to the leader; each decision is heard of once, and is one of the journal's."""
    outage = OUTAGES[name]
    async with running_cluster(postgres, tmp_path) as cluster:
        shims = [
            PythonShim(cluster.addresses),
            GoShim(go_example, cluster.addresses, 500 + 300 * TIMES),
            BookShim(f"127.0.0.1:{cluster.front.port}"),
        ]
        async with running_shims(*shims):
            happened = await have_outages(outage, cluster, shims)
    placed = find_placements(postgres.url)
    times = []
    for shim in shims:
        heard = Counter(key for _, key in shim.heard)
        assert heard.keys() <= placed.keys()
        assert set(heard.values()) == {1}
        times.append(
            [
                next(
                    at_s
                    for at_s, key in shim.heard
                    if at_s >= each.began_s + each.lasts_s and placed[key] >= each.epoch
                )
                - each.began_s
                for each in happened
            ]
        )
    cells = [
        f"{statistics.median(each):.1f} / {max(each):.1f}, {sum(took_s <= outage.longest_s for took_s in each)}"
        for each in times
    ]
    table.append(f"| {outage.name} | " + " | ".join(cells) + " |")
    print(table[-1])
    assert len({each.epoch for each in happened}) == (TIMES if outage.changes_leader else 1)
    for each in times:
        assert statistics.median(each) <= outage.median_s
        assert max(each) <= outage.longest_s
