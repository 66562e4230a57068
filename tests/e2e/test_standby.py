"""Several cores on one PostgreSQL journal: one leads, the others follow it and take over."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kornel.core.journal.database.reading import read_records
from kornel.shim_client import Allocated, Ask, ResyncRequired, ShimClient
from kornel.shim_client.leader import LEADER_KEY
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e.cores import CoreProcess, cores_on
from tests.e2e.harness import CONFIG, create
from tests.e2e.test_journal import Shim, check_heard, decided_in
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.prepared import python
from tests.unit.journal.made import open_store
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]

KILLING_MINUTES = float(os.environ.get("KORNEL_KILLING_MINUTES", "0"))
"""For so long cores are killed at random; 0: until there were as many kills as there are at least."""
LEAST_KILLS = 8


async def test_a_standby_takes_over_from_a_leader_that_is_killed(postgres: Postgres, tmp_path: Path) -> None:
    """With all that the shim was told; meanwhile it answers what it is asked."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        assert await first.serves()
        await shim.prepare(first.channel)
        second = await cores.start()
        assert not await second.serves()
        assert not await second.serves("")
        assert await second.serves("kornel.v1.StatusService")
        await shim.place_more(first.channel, 0)
        placing = asyncio.create_task(shim.place(first.channel, 30.0))
        await asyncio.sleep(0.2)
        first.send(signal.SIGKILL)
        await first.ended()
        assert await cores.leader(first) is second
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        decided = check_heard(shim, postgres.url)
        await shim.hear_all(second.channel, "last", set(decided))
        await second.check_books()
    check_heard(shim, postgres.url)


@pytest.mark.long
async def test_a_leader_that_ends_hands_over(postgres: Postgres, tmp_path: Path) -> None:
    """SIGTERM: the standby leads, and goes on with all that the shim was told."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        second = await cores.start()
        await shim.place(first.channel, 0.3)
        first.send(signal.SIGTERM)
        assert await cores.leader(first) is second
        assert await first.ended() == 0
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))


@pytest.mark.long
async def test_a_standby_sends_shims_to_the_leader(postgres: Postgres, tmp_path: Path) -> None:
    """Registrations and streams end UNAVAILABLE, with the address that the leader advertises."""
    async with cores_on(postgres.url, tmp_path) as cores:
        await cores.start("--advertise", "core-1.example:50051")
        second = await cores.start()
        scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(second.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await scheduler.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1"), timeout=PATIENCE_S)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(refused.value.trailing_metadata() or ())[LEADER_KEY] == "core-1.example:50051"
        for stream in (scheduler.UpdateNode(), scheduler.UpdateApplication(), scheduler.UpdateAllocation()):
            assert await asyncio.wait_for(stream.code(), PATIENCE_S) is grpc.StatusCode.UNAVAILABLE
            assert dict(await stream.trailing_metadata() or ())[LEADER_KEY] == "core-1.example:50051"


SCENARIO = """
name: survivor
timeout: 3m
speed: 1
queues:
  partitions:
    - name: default
      queues:
        - name: root
          submitacl: "*"
          queues:
            - name: prod
              properties: {preemption.delay: 1s}
              resources: {guaranteed: {vcore: 16}}
            - name: batch
nodes:
  - {name: node, count: 4, resources: {vcore: 8, memory: 64Gi}}
priorityClasses:
  - {name: production, value: 1000, preemptionPolicy: PreemptLowerPriority}
applications:
  - id: nightly
    queue: root.batch
    tasks:
      - {name: worker, count: 60, resources: {vcore: 1, memory: 1Gi}, runtime: 3s, restart: true, arrival: 20/s}
  - id: shop
    queue: root.prod
    at: 2s
    tasks:
      - {name: server, count: 16, resources: {vcore: 1, memory: 1Gi}, runtime: 8s, priorityClass: production,
         arrival: 4/s}
