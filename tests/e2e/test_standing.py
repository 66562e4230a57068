"""What a core that stands by says and does, and when it refuses to lead: two cores in one process, on one database."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import grpc
import grpc.aio
import httpx
import pytest

from kornel.core.domain.commands import UpdateAllocations
from kornel.core.journal import standby as standby_module
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.database import lease
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.following.following import FetchedBlock, Follower
from kornel.core.journal.standby import Standby
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.managers.standing import Role
from kornel.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    callback_pb2,
    callback_pb2_grpc,
    configuration_pb2,
    configuration_pb2_grpc,
    manager_pb2,
    manager_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    test_clock_pb2,
    test_clock_pb2_grpc,
)
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    running_core,
)
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.unit.journal.made import BEGINNING, LOGGER, settings_for
from tests.waiting import until, wait_until

__all__ = ["postgres", "postgres_server"]


def open_standby(postgres: Postgres, *, afresh: bool = False) -> Standby:
    """Returns a core's part in the journal."""
    return Standby.open(settings_for(postgres.url, afresh=afresh), BEGINNING, logger=LOGGER)


@asynccontextmanager
async def sharing_core(postgres: Postgres, **settings: Any) -> AsyncIterator[Core]:
    """A core that shares the journal: the first one leads, until it lets go of the lease, however busy the machine
    is."""
    with patch.object(lease, "LEASE_MS", round(1_000 * PATIENCE_S)):
        async with running_core(standby=open_standby(postgres), alone=False, **settings) as core:
            yield core


async def fill_cluster(core: Core, asks: int = 4) -> None:
    """Registers, and places as many asks, on a node that has room for any number."""
    await core.register()
    async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1", vcore=10**9)))
        await nodes.receive()
    async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
        await applications.send(application_request("app"))
        await applications.receive()
    await place(core, *(f"ask-{number}" for number in range(asks)))


async def place(core: Core, *keys: str) -> None:
    """Sends asks, and waits until they are placed."""
    async with Conversation.open(core.scheduler.UpdateAllocation()) as stream:
        await stream.send(allocation_request(*map(ask, keys)))
        heard: set[str] = set()
        while not set(keys) <= heard:
            heard |= {placed.allocationKey for placed in (await stream.receive()).new}


async def followed(standby: Core, leader: Core) -> None:
    """Returns when *standby* has replayed all that *leader* has written."""
    standing = standby.server.standing
    journal = leader.server.part.journal
    assert journal is not None

    def caught_up() -> bool:
        part = standby.server.part.standby
        return part is not None and part.sequence == journal.status().last_record and not standing.records_behind

    await until(caught_up, "the standby to follow")


async def status_of(core: Core) -> tuple[status_pb2.GetStatusResponse, dict[str, Any]]:
    """Returns the status of a core, and the trailing metadata of the answer."""
    stub: status_pb2_grpc.StatusServiceAsyncStub = status_pb2_grpc.StatusServiceStub(core.channel)
    call = stub.GetStatus(status_pb2.GetStatusRequest(audit=True), timeout=PATIENCE_S)
    return await call, dict(await call.trailing_metadata() or ())


async def hand_over(leader: Core) -> None:
    """Has the leader let go of the lease, as it does when it ends."""
    assert leader.server.part.journal is not None
    await leader.server.part.journal.hand_over()


async def test_a_standby_answers_what_it_is_asked_and_says_how_old_that_is(postgres: Postgres) -> None:
    """Status, REST, metrics and readiness; each answer says that it comes from a standby, and the leader's does not."""
    async with (
        sharing_core(postgres, rest_address="127.0.0.1:0", advertised="one:1") as leader,
        sharing_core(postgres, rest_address="127.0.0.1:0", advertised="two:1") as standby,
    ):
        await fill_cluster(leader)
        await followed(standby, leader)
        told, marks = await status_of(standby)
        assert told.rm_id == "rm-1"
        assert told.partitions[0].allocation_count == 4
        assert not told.partitions[0].invariant_violations
        assert (told.standing.role, told.standing.leader_address, told.standing.epoch) == ("standby", "one:1", 1)
        assert told.standing.behind_ms < 60_000
        assert marks["kornel-leader"] == "one:1"
        assert int(marks["kornel-behind-ms"]) < 60_000
        own, unmarked = await status_of(leader)
        assert (own.standing.role, own.standing.leader_address, own.standing.behind_ms) == ("leader", "one:1", 0)
        assert "kornel-behind-ms" not in unmarked
        assert own.configuration_checksum == told.configuration_checksum
        async with httpx.AsyncClient(base_url=f"http://{standby.server.rest_address}", timeout=PATIENCE_S) as http:
            nodes = await http.get("/ws/v1/partition/default/nodes")
            assert [node["nodeID"] for node in nodes.json()] == ["n1"]
            assert nodes.headers["Kornel-Standing"].startswith("standby; behind=")
            assert nodes.headers["Kornel-Standing"].endswith("; leader=one:1")
            ours = ("preemption-kinds", "scheduler/holds", "scheduler/refusals")
            here = ("search?text=n1", "placement?user=ann", "explain?node=n1", "preemptions", "claims", "domains")
            for path in (*ours, *(f"partition/default/{path}" for path in here)):
                assert (await http.get(f"/ws/v1/{path}")).status_code == 200, path
            assert (await http.get("/healthz/ready")).status_code == 503
            assert (await http.get("/healthz/live")).status_code == 200
            scraped = (await http.get("/ws/v1/metrics")).text
            assert "\nkornel_leader 0.0" in scraped
            assert "kornel_lease_age_seconds" not in scraped
            assert "\nkornel_standby_unfit 0.0" in scraped
        async with httpx.AsyncClient(base_url=f"http://{leader.server.rest_address}", timeout=PATIENCE_S) as http:
            assert "Kornel-Standing" not in (await http.get("/ws/v1/clusters")).headers
            assert (await http.get("/healthz/ready")).status_code == 200
            scraped = (await http.get("/ws/v1/metrics")).text
            assert "\nkornel_leader 1.0" in scraped
            assert "\nkornel_lease_age_seconds" in scraped


