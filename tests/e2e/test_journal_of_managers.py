"""Several resource managers in one journal: killed, taken over, with a bug in one engine, each goes on where it was."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.reading import read_records, verify_store
from kornel.core.journal.writing.committer import StoreProblem
from kornel.shim_client import Allocated, Ask, AskRejected, ShimClient
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import manager_pb2, manager_pb2_grpc, status_pb2
from tests.e2e.cores import CoreProcess, cores_on
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    keys,
    node_request,
    running_core,
)
from tests.e2e.test_resume import Books, books_of_journal, killed_core, place_asks, wait_while_kept
from tests.e2e.test_several_managers import managing
from tests.e2e.test_standing import followed, hand_over, sharing_core, status_of
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.unit.journal.made import open_journal, open_store
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]

NAMES = ("rm-1", "rm-2")
ANN = si.UserGroupInformation(user="ann")


@dataclass
class Manager:
    """A shim, and what it heard."""

    client: ShimClient
    books: Books = field(default_factory=Books)
    keeping: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Registers, has a node and an application, and listens from now on."""
        await self.client.register(config=CONFIG)
        await self.client.create_nodes([create("n1", vcore=10**9)])
        await self.client.add_applications([si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=ANN)])
        self.keeping = asyncio.create_task(self.books.keep(self.client))


@asynccontextmanager
async def begun_managers(*addresses: str) -> AsyncIterator[Sequence[Manager]]:
    """Two shims that have registered at the core at *addresses*."""
    async with AsyncExitStack() as stack:
        managers = []
        for name in NAMES:
            client = ShimClient(",".join(addresses), name, batch=3)
            managers.append(Manager(await stack.enter_async_context(client)))
            await managers[-1].begin()
        yield managers
        for manager in managers:
            assert manager.keeping is not None
            manager.keeping.cancel()


async def wait_for_both(managers: Sequence[Manager], count: int) -> None:
    """Returns when each manager has heard that so many ended."""
    keeping = [manager.keeping for manager in managers if manager.keeping is not None]
    await wait_while_kept(asyncio.gather(*(manager.books.wait_for(count) for manager in managers)), *keeping)


