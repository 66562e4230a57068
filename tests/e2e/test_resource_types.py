"""Made-up resource types over a real connection: whoever names them waits, and nobody else notices."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import (
    Conversation,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    running_core,
)
from tests.e2e.test_configuration import update

TYPES = 1_024


def configuration(count: int) -> str:
    """A queue with a max for *count* types, one on each line."""
    types = "".join(f"\n                example.com/type-{number}: 1" for number in range(count))
    return f"""partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
          - name: b
            resources:
              max:{types or " {}"}
"""


def with_types(key: str, *names: str) -> si.Allocation:
    request = ask(key, vcore=1)
    for name in names:
        request.resourcePerAlloc.resources[name].value = 1
    return request


async def placed(stream: Conversation, *wanted: str) -> dict[str, str]:
    """The nodes of *wanted* asks, once all are placed."""
    found: dict[str, str] = {}
    while found.keys() < set(wanted):
        answer: Any = await stream.receive()
        assert not answer.rejectedAllocations
        found |= {new.allocationKey: new.nodeID for new in answer.new}
    return found


async def test_a_node_with_a_new_type_joins_beside_a_thousand_made_up_ones() -> None:
    """One user's asks name 1,024 types that nobody has: a node with GPUs joins, is asked for, and works."""
    async with running_core() as core:
        await core.register(config=configuration(0))
        scheduler = core.scheduler
        async with (
            Conversation.open(scheduler.UpdateNode()) as nodes,
            Conversation.open(scheduler.UpdateApplication()) as applications,
            Conversation.open(scheduler.UpdateAllocation()) as allocations,
        ):
            await nodes.send(node_request(create("n1")))
            await nodes.receive()
            await applications.send(application_request("app"))
            assert [app.applicationID for app in (await applications.receive()).accepted] == ["app"]
            made_up = [with_types(f"hostile-{number}", f"example.com/type-{number}") for number in range(TYPES)]
            await allocations.send(allocation_request(*made_up))
            await allocations.send(allocation_request(with_types("first", "example.com/gpu"), ask("plain", vcore=1)))
            assert await placed(allocations, "plain") == {"plain": "n1"}
            gpu_node = create("n2", vcore=10)
            gpu_node.schedulableResource.resources["example.com/gpu"].value = 8
            await nodes.send(node_request(gpu_node))
            assert [node.nodeID for node in (await nodes.receive()).accepted] == ["n2"]
            await allocations.send(allocation_request(with_types("second", "example.com/gpu")))
            assert await placed(allocations, "first", "second") == {"first": "n2", "second": "n2"}
            await allocations.send(allocation_request(ask("again", vcore=1)))
            assert "again" in await placed(allocations, "again")


async def test_a_configuration_with_too_many_types_is_refused_and_the_old_one_goes_on() -> None:
    async with running_core() as core:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await core.register(config=configuration(TYPES + 1))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await core.register(config=configuration(10))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await update(core, configuration(TYPES + 1))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        said = refused.value.details() or ""
        # Two types have a weight in the order of nodes. The max begins on line 10.
        assert "queue root.b: 'example.com/type-1022' is one resource type too many" in said
        assert "line 1033, column 17" in said
        async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(create("n1")))
            assert [node.nodeID for node in (await nodes.receive()).accepted] == ["n1"]
