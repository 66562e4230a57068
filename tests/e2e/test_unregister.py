"""The end of a registration: kornel.v1.ManagerService, from every side that can ask for it."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kornel.shim_client.client import ShimClient
from kornel.shim_client.errors import CallFailed
from kornel.shim_client.updates import NodeAccepted, Update
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import manager_pb2, manager_pb2_grpc, status_pb2, status_pb2_grpc
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    working_streams,
)
from tests.e2e.test_command import environment, kornel, serving
from tests.patience import PATIENCE_S
from tests.prepared import python
from tests.waiting import until

Code = grpc.StatusCode


async def unregister(core: Core, rm_id: str = "rm-1") -> None:
    stub = manager_pb2_grpc.ManagerServiceStub(core.channel)
    await stub.UnregisterResourceManager(manager_pb2.UnregisterResourceManagerRequest(rm_id=rm_id), timeout=PATIENCE_S)


async def status_of(core: Core) -> status_pb2.GetStatusResponse:
    return await status_pb2_grpc.StatusServiceStub(core.channel).GetStatus(status_pb2.GetStatusRequest())


async def test_its_streams_end_and_say_why(reg: Core) -> None:
    """Every bound stream ends FAILED_PRECONDITION naming the manager; nothing of it is left."""
    async with (
        Conversation.open(reg.scheduler.UpdateNode()) as nodes,
        Conversation.open(reg.scheduler.UpdateApplication()) as applications,
    ):
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        await applications.send(application_request("app"))
        await applications.receive()
        await unregister(reg)
        for stream in (nodes, applications):
            code, details = await stream.end()
            assert code is Code.FAILED_PRECONDITION
            assert "'rm-1' was unregistered" in details
    status = await status_of(reg)
    assert (status.rm_id, list(status.partitions)) == ("", [])


async def test_another_one_may_register_and_hears_nothing_of_the_first(reg: Core) -> None:
    """Responses that waited for the first manager are dropped; one stream that belonged to nobody goes on."""
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as early:
        async with working_streams(reg) as (_, _, allocations):
            await allocations.send(allocation_request(ask("k")))
            await allocations.receive()
        await until(lambda: reg.metrics.live_streams <= 1, "the streams of rm-1 to close")
        async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(si.NodeInfo(nodeID="n1", action=si.NodeInfo.DECOMISSION)))
            await until(lambda: reg.metrics.queued_entries > 0, "a release that nobody collects")
            await unregister(reg)
            assert (await nodes.end())[0] is Code.FAILED_PRECONDITION
        assert reg.metrics.queued_entries == 0
        await reg.register("rm-2")
        await early.send(si.AllocationRequest(rmID="rm-2"))
        assert await early.silent(reg)
    assert (await status_of(reg)).rm_id == "rm-2"


@pytest.mark.parametrize("rm_id", ["rm-2", ""])
async def test_only_the_registered_manager_can_leave(reg: Core, rm_id: str) -> None:
    """Any other name is FAILED_PRECONDITION and disturbs nobody."""
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unregister(reg, rm_id)
        assert caught.value.code() is Code.FAILED_PRECONDITION
        await nodes.send(node_request(create("n2")))
        assert (await nodes.receive()).accepted[0].nodeID == "n2"
    assert (await status_of(reg)).rm_id == "rm-1"


async def test_the_client_library_leaves_and_comes_back(core: Core) -> None:
    """ShimClient.unregister ends its updates well, and registering again starts afresh."""
    async with ShimClient(core.address, "rm-1") as client:
        await client.register(config=CONFIG)
        heard: list[Update] = []

        async def listen() -> None:
            heard.extend([update async for update in client.updates()])

        listening = asyncio.create_task(listen())
        await client.create_nodes([create("n1")])
        await asyncio.wait_for(client.unregister(), PATIENCE_S)
        await asyncio.wait_for(listening, PATIENCE_S)
        assert heard == [NodeAccepted("n1")]
        await asyncio.wait_for(listen(), PATIENCE_S)
        assert not (await status_of(core)).rm_id
        with pytest.raises(CallFailed):
            await client.unregister()
        await client.register(config=CONFIG)
        (answer,) = await client.create_nodes([create("n1")])
        assert answer.node_id == "n1"
        assert (await status_of(core)).partitions[0].node_count == 1


def test_the_command(tmp_path: Path) -> None:
    """`kornel unregister` exits 0 once the manager is gone, and 1 when there is none of that name."""
    with serving(tmp_path) as (_, address), grpc.insecure_channel(address) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S)
        assert kornel("unregister", "--yes", "--grpc", address, "rm-1").returncode == 0
        again = kornel("unregister", "--yes", "--grpc", address, "rm-1")
        assert again.returncode == 1
        assert "rm-1" in again.stderr
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm-2", config=CONFIG), timeout=PATIENCE_S)
        nobody_to_ask = kornel("unregister", "--grpc", address, "rm-2")
        assert nobody_to_ask.returncode == 2
        assert "give --yes" in nobody_to_ask.stderr
        assert answered("n", "unregister", "--grpc", address, "rm-2") == (1, True, True)
        assert answered("y", "unregister", "--grpc", address, "rm-2") == (0, True, False)


def answered(answer: str, *arguments: str) -> tuple[int, bool, bool]:
    """`kornel` at a terminal where somebody gives *answer*: its exit status, whether it asked, whether it gave up."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [python(), "-m", "kornel", *arguments],
        env=environment(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        _, said = process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    return process.returncode, "Go on?" in said, "nothing was done" in said