async def wait_for_status(manager: Manager) -> status_pb2.GetStatusResponse:
    """Returns the status of the core, its books checked, once the core can be reached."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await manager.client.status(audit=True)
            except Exception:  # noqa: BLE001 - the core is being started
                await asyncio.sleep(0.05)


def check_exactly(managers: Sequence[Manager], asks: int, journal: str) -> None:
    """Fails unless each manager heard of each of its asks once, and the journal says the same."""
    heard: Counter[str] = Counter()
    for manager in managers:
        books = manager.books
        assert books.placed == books.released == Counter({f"ask-{number}": 1 for number in range(asks)})
        assert not books.inexact
        heard += books.placed
    assert books_of_journal(journal) == (heard, heard)
    with closing(open_store(journal)) as store:
        assert not verify_store(store).damage


async def test_two_managers_go_on_exactly_however_often_the_core_is_killed(tmp_path: Path) -> None:
    """SIGKILL or SIGTERM at many points of a run: each decision arrives once at the manager that it is for."""
    asks, dice = 200, random.Random(7)
    async with killed_core(tmp_path) as core, begun_managers(core.address) as managers:
        placing = [asyncio.create_task(place_asks(manager.client, asks)) for manager in managers]
        for turn, ended in enumerate(sorted(dice.sample(range(1, asks - 10), 3))):
            await wait_for_both([managers[turn % 2]], ended)
            await core.kill(signal.SIGTERM if turn % 3 == 1 else signal.SIGKILL)
            await core.start()
        await asyncio.gather(*placing)
        await wait_for_both(managers, asks)
        for manager in managers:
            status = await wait_for_status(manager)
            assert [each.rm_id for each in status.managers] == [manager.client.rm_id]
            assert not any(partition.invariant_violations for partition in status.partitions)
    check_exactly(managers, asks, core.journal)


async def test_a_restarted_core_knows_its_managers_before_they_say_anything(tmp_path: Path) -> None:
    """What runs, waits and is drained of each; a manager that was unregistered is gone, and another takes a place."""
    async with cores_on(str(tmp_path / "journal.db"), tmp_path) as cores:
        core = await cores.start()
        async with begun_managers(core.address) as managers:
            for number, manager in enumerate(managers):
                assert manager.keeping is not None
                manager.keeping.cancel()
                heard: Counter[tuple[type, str]] = Counter()
                listening = asyncio.create_task(listen_to(manager.client, heard))
                # What has been heard of is written, and so is all that was sent before it.
                await manager.client.submit_asks(
                    [Ask("too-large", "app", {"vcore": 10**10})]
                    + [Ask(f"k-{each}", "app", {"vcore": 1}) for each in range(3 + number)]
                )
                await until(lambda: heard.total() == 3 + number, "the asks to be placed")  # noqa: B023
                listening.cancel()
            before = await core.status()
        core.send(signal.SIGKILL)
        await core.ended()
        core = await cores.start()
        after = await core.status()
        assert [each.rm_id for each in after.managers] == list(NAMES)
        assert {each.name: (each.allocation_count, each.pending_ask_count) for each in after.partitions} == {
            each.name: (each.allocation_count, each.pending_ask_count) for each in before.partitions
        }
        stub: manager_pb2_grpc.ManagerServiceAsyncStub = manager_pb2_grpc.ManagerServiceStub(core.channel)
        await stub.UnregisterResourceManager(manager_pb2.UnregisterResourceManagerRequest(rm_id=NAMES[0]))
        async with ShimClient(core.address, "rm-3") as third:
            await third.register(config=CONFIG)
        core.send(signal.SIGKILL)
        await core.ended()
        core = await cores.start()
        assert [each.rm_id for each in (await core.status()).managers] == [NAMES[1], "rm-3"]
        core.send(signal.SIGTERM)
        assert await core.ended() == 0
        core = await cores.start()
        assert [each.rm_id for each in (await core.status()).managers] == [NAMES[1], "rm-3"]
        assert "snapshot=0" not in core.log.read_text()


async def run_conversation(core: Core, rm_id: str, *keys: str) -> None:
    """Places asks of *rm_id*."""
    async with Conversation.open(core.scheduler.UpdateAllocation()) as stream:
        request = allocation_request(*map(ask, keys))
        request.rmID = rm_id
        for each in request.allocations:
            each.partitionName = f"[{rm_id}]default"
        await stream.send(request)
        heard: set[str] = set()
        while not set(keys) <= heard:
            heard |= {placed.allocationKey for placed in (await stream.receive()).new}


async def fill_manager(core: Core, rm_id: str, *keys: str) -> None:
    """Registers *rm_id*, and places its asks."""
    await core.register(rm_id)
    requests: list[tuple[Any, Any]] = [
        (core.scheduler.UpdateNode(), node_request(create("n1", vcore=100_000))),
        (core.scheduler.UpdateApplication(), application_request("app")),
    ]
    for call, request in requests:
        request.rmID = rm_id
        async with Conversation.open(call) as stream:
            await stream.send(request)
            await stream.receive()
    await run_conversation(core, rm_id, *keys)


async def counts_of(core: Core) -> dict[str, int]:
    """Returns how many allocations each manager has."""
    told, _ = await status_of(core)
    assert not any(partition.invariant_violations for partition in told.partitions)
    return {each.name.partition("]")[0][1:]: each.allocation_count for each in told.partitions}


async def test_a_standby_follows_all_managers_and_takes_over(postgres: Postgres) -> None:
    """Managers come and go at the leader; the standby has the same, and goes on with each of them."""
    async with sharing_core(postgres) as leader:
        await fill_manager(leader, "rm-1", "a-1", "a-2")
        async with sharing_core(postgres) as standby:
            await fill_manager(leader, "rm-2", "b-1")
            await fill_manager(leader, "rm-3", "c-1")
            await followed(standby, leader)
            expected = {"rm-1": 2, "rm-2": 1, "rm-3": 1}
            await until(
                lambda: [place.rm_id for place in standby.server.managers.places] == list(expected),
                "the standby to have the managers",
            )
            assert await counts_of(standby) == await counts_of(leader) == expected
            stub: Any = manager_pb2_grpc.ManagerServiceStub(leader.channel)
            await stub.UnregisterResourceManager(manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1"))
            await followed(standby, leader)
            await until(
                lambda: [place.rm_id for place in standby.server.managers.places] == ["rm-2", "rm-3"],
                "the standby to drop the manager",
            )
            await hand_over(leader)
            await until(lambda: standby.server.standing.leads, "the standby to lead")
            await run_conversation(standby, "rm-3", "c-2")
            await run_conversation(standby, "rm-2", "b-2", "b-3")
            assert await counts_of(standby) == {"rm-2": 3, "rm-3": 2}
            await fill_manager(standby, "rm-4", "d-1")
            assert [place.rm_id for place in standby.server.managers.places] == ["rm-2", "rm-3", "rm-4"]


async def test_two_managers_go_on_exactly_at_the_core_that_takes_over(postgres: Postgres, tmp_path: Path) -> None:
    """The leader is killed while both place asks, and nothing answers at its address from then on, as where its machine
    is gone."""
    asks = 300
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        second = await cores.start()
        async with begun_managers(first.address, second.address) as managers:
            placing = [asyncio.create_task(place_asks(manager.client, asks)) for manager in managers]
            await wait_for_both(managers[:1], 50)
            first.send(signal.SIGKILL)
            await first.ended()
            host, _, port = first.address.rpartition(":")
            with socket.create_server((host, int(port))):
                assert await cores.leader(first) is second
                await asyncio.gather(*placing)
                await wait_for_both(managers, asks)
            await second.check_books()
        check_exactly(managers, asks, postgres.url)


async def test_a_bug_in_the_engine_of_one_manager_does_not_stop_the_other(tmp_path: Path) -> None:
    """The engine that failed is restored without the ask; the other one places all the while, and both go on after a
    kill."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core = await cores.start(bugs=True)
        async with ShimClient(core.address, "rm-1") as faulty, ShimClient(core.address, "rm-2") as sound:
            heard: dict[str, Counter[tuple[type, str]]] = {}
            listening = [listen_to(client, heard.setdefault(client.rm_id, Counter())) for client in (faulty, sound)]
            for client in (faulty, sound):
                await client.register(config=CONFIG)
                await client.create_nodes([create("n1", vcore=10**6)])
                await client.add_applications(
                    [si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=ANN)]
                )
            tasks = [asyncio.create_task(each) for each in listening]
            placing = asyncio.create_task(place_asks(sound, 200))
            await faulty.submit_asks([Ask(key, "app", {"vcore": 1}) for key in ("b-1", "poison", "b-2")])
            await until(lambda: heard["rm-1"].total() == 3, "the asks to be answered")
            await placing
            await until(lambda: heard["rm-2"].total() == 200, "the asks of the other to be placed")
            assert core.log.read_text().count("engine restored") == 2
            core.send(signal.SIGKILL)
            await core.ended()
            again = await cores.start(address=core.address)
            await faulty.submit_asks([Ask("last", "app", {"vcore": 1})])
            await until(lambda: (Allocated, "last") in heard["rm-1"], "the last ask to be placed")
            placed = {(Allocated, key): 1 for key in ("b-1", "b-2", "last")}
            assert heard["rm-1"] == {**placed, (AskRejected, "poison"): 1}
            assert heard["rm-2"] == {(Allocated, f"ask-{number}"): 1 for number in range(200)}
            assert await counts_at(again) == {"rm-1": 3, "rm-2": 200}
            for task in tasks:
                task.cancel()
    with closing(open_store(journal)) as store:
        replay = Replay()
        assert replay.play_all(read.record for read in read_records(store)) is None
        assert [place.engine.rm_id for place in replay.places.values()] == ["rm-1", "rm-2"]