releases: {delay: 300ms}
expectations: [no law violations, nothing lost]
"""


@asynccontextmanager
async def simulated_cluster(tmp_path: Path, addresses: str, scenario: str = SCENARIO) -> AsyncIterator[Process]:
    """``kornel-shim-mock`` playing *scenario* against the cores at *addresses*."""
    (tmp_path / "scenario.yaml").write_text(scenario)
    shim = await asyncio.create_subprocess_exec(
        python(), "-m", "kornel.shim_mock", "run", str(tmp_path / "scenario.yaml"), "--core", addresses,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield shim
    finally:
        if shim.returncode is None:
            shim.kill()
        await shim.communicate()


async def expect_success(shim: Process) -> None:
    """Fails unless every expectation was met: the books of shim and core agree, and no law was broken."""
    said, _ = await shim.communicate()
    assert shim.returncode == 0, said.decode()


async def count_preemptions(core: CoreProcess) -> int:
    """Returns how many preemptions the core has triggered."""
    return sum(partition.preemption_triggered for partition in (await core.status()).partitions)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_books_of_shim_and_core_agree_after_a_failover(
    postgres: Postgres, tmp_path: Path, number: signal.Signals
) -> None:
    """The leader goes in the middle of a preemption; the simulated cluster follows the new one and judges the run."""
    async with cores_on(postgres.url, tmp_path) as cores:
        first, second = await cores.start(), await cores.start()
        async with simulated_cluster(tmp_path, f"{second.address},{first.address}") as shim:
            await until(lambda: count_preemptions(first), "the first preemption")
            first.send(number)
            assert await cores.leader(first) is second
            await expect_success(shim)
        await second.check_books()
    decided_in(postgres.url)


@pytest.mark.long
async def test_a_leader_that_slept_tells_and_writes_nothing(postgres: Postgres, tmp_path: Path) -> None:
    """Stopped for ten seconds under load, and continued: the fence holds it off, and it ends."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        second = await cores.start()
        await shim.place(first.channel, 0.5)
        placing = asyncio.create_task(shim.place(first.channel, 60.0))
        await asyncio.sleep(0.3)
        first.send(signal.SIGSTOP)
        asleep = asyncio.create_task(asyncio.sleep(10.0))
        assert await cores.leader(first) is second
        taken_over = decided_in(postgres.url)
        await asleep
        first.send(signal.SIGCONT)
        assert await first.ended() == 1
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        assert check_heard(shim, postgres.url).keys() == taken_over.keys()
        assert "another core" in first.log.read_text()
        await shim.hear_all(second.channel, "last", set(taken_over))
    check_heard(shim, postgres.url)


async def register_resumed(address: str) -> ShimClient:
    """Returns a client that has registered and whose streams go on exactly, with a placement that it has heard of."""
    client = ShimClient(address, "rm-1")
    await client.connect()
    await client.register(config=CONFIG)
    await client.create_nodes([create("n1", vcore=10**9)])
    await client.add_applications(
        [si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=si.UserGroupInformation(user="ann"))]
    )
    return client


async def place_one(client: ShimClient, key: str) -> None:
    """Has one more ask placed."""
    await client.submit_asks([Ask(key, "app", {"vcore": 1})])
    async with asyncio.timeout(PATIENCE_S):
        async for update in client.updates():
            if isinstance(update, Allocated) and update.key == key:
                return


@pytest.mark.long
async def test_a_database_that_lost_its_newest_commits_is_not_gone_on_with(postgres: Postgres, tmp_path: Path) -> None:
    """As after a promotion: no core that knows more leads, one that knows no more does, and a shim that has heard more
    has to register again."""
    async with cores_on(postgres.url, tmp_path) as cores:
        first, second = await cores.start(), await cores.start()
        client = await register_resumed(f"{first.address},{second.address}")
        await place_one(client, "kept")
        with closing(open_store(postgres.url)) as store:
            kept = store.find_end().sequence
        await place_one(client, "lost")
        await second.wait_for_allocations(2)
        with postgres.connect() as connection:
            connection.execute("DELETE FROM journal_blocks WHERE first > %s", (kept,))
        # The leader notices with the next record.
        await client.submit_asks([Ask("late", "app", {"vcore": 1})])
        await first.wait_until_unfit()
        await second.wait_until_unfit()
        second.send(signal.SIGKILL)
        await second.ended()
        third = await cores.start(address=second.address)
        assert await cores.leader(first, second) is third
        assert set(decided_in(postgres.url)) == {"kept"}
        with pytest.raises(ResyncRequired):
            async for _ in client.updates():
                pass
        await client.close()