async def test_a_standby_that_finds_something_whenever_it_looks_is_not_behind_for_ever(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lag counts from the last look whose records it has replayed, even if the leader never pauses."""
    monkeypatch.setattr(standby_module, "POLL_S", 0.01)
    fetch, looks, stopped = Follower.fetch_blocks, 0, threading.Event()

    def fetch_some(follower: Follower) -> list[FetchedBlock]:
        """Returns only once there is something."""
        nonlocal looks
        found: list[FetchedBlock] = []

        def found_some() -> bool:
            found[:] = fetch(follower)
            return bool(found) or stopped.is_set()

        wait_until(found_some, "the leader to write a record")
        looks += 1
        return found

    async with sharing_core(postgres) as leader, sharing_core(postgres) as standby:
        await fill_cluster(leader)
        await followed(standby, leader)
        began_s = time.monotonic()
        monkeypatch.setattr(Follower, "fetch_blocks", fetch_some)

        async def place_for_ever() -> None:
            for number in itertools.count(1_000):
                await place(leader, f"ask-{number}")

        placing = asyncio.create_task(place_for_ever())
        try:
            await until(lambda: looks > 5 or placing.done(), "the standby to find records at each look")
            assert not placing.done()
            assert standby.server.standing.behind_s < time.monotonic() - began_s
        finally:
            placing.cancel()
            await asyncio.gather(placing, return_exceptions=True)
            monkeypatch.setattr(Follower, "fetch_blocks", fetch)
            stopped.set()


async def test_a_standby_does_not_pause_while_it_is_behind(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one query does not return is fetched with the next one at once."""
    fetch, released, looked = Follower.fetch_blocks, threading.Event(), threading.Event()

    def fetch_one(follower: Follower) -> list[FetchedBlock]:
        looked.set()
        released.wait(PATIENCE_S)
        return fetch(follower, 1)

    async with sharing_core(postgres) as leader, sharing_core(postgres) as standby:
        await fill_cluster(leader)
        await followed(standby, leader)
        monkeypatch.setattr(Follower, "fetch_blocks", fetch_one)
        await until(looked.is_set, "the standby to look")
        for number in range(4):
            await place(leader, f"more-{number}")
        monkeypatch.setattr(standby_module, "POLL_S", 10.0**6)
        journal, part = leader.server.part.journal, standby.server.part.standby
        assert journal is not None
        assert part is not None
        durable = journal.status().last_durable  # A record that comes after the last query is for the next one.
        released.set()
        await until(lambda: part.sequence >= durable, "the standby to follow")


async def test_a_standby_changes_nothing(postgres: Postgres) -> None:
    """Whatever would, ends UNAVAILABLE and names the leader."""
    async with sharing_core(postgres, advertised="one:1") as leader, sharing_core(postgres, test_clock=True) as standby:
        await fill_cluster(leader)
        await followed(standby, leader)
        configuration: Any = configuration_pb2_grpc.ConfigurationServiceStub(standby.channel)
        admin: Any = admin_pb2_grpc.AdminServiceStub(standby.channel)
        manager: Any = manager_pb2_grpc.ManagerServiceStub(standby.channel)
        clock: Any = test_clock_pb2_grpc.TestClockServiceStub(standby.channel)
        callbacks: Any = callback_pb2_grpc.CallbackServiceStub(standby.channel)
        changed = CONFIG.replace("name: a", "name: b")
        for call in (
            configuration.UpdateConfiguration(
                configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=changed), timeout=PATIENCE_S
            ),
            admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n1"), timeout=PATIENCE_S),
            manager.UnregisterResourceManager(
                manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1"), timeout=PATIENCE_S
            ),
            clock.AdvanceClock(test_clock_pb2.AdvanceClockRequest(by_ns=1), timeout=PATIENCE_S),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert dict(refused.value.trailing_metadata() or ())["kornel-leader"] == "one:1"
        async with Conversation.open(callbacks.Attach()) as stream:
            await stream.send(
                callback_pb2.AttachRequest(subscription=callback_pb2.Subscription(rm_id="rm-1", predicates=True))
            )
            assert (await stream.end())[0] is grpc.StatusCode.UNAVAILABLE
        await followed(standby, leader)
        assert (await status_of(standby))[0].partitions[0].allocation_count == 4


async def test_a_standby_that_begins_with_nothing_takes_over(postgres: Postgres) -> None:
    """It plays what was written before it and while it did, a configuration too, and goes on deciding."""
    async with sharing_core(postgres) as leader:
        await fill_cluster(leader)
        async with sharing_core(postgres) as standby:
            configuration: Any = configuration_pb2_grpc.ConfigurationServiceStub(leader.channel)
            changed = CONFIG.replace("name: a", "name: a\n          - name: b")
            await configuration.UpdateConfiguration(
                configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=changed), timeout=PATIENCE_S
            )
            await place(leader, "late")
            await followed(standby, leader)
            await hand_over(leader)
            await until(lambda: standby.server.standing.leads, "the standby to lead")
            told, _ = await status_of(standby)
            assert told.partitions[0].allocation_count == 5
            assert told.standing.epoch == 2
            assert [queue.path for queue in told.partitions[0].queues if queue.path == "root.b"]
            await place(standby, "last")
            assert (await status_of(standby))[0].partitions[0].allocation_count == 6


