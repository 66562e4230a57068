"""A core whose engine fails restores itself without the call that it failed on, and keeps what shows the bug again.

The engines here have bugs that were planted: they fail, and leave damage behind.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kornel.core.journal.content.refusing import REASON
from kornel.shim_client import Allocated, Ask, AskRejected, ShimClient
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import configuration_pb2, configuration_pb2_grpc
from tests.e2e.cores import CoreProcess, cores_on
from tests.e2e.harness import CONFIG, Conversation, allocation_request, ask, create, node_request
from tests.e2e.test_journal import Shim, decided_in
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.prepared import python
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]

MANAGERS = "kornel.v1.Managers"
BUGS = ("tests.e2e.altered_core", "bugs")


async def send_asks(core: CoreProcess, *keys: str) -> tuple[set[str], dict[str, str]]:
    """Sends asks as one message, and returns which were placed, and the reasons of those that were rejected."""
    scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(core.channel)
    call = scheduler.UpdateAllocation()
    await call.write(allocation_request(*(ask(key, "app", vcore=1) for key in keys)))
    placed, rejected = set[str](), dict[str, str]()
    async with asyncio.timeout(PATIENCE_S):
        while not set(keys) <= placed | rejected.keys():
            response = await call.read()
            assert isinstance(response, si.AllocationResponse)
            placed |= {each.allocationKey for each in response.new}
            rejected |= {each.allocationKey: each.reason for each in response.rejectedAllocations}
    call.cancel()
    # What the stream before was told as it was cancelled may come once more.
    return placed & set(keys), {key: reason for key, reason in rejected.items() if key in keys}


@asynccontextmanager
async def listening_client(address: str) -> AsyncIterator[tuple[ShimClient, Counter[tuple[type, str]]]]:
    """A client that has registered, with two nodes and an application, and how often it has heard of each ask."""
    heard: Counter[tuple[type, str]] = Counter()
    async with ShimClient(address, "rm-1") as client:
        await client.register(config=CONFIG)
        await client.create_nodes([create("n1", vcore=10**6), create("n2", vcore=10**6)])
        ann = si.UserGroupInformation(user="ann")
        await client.add_applications([si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=ann)])

        async def listen() -> None:
            async for update in client.updates():
                if isinstance(update, Allocated | AskRejected):
                    heard[type(update), update.key] += 1

        listening = asyncio.create_task(listen())
        yield client, heard
        listening.cancel()


async def wait_for_log(core: CoreProcess, text: str) -> None:
    """Returns when the core has said *text*."""
    await until(lambda: text in core.log.read_text(), f"the core to say {text!r}")


async def check_books(core: CoreProcess, allocations: int) -> None:
    """Fails unless the core has so many allocations, and its books agree."""
    (partition,) = (await core.check_books()).partitions
    assert partition.allocation_count == allocations
    assert partition.node_count == 2


def list_files(path: str) -> list[Path]:
    """Returns what is in the directory *path*."""
    return list(Path(path).iterdir())


async def test_an_entry_that_the_engine_fails_on_is_refused(tmp_path: Path) -> None:
    """It alone; the others of its message are placed, everything else is as it was, and so it is after a kill."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start(bugs=True), Shim()
        await shim.prepare(core.channel)
        assert await send_asks(core, "a-1", "a-2") == ({"a-1", "a-2"}, {})
        placed, rejected = await send_asks(core, "b-1", "poison-1", "b-2")
        assert placed == {"b-1", "b-2"}
        assert rejected == {"poison-1": REASON}
        assert await core.serves(MANAGERS)
        assert await core.serves()
        await check_books(core, 4)
        assert (await send_asks(core, "poison-2"))[1] == {"poison-2": REASON}
        assert (await send_asks(core, "c-1"))[0] == {"c-1"}
        core.send(signal.SIGKILL)
        await core.ended()
        assert len(decided_in(journal)) == 5
        again = await cores.start()
        await shim.hear_all(again.channel, "last", set())
        await check_books(again, 6)


async def test_a_shim_goes_on_exactly_behind_a_bug(tmp_path: Path) -> None:
    """Each entry of the message is applied or refused once, and so it is for the next core: nothing is sent again."""
    async with cores_on(str(tmp_path / "journal.db"), tmp_path) as cores:
        core = await cores.start(bugs=True)
        async with listening_client(core.address) as (client, heard):
            await client.submit_asks([Ask(key, "app", {"vcore": 1}) for key in ("b-1", "poison", "b-2")])
            await until(lambda: heard.total() == 3, "the asks to be answered")
            core.send(signal.SIGKILL)
            await core.ended()
            again = await cores.start(address=core.address)
            await client.submit_asks([Ask("last", "app", {"vcore": 1})])
            await until(lambda: (Allocated, "last") in heard, "the last ask to be placed")
            placed = {(Allocated, key): 1 for key in ("b-1", "b-2", "last")}
            assert heard == {**placed, (AskRejected, "poison"): 1}
            await check_books(again, 3)