@pytest.mark.long
async def test_of_two_cores_that_start_at_once_one_leads(postgres: Postgres, tmp_path: Path) -> None:
    """On an empty database, and on one that both have to play."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        pair = await asyncio.gather(cores.start(), cores.start())
        leader = await cores.leader()
        assert sum([await core.serves() for core in pair]) == 1
        await shim.prepare(leader.channel)
        await shim.place(leader.channel, 0.3)
        for core in pair:
            core.send(signal.SIGTERM)
        for core in pair:
            assert await core.ended() == 0
        again = await asyncio.gather(cores.start(), cores.start(), cores.start())
        leader = await cores.leader(*pair)
        assert sum([await core.serves() for core in again]) == 1
        await shim.hear_all(leader.channel, "last", set(check_heard(shim, postgres.url)))


@pytest.mark.long
@pytest.mark.parametrize("each", [7, 20])
async def test_a_standby_that_starts_under_load_catches_up_and_takes_over(
    postgres: Postgres, tmp_path: Path, each: int
) -> None:
    """It begins with nothing while asks are placed, of which up to *each* come every millisecond.

    Then fewer come: on a busy machine the leader may get more of the processors than the standby, for as long as it is
    kept busy.
    """
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        placing = asyncio.create_task(shim.place(first.channel, PATIENCE_S, each, pause_s=0.001))
        second = await cores.start()
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        placing = asyncio.create_task(shim.place(first.channel, PATIENCE_S, 1, pause_s=0.05))

        seen = (await second.status()).standing

        async def has_caught_up() -> bool:
            nonlocal seen
            seen = (await second.status()).standing
            return seen.records_behind <= 50

        await until(has_caught_up, lambda: f"the standby to have caught up: {shim.sent} asks were sent; {seen}")
        first.send(signal.SIGKILL)
        assert await cores.leader(first) is second
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))
        await second.check_books()


@pytest.mark.long
@pytest.mark.parametrize("ahead_s", [-3_600, 3_600])
async def test_clocks_an_hour_apart_do_not_matter(postgres: Postgres, tmp_path: Path, ahead_s: int) -> None:
    """The database's clock decides who leads, and the successor's time goes on where the leader's was."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        second = await cores.start(ahead_s=ahead_s)
        assert not await second.serves()
        await shim.place(first.channel, 0.3)
        first.send(signal.SIGKILL)
        assert await cores.leader(first) is second
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))
    with closing(open_store(postgres.url)) as store:
        times = [(record.epoch, record.call.now_ns) for record, _ in read_records(store)]
    assert times == sorted(times)
    last_of_first = max(now_ns for epoch, now_ns in times if epoch == 1)
    assert max(now_ns for _, now_ns in times) - last_of_first < 1_800 * 10**9


def scenario_for(minutes: float) -> str:
    """Returns a scenario of that many minutes in which batch work always waits and servers preempt it; 0: of one."""
    if not minutes:
        return SCENARIO.replace("count: 60", "count: 900").replace("timeout: 3m", "timeout: 5m")
    scenario = SCENARIO.replace("timeout: 3m", f"timeout: {3 * minutes + 5:.0f}m")
    for plain, long in (
        ("count: 60", f"count: {8 * 60 * minutes:.0f}"),
        ("arrival: 20/s", "arrival: 8/s"),
        ("count: 16", f"count: {1.5 * 60 * minutes:.0f}"),
        ("arrival: 4/s", "arrival: 1.5/s"),
    ):
        assert plain in scenario
        scenario = scenario.replace(plain, long)
    return scenario


@pytest.mark.long
@pytest.mark.timeout(900 + 4 * 60 * KILLING_MINUTES)
async def test_random_kills_of_three_cores(postgres: Postgres, tmp_path: Path) -> None:
    """Cores are killed, stopped and ended in turn under a simulated cluster; its books and the core's agree."""
    luck = random.Random(18)
    ends = Counter[str]()
    async with cores_on(postgres.url, tmp_path) as cores:
        running = [await cores.start() for _ in range(3)]
        addresses = [core.address for core in running]
        scenario = scenario_for(KILLING_MINUTES)
        async with simulated_cluster(tmp_path, ",".join(addresses), scenario) as shim:
            await asyncio.sleep(1.0)
            preempted, began = 0, time.monotonic()
            while time.monotonic() - began < 60 * KILLING_MINUTES or ends.total() < LEAST_KILLS:
                victim = luck.choice(running)
                number = luck.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGKILL])
                leads = await victim.serves()
                victim.send(number)
                await victim.ended()
                ends[f"{number.name} of {'the leader' if leads else 'another'}"] += 1
                at = running.index(victim)
                running[at] = await cores.start(address=victim.address)
                leader = await cores.leader(victim)
                preempted = max(preempted, await count_preemptions(leader))
                assert shim.returncode is None, (await shim.communicate())[0].decode()
                await asyncio.sleep(luck.uniform(0.0, 3.0))
            said, _ = await asyncio.wait_for(shim.communicate(), 400 + 2 * 60 * KILLING_MINUTES)
            assert shim.returncode == 0, said.decode()
        await (await cores.leader()).check_books()
    placed = decided_in(postgres.url)
    print(f"{ends.total()} cores ended: {dict(ends)}; {len(placed)} placements, {preempted} preemptions")
