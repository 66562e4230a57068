"""Everything that a core knows beside nodes and allocations survives a kill, in one cluster that has it all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kornel.shim_client import Ask, Released, ShimClient
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    configuration_pb2,
    configuration_pb2_grpc,
    test_clock_pb2,
    test_clock_pb2_grpc,
)
from tests.e2e.harness import CONFIG, create, resource
from tests.e2e.test_resume import KilledCore, killed_core, look_at_partition
from tests.patience import PATIENCE_S
from tests.waiting import until

SECOND_NS = 10**9
GANG_TIMES_OUT_S = 60


@dataclass(frozen=True)
class Known:
    """The answers of a core to questions about things that are easily forgotten."""

    reservations: int
    pending: int
    drained: list[tuple[str, str, int]]
    asked_ns: dict[str, int]
    versions: list[tuple[int, bool, str]]
    rollback: str


async def ask_core(core: KilledCore, client: ShimClient) -> Known:
    """Asks the core about everything."""
    partition = await look_at_partition(client)
    asked_ns = {}
    for key in ("large", "member-2"):
        asked_ns[key] = (await client.explain(key)).ask.created_ns
    async with grpc.aio.insecure_channel(core.address) as channel:
        stub: Any = configuration_pb2_grpc.ConfigurationServiceStub(channel)
        history = await stub.GetConfigurationHistory(configuration_pb2.GetConfigurationHistoryRequest())
    status = await client.status()
    return Known(
        partition.reservation_count,
        partition.pending_ask_count,
        [(node.node_id, node.principal, node.since_ns) for node in partition.drained_nodes],
        asked_ns,
        [(version.number, version.in_force, version.principal) for version in history.versions],
        str(status.rollback),
    )


async def move_clock(core: KilledCore, seconds: float) -> None:
    """Has time pass for the core."""
    async with grpc.aio.insecure_channel(core.address) as channel:
        stub: Any = test_clock_pb2_grpc.TestClockServiceStub(channel)
        await stub.AdvanceClock(test_clock_pb2.AdvanceClockRequest(by_ns=round(seconds * SECOND_NS)))


async def roll_back(core: KilledCore, client: ShimClient) -> None:
    """Has two more versions, and the first one in force again."""
    await client.update_configuration(CONFIG.replace("name: a", "name: a\n          - name: b"))
    async with grpc.aio.insecure_channel(core.address) as channel:
        stub: Any = configuration_pb2_grpc.ConfigurationServiceStub(channel)
        await stub.RollbackConfiguration(configuration_pb2.RollbackConfigurationRequest(version=1))


async def fill_cluster(core: KilledCore, client: ShimClient) -> None:
    """Has a gang of which half is placed, an ask that has a node kept free, and a node that an operator has drained."""
    await client.register(config=CONFIG)
    await client.create_nodes([create("n1", vcore=10_000), create("n2", vcore=10_000)])
    async with grpc.aio.insecure_channel(core.address) as channel:
        admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        await admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n2"))
    ann = si.UserGroupInformation(user="ann")
    gang = si.AddApplicationRequest(applicationID="gang", queueName="root.a", ugi=ann)
    gang.placeholderAsk.CopyFrom(resource(vcore=12_000))
    gang.executionTimeoutMilliSeconds = GANG_TIMES_OUT_S * 1_000
    single = si.AddApplicationRequest(applicationID="single", queueName="root.a", ugi=ann)
    await client.add_applications([gang, single])
    member = {"vcore": 6_000}
    await client.submit_asks([Ask(f"member-{n}", "gang", member, placeholder=True, task_group="g") for n in (1, 2)])
    await client.submit_asks([Ask("large", "single", {"vcore": 9_000})])
    await client.flush()


async def wait_for_end(client: ShimClient, key: str) -> int:
    """Returns why the allocation *key* is to end."""
    async with asyncio.timeout(PATIENCE_S):
        async for update in client.updates():
            if isinstance(update, Released) and update.key == key:
                return int(update.termination)
    raise AssertionError("the client was closed")


async def test_what_is_easily_forgotten_survives_a_kill(tmp_path: Path) -> None:
    """Ages of asks, held room, timers of gangs, drained nodes, versions and a rollback are those of before, and time
    goes on where it was."""
    async with killed_core(tmp_path, "--test-clock") as core, ShimClient(core.address, "rm-1") as client:
        await fill_cluster(core, client)
        await roll_back(core, client)
        while not (await look_at_partition(client)).reservation_count:
            await move_clock(core, 1)
        await move_clock(core, GANG_TIMES_OUT_S / 2)
        before = await ask_core(core, client)
        assert before.reservations >= 1
        assert [node for node, _, _ in before.drained] == ["n2"]
        assert [number for number, _, _ in before.versions] == [1, 2, 3]
        assert before.rollback
        await core.kill()
        await core.start()
        assert await ask_core(core, client) == before
        ended = asyncio.create_task(wait_for_end(client, "member-1"))
        # Its timer began before the kill, so the gang has not as long as it was given.
        for _ in range(GANG_TIMES_OUT_S - 10):
            await move_clock(core, 1)
            if ended.done():
                break
        assert await ended == si.TIMEOUT


async def test_time_goes_on_while_no_core_runs(tmp_path: Path) -> None:
    """The wait of a gang that ran out meanwhile is over when a core runs again."""
    async with killed_core(tmp_path, "--test-clock") as core, ShimClient(core.address, "rm-1") as client:
        await client.register(config=CONFIG)
        await client.create_nodes([create("n1", vcore=10_000)])
        gang = si.AddApplicationRequest(applicationID="gang", queueName="root.a", executionTimeoutMilliSeconds=1)
        gang.ugi.user = "ann"
        gang.placeholderAsk.CopyFrom(resource(vcore=12_000))
        await client.add_applications([gang])
        await client.submit_asks([Ask("member", "gang", {"vcore": 6_000}, placeholder=True, task_group="g")])
        ended = asyncio.create_task(wait_for_end(client, "member"))
        await until(lambda: has_allocation(client), "the placeholder to be placed")
        assert not ended.done(), "the clock stands still"
        await core.kill()
        await core.start()
        await move_clock(core, 0)
        assert await ended == si.TIMEOUT


async def has_allocation(client: ShimClient) -> bool:
    """Tells whether anything is placed."""
    return bool((await look_at_partition(client)).allocation_count)
