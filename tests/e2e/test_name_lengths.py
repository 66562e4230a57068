"""Names at and beyond their limits, over a real connection: streams, registrations, and what is left of them."""

from __future__ import annotations

import gc
from typing import Any

import grpc
import pytest

from kornel.core.domain.names import LONGEST_MANAGER, LONGEST_NAME, LONGEST_TAGS
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1.read_pb2 import GetNodeRequest
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    open_streams,
)
from tests.patience import PATIENCE_S
from tests.waiting import until

ENTRIES = {
    "UpdateNode": lambda rm_id: node_request(create("n1"), rm_id=rm_id),
    "UpdateApplication": lambda rm_id: application_request("app", rm_id=rm_id),
    "UpdateAllocation": lambda rm_id: allocation_request(ask("k"), rm_id=rm_id),
}


@pytest.mark.parametrize("name", ["eyJ" * 97_000, "x" * (LONGEST_MANAGER + 1)], ids=["tokens", "one too many"])
@pytest.mark.parametrize("method", ENTRIES)
async def test_a_stream_of_a_manager_with_an_endless_name_ends(reg: Core, method: str, name: str) -> None:
    """INVALID_ARGUMENT, without its name being repeated."""
    async with Conversation.open(getattr(reg.scheduler, method)()) as stream:
        await stream.send(ENTRIES[method](name))
        code, details = await stream.end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == f"rmID has {len(name):,} characters, at most {LONGEST_MANAGER}"


@pytest.mark.parametrize(
    "fields",
    [
        {"rmID": "x" * 257},
        {"rmID": "rm-2", "policyGroup": "x" * 257},
        {"rmID": "rm-2", "version": "x" * 1_025},
        {"rmID": "rm-2", "buildInfo": {"x": "x" * 65_536}},
        {"rmID": "rm-2", "extraConfig": {"x": "x" * 1_048_576}},
    ],
    ids=lambda fields: list(fields)[-1],
)
async def test_a_registration_with_an_endless_text_is_refused(core: Core, fields: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await core.scheduler.RegisterResourceManager(si.RegisterResourceManagerRequest(**fields), timeout=PATIENCE_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await core.register()


async def test_names_of_the_greatest_length_work(core: Core) -> None:
    """What the limits allow is taken, placed and told of as anything else."""
    manager, name = "m" * LONGEST_MANAGER, "n" * LONGEST_NAME
    await core.register(manager)
    async with open_streams(core) as (nodes, applications, allocations):
        await nodes.send(node_request(create(name), rm_id=manager))
        assert (await nodes.receive()).accepted[0].nodeID == name
        await applications.send(application_request(name, rm_id=manager))
        assert (await applications.receive()).accepted[0].applicationID == name
        wanted = ask(name, name)
        wanted.allocationTags["k" * LONGEST_NAME] = "v" * (LONGEST_TAGS - LONGEST_NAME)
        await allocations.send(allocation_request(wanted, rm_id=manager))
        placed = (await allocations.receive()).new[0]
    assert (placed.allocationKey, placed.applicationID, placed.nodeID) == (name, name, name)


async def test_answers_about_long_names_fit_the_messages_of_any_client(reg: Core) -> None:
    """One that takes 4 MiB, as clients do by default, gets answers of 12 MB in several messages."""
    name = "\U0001f600" * (LONGEST_NAME - 10)
    async with grpc.aio.insecure_channel(reg.address) as channel:
        stub: si_pb2_grpc.SchedulerAsyncStub = si_pb2_grpc.SchedulerStub(channel)
        # Only a resource manager may send so much at once, so the core is to know it before.
        await stub.RegisterResourceManager(
            si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S
        )
        async with Conversation.open(stub.UpdateNode()) as stream:
            names = [f"{name}{number}" for number in range(1_500)]
            await stream.send(node_request(*(create(each, vcore=-1) for each in names)))
            assert [rejected.nodeID for rejected in await stream.entries(len(names))] == names
            sizes = [response.ByteSize() for response in stream.got]
            # How much is in one message depends on how fast they are taken.
            assert sum(sizes) > 4 << 20
            assert max(sizes) <= 4 << 20


async def test_a_refused_call_leaves_no_request_behind(core: Core) -> None:
    """gRPC ties what ends a call into a cycle; requests refused for their size are not in it."""
    call = core.channel.unary_unary("/kornel.v1.ReadService/GetNode")
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(GetNodeRequest(partition="x" * 100_000).SerializeToString(), timeout=PATIENCE_S)
        await core.settle()
        # Other tests may have left requests of their own behind.
        requests = [found for found in gc.get_objects() if isinstance(found, GetNodeRequest)]
        assert not [found for found in requests if len(found.partition) == 100_000]
    finally:
        gc.enable()


async def test_a_refused_stream_leaves_no_request_behind(reg: Core) -> None:
    """The iterator of requests, which holds itself and the last one, is let go of when a stream ends early."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            async with Conversation.open(reg.scheduler.UpdateNode()) as stream:
                await stream.send(node_request(rm_id="x" * 100_000))
                assert (await stream.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: not _receivers(), "the requests to be let go of")
    finally:
        gc.enable()


def _receivers() -> list[object]:
    return [found for found in gc.get_objects() if type(found).__name__ == "_MessageReceiver"]