async def listen_to(client: ShimClient, heard: Counter[tuple[type, str]]) -> None:
    """Counts the answers to asks of *client*."""
    async for update in client.updates():
        if isinstance(update, Allocated | AskRejected):
            heard[type(update), update.key] += 1


async def counts_at(core: CoreProcess) -> dict[str, int]:
    """Returns how many allocations each manager has at *core*, whose books must agree."""
    told = await core.check_books()
    return {each.name.partition("]")[0][1:]: each.allocation_count for each in told.partitions}


@asynccontextmanager
async def journalling(folder: Path, **settings: Any) -> AsyncIterator[Core]:
    """A core with a journal in *folder*."""
    async with running_core(journal=open_journal(folder / "journal.db"), **settings) as core:
        yield core


def list_managers(core: Core) -> list[str]:
    """Returns the managers of *core*, the longest standing first."""
    return [place.rm_id for place in core.server.managers.places]


async def test_places_are_opened_and_closed_with_their_managers(tmp_path: Path) -> None:
    """As many as are allowed; a registration that fails leaves no place, neither now nor after a restart."""
    names = [f"rm-{number}" for number in range(1, 4)]
    async with journalling(tmp_path, managers=3) as core:
        await core.register(names[0])
        with pytest.raises(grpc.aio.AioRpcError):
            await core.register(names[1], "partitions: 7")
        assert list_managers(core) == names[:1]
        await asyncio.gather(*(core.register(name) for name in names[1:]))
        assert set(list_managers(core)) == set(names)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await core.register("rm-4")
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        before = list_managers(core)
    async with journalling(tmp_path, managers=3) as core:
        assert list_managers(core) == before
        await core.server.managers.unregister(names[0])
        await core.register("rm-4")
        assert set(list_managers(core)) == {*names[1:], "rm-4"}
        assert core.server.part.journal is not None
        assert [place.engine.rm_id for place in core.server.part.journal.places] == list_managers(core)
        before = list_managers(core)
    async with journalling(tmp_path, managers=3) as core:
        assert list_managers(core) == before