async def test_a_standby_that_decides_otherwise_never_leads(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says at which record, with both sides; when the leader is gone nobody leads."""
    async with sharing_core(postgres, advertised="one:1") as leader:
        await fill_cluster(leader)
        apply = RecordingEngine.apply
        async with sharing_core(postgres) as standby:
            await followed(standby, leader)

            def forget_asks(self: RecordingEngine, command: Any, now_ns: int) -> Any:
                if self is standby_engine and isinstance(command, UpdateAllocations):
                    command = UpdateAllocations(command.rm_id, (), (), ())
                return apply(self, command, now_ns)

            assert standby.server.part.standby is not None
            standby_engine = standby.server.part.standby.engine
            monkeypatch.setattr(RecordingEngine, "apply", forget_asks)
            await place(leader, "other")
            await until(lambda: standby.server.standing.role is Role.UNFIT, "the standby to notice")
            told, _ = await status_of(standby)
            assert told.standing.role == "unfit"
            assert "was decided otherwise" in told.standing.problem
            assert "journal: done, " in told.standing.problem
            await hand_over(leader)
            await standby.settle()
            assert not standby.server.standing.leads
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await standby.register()
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_standby_that_has_played_more_than_the_database_holds_never_leads(postgres: Postgres) -> None:
    """As after a replica was promoted that lacked the newest commits."""
    async with sharing_core(postgres) as leader, sharing_core(postgres) as standby:
        await fill_cluster(leader)
        await followed(standby, leader)
        with postgres.connect() as connection:
            connection.execute("DELETE FROM journal_blocks WHERE first = (SELECT max(first) FROM journal_blocks)")
        await until(lambda: standby.server.standing.role is Role.UNFIT, "the standby to notice")
        await hand_over(leader)
        told, _ = await status_of(standby)
        assert "its newest commits are missing" in told.standing.problem
        await standby.settle()
        assert not standby.server.standing.leads


async def test_an_empty_core_is_begun_only_where_nobody_leads(postgres: Postgres) -> None:
    """``--journal-afresh`` beside a leader is refused; where there is none, the journal goes on with another life."""
    async with sharing_core(postgres, advertised="one:1") as leader:
        await fill_cluster(leader)
        with pytest.raises(JournalUnusable, match="another core leads"):
            async with running_core(standby=open_standby(postgres, afresh=True), alone=False):
                pass
    async with running_core(standby=open_standby(postgres, afresh=True), alone=False) as core:
        assert core.server.standing.leads
        assert not (await status_of(core))[0].rm_id
        async with sharing_core(postgres) as standby:
            await fill_cluster(core, asks=1)
            await followed(standby, core)
            assert (await status_of(standby))[0].partitions[0].allocation_count == 1


async def test_time_goes_on_where_the_leaders_was(postgres: Postgres) -> None:
    """With clocks an hour apart, whichever is ahead: the successor's time never goes back."""
    start_ns = ManualClock().now_ns()
    for ahead_ns in (-3_600 * SECOND_NS, 3_600 * SECOND_NS):
        postgres.clear()
        async with sharing_core(postgres) as leader:
            await fill_cluster(leader)
            async with running_core(
                standby=open_standby(postgres), alone=False, clock=ManualClock(start_ns + ahead_ns)
            ) as standby:
                await followed(standby, leader)
                await hand_over(leader)
                await until(lambda: standby.server.standing.leads, "the standby to lead")
                assert standby.clock.now_ns() >= start_ns
                await place(standby, "last")