@pytest.mark.parametrize("restored", [1, 2])
async def test_a_message_that_was_set_aside_is_not_lost_by_a_kill(tmp_path: Path, restored: int) -> None:
    """Before any of its entries was applied singly, and between two of them: the shim sends again what was not."""
    async with cores_on(str(tmp_path / "journal.db"), tmp_path) as cores:
        core = await cores.start(bugs=True)
        async with listening_client(core.address) as (client, heard):
            names = ("b-1", f"poison-held-{restored}", "b-2")
            await client.submit_asks([Ask(key, "app", {"vcore": 1}) for key in names])
            await wait_for_log(core, "held\n")
            core.send(signal.SIGKILL)
            await core.ended()
            again = await cores.start(address=core.address)
            await until(lambda: len(heard) == 3, "the asks to be answered")
            await client.submit_asks([Ask("last", "app", {"vcore": 1})])
            await until(lambda: (Allocated, "last") in heard, "the last ask to be placed")
            # The next core has no bug.
            assert heard == {(Allocated, key): 1 for key in (*names, "last")}
            await check_books(again, 4)


async def test_the_bundle_shows_the_bug_again(tmp_path: Path) -> None:
    """``kornel replay`` of it ends with the call and its traceback; without the bug it says that there is none."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start("--journal-snapshots", "0.1", bugs=True), Shim()
        await shim.prepare(core.channel)
        await wait_for_log(core, "snapshot made")
        await send_asks(core, "poison")
    (bundle,) = list_files(f"{journal}.faults")
    assert "planted: poison" in (bundle / "traceback.txt").read_text()
    assert list_files(f"{bundle}/journal.db.snapshots")

    def replay(*program: str) -> str:
        command = [python(), "-m", *program, "replay", str(bundle / "journal.db")]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = await asyncio.to_thread(replay, *BUGS)
    assert "RuntimeError: planted: poison" in said
    assert "handle_entry" in said
    assert "it does not fail here" in await asyncio.to_thread(replay, "kornel")


async def test_an_entry_that_nobody_answers_ends_the_stream(tmp_path: Path) -> None:
    """INTERNAL, with the number of the record: the shim has to know that the node is not drained."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start(bugs=True), Shim()
        await shim.prepare(core.channel)
        scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(core.channel)
        async with Conversation.open(scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(si.NodeInfo(nodeID="n2", action=si.NodeInfo.DRAIN_NODE)))
            code, said = await nodes.end()
        assert code is grpc.StatusCode.INTERNAL
        assert "set aside" in said
        assert (await send_asks(core, "a-1"))[0] == {"a-1"}
        await check_books(core, 1)


async def test_a_configuration_that_the_engine_fails_on_is_refused(tmp_path: Path) -> None:
    """INTERNAL, with the number of the record, which the bundle ends with; the one before stays in force."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start(bugs=True), Shim()
        await shim.prepare(core.channel)
        stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
        request = configuration_pb2.UpdateConfigurationRequest(
            rm_id="rm-1", config=f"{CONFIG}          - name: poison\n"
        )
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.UpdateConfiguration(request, timeout=PATIENCE_S)
        assert failed.value.code() is grpc.StatusCode.INTERNAL
        assert "set aside as record" in str(failed.value.details())
        assert (await send_asks(core, "a-1"))[0] == {"a-1"}
        await check_books(core, 1)
    (bundle,) = list_files(f"{journal}.faults")
    command = [python(), "-m", *BUGS, "replay", str(bundle / "journal.db")]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True, text=True)  # noqa: ASYNC221
    assert "planted: configuration" in done.stdout


async def test_a_slice_that_fails_is_tried_again_and_takes_nothing_along(tmp_path: Path) -> None:
    """What the shim sends meanwhile is kept, and decided once slices do not fail any more."""
    journal = str(tmp_path / "journal.db")
    async with cores_on(journal, tmp_path) as cores:
        core, shim = await cores.start(bugs=True), Shim()
        await shim.prepare(core.channel)
        await send_asks(core, "a-1")
        scheduler: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(core.channel)
        call = scheduler.UpdateAllocation()
        await call.write(allocation_request(ask("stuck", "app", vcore=1)))
        sending = asyncio.create_task(send_asks(core, "b-1", "b-2"))
        await wait_for_log(core, "a call was set aside")
        withdrawn = si.AllocationRelease(partitionName="default", applicationID="app", allocationKey="stuck")
        releases = si.AllocationReleasesRequest(allocationsToRelease=[withdrawn])
        await call.write(si.AllocationRequest(rmID="rm-1", releases=releases))
        assert (await sending)[0] == {"b-1", "b-2"}
        await check_books(core, 3)


async def test_a_standby_follows_a_leader_that_has_failed(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves out what the leader has set aside, and takes over with the rest; the bundle is a file of the leader."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with cores_on(postgres.url, tmp_path) as cores:
        first, shim = await cores.start(bugs=True), Shim()
        await shim.prepare(first.channel)
        second = await cores.start()
        await send_asks(first, "a-1", "poison", "a-2")
        assert len(list_files(str(tmp_path / "kornel" / "faults"))) == 2
        first.send(signal.SIGKILL)
        assert await cores.leader(first) is second
        await shim.hear_all(second.channel, "last", set())
        await check_books(second, 3)