async def test_a_registration_while_nothing_can_be_written_opens_no_place(tmp_path: Path) -> None:
    async with journalling(tmp_path) as core:
        await core.register(NAMES[0])
        assert core.server.part.journal is not None
        core.server.part.journal._note_problem(StoreProblem("the disk is full", full=True))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await core.register(NAMES[1])
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert list_managers(core) == [NAMES[0]]
        core.server.part.journal._note_problem(None)
        await core.register(NAMES[1])
        assert list_managers(core) == list(NAMES)


async def test_a_core_that_is_fenced_ends_with_all_its_managers(tmp_path: Path) -> None:
    """None of them is told that its engine has failed: the core as a whole must not go on."""
    async with journalling(tmp_path) as core:
        for name in NAMES:
            await core.register(name)
        assert core.server.part.journal is not None
        core.server.part.journal._note_problem(StoreProblem("another core writes this journal", lost=True))
        for place in core.server.managers.places:
            place.runner._wake.set()
        await until(core.server.managers.died.is_set, "the core to give up")
        assert list_managers(core) == list(NAMES)


async def test_a_flood_of_one_manager_is_written_beside_the_calls_of_another(tmp_path: Path) -> None:
    """Both get all that they asked for; unit/journal/test_places judges how they share the room ahead of the store."""
    asks = 10_000
    async with journalling(tmp_path) as core, AsyncExitStack() as stack:
        flooding, other = [await stack.enter_async_context(managing(core, name, vcore=10**6)) for name in NAMES]
        for first in range(0, asks, 500):
            await flooding.allocations.send(
                allocation_request(
                    *(ask(f"f-{number}", vcore=1) for number in range(first, first + 500)), rm_id=NAMES[0]
                )
            )
        for number in range(3):
            assert keys(await other.place(f"k-{number}")) == [f"k-{number}"]
        assert len(await flooding.allocations.entries(asks)) == asks
