"""Two programs that speak for one resource manager: the one that registered last is listened to (protocol.md 5.1)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.core.engine.engine import Engine
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import (
    ApplicationAccepted,
    CallbackHandler,
    CallFailed,
    PredicatesQuestion,
    RegistrationHeld,
    ShimClient,
    Superseded,
)
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e import rolling_shim
from tests.e2e.harness import CONFIG, Conversation, Core, running_core
from tests.e2e.test_command import serving
from tests.patience import PATIENCE_S
from tests.prepared import PATHS, python
from tests.waiting import until

RM = "rm-1"
PODS = rolling_shim.MOST + 50


class Yes(CallbackHandler):
    """Allows everything."""

    async def predicates(self, question: PredicatesQuestion) -> dict[str, str]:
        return {}


@asynccontextmanager
async def client(core: Core) -> AsyncIterator[ShimClient]:
    async with ShimClient(core.address, RM, reconnect_s=PATIENCE_S) as shim:
        yield shim


@asynccontextmanager
async def stub(core: Core) -> AsyncIterator[si_pb2_grpc.SchedulerAsyncStub]:
    """A connection of its own, without the name of a session."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(core.address, options=options) as channel:
        yield si_pb2_grpc.SchedulerStub(channel)


def registration(config: str = CONFIG) -> si.RegisterResourceManagerRequest:
    return si.RegisterResourceManagerRequest(rmID=RM, config=config)


def application(name: str) -> si.AddApplicationRequest:
    return si.AddApplicationRequest(applicationID=name, queueName="root.a", ugi=si.UserGroupInformation(user="u"))


async def test_the_older_client_ends_with_a_clear_error_and_does_not_come_back() -> None:
    async with running_core() as core, client(core) as older, client(core) as younger:
        await older.register(config=CONFIG)
        await older.attach_callbacks(Yes())
        assert isinstance((await older.add_applications([application("app")]))[0], ApplicationAccepted)
        await younger.register(config=CONFIG)
        with pytest.raises(Superseded, match="superseded"):
            await asyncio.wait_for(anext(_nothing_but_ends(older)), PATIENCE_S)
        with pytest.raises(Superseded):
            await older.add_applications([application("other")])
        opened = core.metrics.streams_opened
        # The same name is a new one to the core, and the younger is told so.
        assert isinstance((await younger.add_applications([application("app")]))[0], ApplicationAccepted)
        await core.settle()
        assert core.metrics.streams_opened - opened <= 3, "only the younger opens streams"


async def _nothing_but_ends(shim: ShimClient) -> AsyncIterator[None]:
    async for _ in shim.updates():
        pass
    yield


async def test_what_the_older_sends_late_is_refused_and_changes_nothing() -> None:
    async with running_core() as core, client(core) as younger:
        session = (("kornel-session", "older"),)
        await core.scheduler.RegisterResourceManager(registration(), metadata=session)
        stream = Conversation(core.scheduler.UpdateApplication(metadata=session))
        await stream.send(si.ApplicationRequest(rmID=RM))
        await core.settle()
        await younger.register(config=CONFIG)
        assert (await stream.end())[0] is grpc.StatusCode.ABORTED
        late = Conversation(core.scheduler.UpdateApplication(metadata=session))
        await late.send(si.ApplicationRequest(rmID=RM, new=[application("late")]))
        code, details = await late.end()
        assert code is grpc.StatusCode.ABORTED
        assert details.startswith("superseded")
        # Had it been applied, the same name of the younger would be refused as a duplicate.
        assert isinstance((await younger.add_applications([application("late")]))[0], ApplicationAccepted)


async def test_the_older_cannot_take_the_registration_away_when_it_ends() -> None:
    async with running_core() as core, client(core) as older, client(core) as younger:
        await older.register(config=CONFIG)
        await younger.register(config=CONFIG)
        with pytest.raises(CallFailed, match="superseded") as refused:
            await older.unregister()
        assert refused.value.code is grpc.StatusCode.ABORTED
        with pytest.raises(CallFailed, match="superseded"):
            await older.update_configuration(CONFIG)
        assert isinstance((await younger.add_applications([application("app")]))[0], ApplicationAccepted)


async def test_who_registers_again_keeps_its_streams_on_whatever_connection() -> None:
    async with running_core() as core, stub(core) as other:
        session = (("kornel-session", "one"),)
        await core.scheduler.RegisterResourceManager(registration(), metadata=session)
        stream = Conversation(core.scheduler.UpdateApplication(metadata=session))
        await stream.send(si.ApplicationRequest(rmID=RM))
        await core.settle()
        await other.RegisterResourceManager(registration(), metadata=session)
        await stream.send(si.ApplicationRequest(rmID=RM, new=[application("app")]))
        answer = await stream.receive()
        assert [accepted.applicationID for accepted in answer.accepted] == ["app"]


async def test_without_a_name_the_connection_is_the_session() -> None:
    async with running_core() as core, stub(core) as other:
        await core.scheduler.RegisterResourceManager(registration())
        stream = Conversation(core.scheduler.UpdateApplication())
        await stream.send(si.ApplicationRequest(rmID=RM))
        await core.settle()
        await core.scheduler.RegisterResourceManager(registration())
        await stream.send(si.ApplicationRequest(rmID=RM, new=[application("app")]))
        answer = await stream.receive()
        assert [accepted.applicationID for accepted in answer.accepted] == ["app"]
        await other.RegisterResourceManager(registration())
        code, details = await stream.end()
        assert code is grpc.StatusCode.ABORTED
        assert details.startswith("superseded")
        again = Conversation(core.scheduler.UpdateApplication())
        await again.send(si.ApplicationRequest(rmID=RM))
        assert (await again.end())[0] is grpc.StatusCode.ABORTED


