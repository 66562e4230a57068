"""A leader that is cut off from the database, or hangs: it knows that it does not lead before another core does."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.e2e.cores import CoreProcess, cores_on
from tests.e2e.test_journal import Shim, check_heard, end_of
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.silent_proxy import silent_proxy
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]

_NEWER: Any = health_pb2
"""The messages that the type stubs do not know yet."""


async def list_serving(core: CoreProcess) -> set[str]:
    """Returns the health services that say that they serve; none, if the core does not answer."""
    stub: Any = health_pb2_grpc.HealthStub(core.channel)
    try:
        listed = await stub.List(_NEWER.HealthListRequest(), timeout=PATIENCE_S)
    except grpc.aio.AioRpcError:
        return set()
    serving = health_pb2.HealthCheckResponse.SERVING
    return {name for name, answer in listed.statuses.items() if answer.status == serving}


async def test_a_leader_behind_a_silent_connection_does_not_lead(postgres: Postgres, tmp_path: Path) -> None:
    """Nothing is answered and nothing is closed: its own clock tells it, and it serves nothing when another one leads.

    Its streams end UNAVAILABLE, and it exits.
    """
    shim = Shim()
    async with silent_proxy(postgres.port) as proxy, cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start(journal=postgres.url.replace(str(postgres.port), str(proxy.port)))
        await shim.prepare(first.channel)
        await shim.place(first.channel, 0.3)
        second = await cores.start()
        ending = asyncio.create_task(end_of(first.channel))
        await until(second.has_caught_up, "the standby to follow")
        proxy.silent = True
        began = time.monotonic()
        await until(second.serves, "the standby to lead")
        led_s = time.monotonic() - began
        assert not await list_serving(first)
        assert await ending is grpc.StatusCode.UNAVAILABLE
        assert await first.ended() == 1
        print(f"cut to the next leader {led_s:.1f} s, to the end of the old one {time.monotonic() - began:.1f} s")
        log = first.log.read_text()
        assert "the lease was last renewed" in log
        assert "Traceback" not in log
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))


async def test_an_append_that_is_not_answered_hands_the_lease_over_once(postgres: Postgres, tmp_path: Path) -> None:
    """While renewals are answered: the next core that hangs does not serve, and keeps the lease."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        second = await cores.start()
        await until(second.has_caught_up, "the standby to follow")
        with postgres.connect() as other:
            other.execute("LOCK TABLE journal_blocks IN EXCLUSIVE MODE")
            placing = asyncio.create_task(shim.place(first.channel, 5.0))
            await until(lambda: read_epoch(postgres) == 2, "the lease to be handed over")
            assert await first.ended() == 1
            await asyncio.sleep(3.0)
            assert read_epoch(postgres) == 2
            assert not await second.serves()
        await until(second.serves, "the standby to lead")
        await asyncio.gather(placing, return_exceptions=True)
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))


SLOW = """
CREATE FUNCTION wait_a_while() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(2.4); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON journal_blocks FOR EACH ROW EXECUTE FUNCTION wait_a_while();
"""


@pytest.mark.long
async def test_appends_that_are_answered_late_hand_the_lease_over_once(postgres: Postgres, tmp_path: Path) -> None:
    """Each of them takes longer than a leader waits before it offers the lease: the cores do not take turns."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        others = [await cores.start(), await cores.start()]
        for other in others:
            await until(other.has_caught_up, "the standbys to follow")
        with postgres.connect() as connection:
            connection.execute(SLOW)
        placing = asyncio.create_task(shim.place(first.channel, 5.0))
        second = await cores.leader(first)
        again = asyncio.create_task(shim.place(second.channel, 12.0))
        await asyncio.gather(placing, again, return_exceptions=True)
        assert read_epoch(postgres) == 2
        assert second.process.poll() is None
        with postgres.connect() as connection:
            connection.execute("DROP TRIGGER slow ON journal_blocks")
        await until(second.serves, "the leader to serve again")
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))


@pytest.mark.long
async def test_an_append_that_is_not_answered_makes_a_single_core_wait(postgres: Postgres, tmp_path: Path) -> None:
    """Where no other core takes the lease, it goes on by itself."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        core = await cores.start()
        await shim.prepare(core.channel)
        with postgres.connect() as other:
            other.execute("LOCK TABLE journal_blocks IN EXCLUSIVE MODE")
            placing = asyncio.create_task(shim.place(core.channel, 60.0))

            async def stands() -> bool:
                return not await core.serves()

            await until(stands, "the core not to serve")
        await until(core.serves, "the core to serve again")
        placing.cancel()
        await asyncio.gather(placing, return_exceptions=True)
        assert read_epoch(postgres) == 1
        await shim.hear_all(core.channel, "last", set(check_heard(shim, postgres.url)))


def read_epoch(postgres: Postgres) -> int:
    """Returns the epoch of the lease."""
    with postgres.connect() as connection:
        row = connection.execute("SELECT epoch FROM journal_lease").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.long
@pytest.mark.parametrize("ahead_s", [-3_600, 3_600])
async def test_the_clock_of_the_database_may_be_set(postgres: Postgres, tmp_path: Path, ahead_s: int) -> None:
    """Who leads goes on leading, and when it is killed another core leads as soon as ever."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        second = await cores.start()
        await until(second.has_caught_up, "the standby to follow")
        with postgres.connect() as connection:
            # As if the clock had just been set by so much, the other way round.
            connection.execute(
                "UPDATE journal_lease SET until_ms = until_ms - %(by)s, renewed_ms = renewed_ms - %(by)s",
                {"by": ahead_s * 1_000},
            )
        await shim.place(first.channel, 1.0)
        assert read_epoch(postgres) == 1
        first.send(signal.SIGKILL)
        began = time.monotonic()
        assert await cores.leader(first) is second
        print(f"killed to the next leader {time.monotonic() - began:.1f} s")
        await shim.hear_all(second.channel, "last", set(check_heard(shim, postgres.url)))


@pytest.mark.long
async def test_a_slow_database_that_stands_still_for_a_second_changes_no_leader(
    postgres: Postgres, tmp_path: Path
) -> None:
    """300 ms each way between the leader and the database, and now and then a second in which nothing arrives."""
    loop = asyncio.get_running_loop()
    shim = Shim()
    async with silent_proxy(postgres.port) as proxy, cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start(journal=postgres.url.replace(str(postgres.port), str(proxy.port)))
        await shim.prepare(first.channel)
        second = await cores.start()
        await until(second.has_caught_up, "the standby to follow")
        proxy.delay_s = 0.3
        oldest_ms = 0
        placing = asyncio.create_task(shim.place(first.channel, 9.0, pause_s=0.01))
        for _ in range(3):
            proxy.held_until_s = loop.time() + 1.0
            began = loop.time()
            while loop.time() < began + 2.5:
                oldest_ms = max(oldest_ms, (await first.status()).standing.lease_age_ms)
                await asyncio.sleep(0.05)
        print(f"the lease was at most {oldest_ms} ms old")
        assert read_epoch(postgres) == 1
        assert await first.serves()
        proxy.delay_s = 0.0
        await placing
        await shim.hear_all(first.channel, "last", set(check_heard(shim, postgres.url)))