async def test_a_nameless_connection_of_the_same_address_that_never_registered_stays() -> None:
    """A program may register over one connection and have its streams on another one."""
    async with running_core() as core, stub(core) as second, stub(core) as third:
        await core.scheduler.RegisterResourceManager(registration())
        stream = Conversation(second.UpdateApplication())
        await stream.send(si.ApplicationRequest(rmID=RM))
        await core.settle()
        await third.RegisterResourceManager(registration())
        await stream.send(si.ApplicationRequest(rmID=RM, new=[application("app")]))
        answer = await stream.receive()
        assert [accepted.applicationID for accepted in answer.accepted] == ["app"]


async def test_whoever_registers_again_takes_the_core_back() -> None:
    async with running_core() as core, client(core) as older, client(core) as younger:
        await older.register(config=CONFIG)
        await younger.register(config=CONFIG)
        with pytest.raises(Superseded):
            await asyncio.wait_for(anext(_nothing_but_ends(older)), PATIENCE_S)
        await older.register(config=CONFIG)
        assert isinstance((await older.add_applications([application("app")]))[0], ApplicationAccepted)
        with pytest.raises(Superseded):
            await asyncio.wait_for(anext(_nothing_but_ends(younger)), PATIENCE_S)


async def test_who_wants_to_wait_registers_when_the_other_is_gone() -> None:
    async with running_core() as core, client(core) as younger:
        async with client(core) as older:
            await older.register(config=CONFIG)
            await older.add_applications([application("app")])
            with pytest.raises(RegistrationHeld) as held:
                await younger.register(config=CONFIG, wait_for_s=10)
            assert held.value.retry_s == 10
            await older.add_applications([application("another")])
        await until(lambda: core.metrics.live_streams == 0, "the streams of the older to end")
        core.clock.advance(4 * SECOND_NS)
        with pytest.raises(RegistrationHeld) as held:
            await younger.register(config=CONFIG, wait_for_s=10)
        assert 5 < held.value.retry_s <= 6
        core.clock.advance(6 * SECOND_NS)
        await younger.register(config=CONFIG, wait_for_s=10)
        assert isinstance((await younger.add_applications([application("app")]))[0], ApplicationAccepted)


async def test_who_holds_the_core_need_not_wait_for_itself() -> None:
    async with running_core() as core, client(core) as shim:
        await shim.register(config=CONFIG, wait_for_s=60)
        await shim.add_applications([application("app")])
        await shim.register(config=CONFIG, wait_for_s=60)


async def test_a_rolling_update_loses_no_pod_and_runs_none_twice(tmp_path: Path) -> None:
    """Two programs in processes of their own, one core, and one database that stands for the API server."""
    database = tmp_path / "cluster.db"
    rolling_shim.make_cluster(database, PODS)
    with serving(tmp_path) as (_, address):
        async with ShimClient(address, RM) as reader:
            first = await _start_shim(address, database, 0)
            try:
                second = await _start_shim(address, database, rolling_shim.ALONE)
                try:
                    assert await asyncio.wait_for(first.wait(), PATIENCE_S) == rolling_shim.SUPERSEDED
                    await _until_started(database, PODS)
                    await _until_equal(reader, database)
                finally:
                    second.terminate()
                    await second.wait()
            finally:
                if first.returncode is None:
                    first.kill()
                    await first.wait()
    with closing(sqlite3.connect(database)) as cluster:
        starts = cluster.execute("SELECT key, count(*), count(DISTINCT shim) FROM starts GROUP BY key").fetchall()
        shims = cluster.execute("SELECT count(DISTINCT shim) FROM starts").fetchone()
    assert len(starts) == PODS
    assert all(times == 1 for _, times, _ in starts), "started twice"
    assert shims == (2,), "both have bound pods, or nothing was handed over"


async def _start_shim(address: str, database: Path, begin_at: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        python(), "-m", "tests.e2e.rolling_shim", address, str(database), str(begin_at),
        env=os.environ | {"PYTHONPATH": PATHS},
    )  # fmt: skip


async def _until_started(database: Path, count: int) -> None:
    counting = "SELECT count(*) FROM pods WHERE node IS NOT NULL"
    with closing(sqlite3.connect(database, timeout=PATIENCE_S)) as cluster:
        await until(lambda: cluster.execute(counting).fetchone()[0] >= count, f"{count} pods to be started")


async def _until_equal(reader: ShimClient, database: Path) -> None:
    """Wait until the core has every pod on the node on which it runs."""
    with closing(sqlite3.connect(database, timeout=PATIENCE_S)) as cluster:
        bound = dict(cluster.execute("SELECT key, node FROM pods").fetchall())

    async def is_equal() -> bool:
        partition = (await reader.status()).partitions[0]
        return (partition.allocation_count, partition.pending_ask_count) == (len(bound), 0)

    await until(is_equal, "the core to have every pod")
    for key, node in bound.items():
        assert (await reader.explain_ask(key)).node_id == node


async def test_nothing_is_built_for_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build_ahead = Engine.build_ahead

    def note_build(engine: Engine, rm_id: str, configuration: Any) -> Any:
        built.append(rm_id)
        return build_ahead(engine, rm_id, configuration)

    monkeypatch.setattr(Engine, "build_ahead", note_build)
    async with running_core() as core, client(core) as older, client(core) as younger:
        await older.register(config=CONFIG)
        with pytest.raises(RegistrationHeld):
            await younger.register(config=CONFIG, wait_for_s=10)
    assert built == [RM]
