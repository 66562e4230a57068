"""Over a real connection: what could not be started is tried on other nodes, and what is sent again takes effect."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import (
    Conversation,
    Core,
    allocation_request,
    application_request,
    create,
    node_request,
    release_request,
    resource,
)

SECOND = 10**9


def request(generation: str, key: str, **fields: Any) -> si.AllocationRequest:
    """An ask of 1 core in the words of either *generation*."""
    if generation == "current":
        return allocation_request(
            si.Allocation(allocationKey=key, applicationID="app", resourcePerAlloc=resource(vcore=1_000), **fields)
        )
    if "allocationTags" in fields:
        fields["tags"] = fields.pop("allocationTags")
    ask = si.AllocationAsk(
        allocationKey=key, applicationID="app", resourceAsk=resource(vcore=1_000), maxAllocations=1, **fields
    )
    return si.AllocationRequest(rmID="rm-1", asks=[ask])


def could_not_start(key: str) -> si.AllocationRequest:
    return release_request(
        si.AllocationRelease(applicationID="app", allocationKey=key, terminationType=si.SCHEDULING_FAILED_ON_RM)
    )


async def prepare(core: Core, *nodes: str) -> None:
    async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
        await applications.send(application_request("app"))
        await applications.receive()
    async with Conversation.open(core.scheduler.UpdateNode()) as stream:
        for node in nodes:
            await stream.send(node_request(create(node, vcore=1_000)))
            assert (await stream.receive()).accepted


@pytest.mark.parametrize("generation", ["current", "older"])
async def test_what_could_not_be_started_is_tried_on_another_node_first(reg: Core, generation: str) -> None:
    """n1 and n2 in turns, and n1 again only when its pause of 1 s, then 2 s, is over."""
    await prepare(reg, "n1", "n2")
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        await allocations.send(request(generation, "k"))
        assert [entry.nodeID for entry in await allocations.entries(1)] == ["n1"]
        await allocations.send(could_not_start("k"))
        assert [entry.nodeID for entry in await allocations.entries(1)] == ["n2"]
        await allocations.send(could_not_start("k"))
        await reg.settle()
        reg.clock.advance(SECOND - 1)
        await reg.settle()
        reg.clock.advance(1)
        assert [entry.nodeID for entry in await allocations.entries(1)] == ["n1"]


@pytest.mark.parametrize("generation", ["current", "older"])
async def test_a_waiting_ask_sent_again_has_its_new_priority(reg: Core, generation: str) -> None:
    """Two asks wait for a node of one core; the one that was second gets it."""
    await prepare(reg)
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        await allocations.send(request(generation, "k", priority=5), request(generation, "l", priority=1))
        await reg.settle()
        await allocations.send(request(generation, "l", priority=9))
        await reg.settle()
        async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(create("n1", vcore=1_000)))
            assert (await nodes.receive()).accepted
        assert [entry.allocationKey for entry in await allocations.entries(1)] == ["l"]


@pytest.mark.parametrize("generation", ["current", "older"])
async def test_a_waiting_ask_sent_again_must_run_where_its_tag_says(reg: Core, generation: str) -> None:
    """The tag comes with the second message, before there is room anywhere."""
    await prepare(reg)
    required = {"yunikorn.apache.org/requiredNode": "n2"}
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        await allocations.send(request(generation, "k"), request(generation, "k", allocationTags=required))
        await reg.settle()
        async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
            for node in ("n1", "n2"):
                await nodes.send(node_request(create(node, vcore=1_000)))
                assert (await nodes.receive()).accepted
        assert [entry.nodeID for entry in await allocations.entries(1)] == ["n2"]


@pytest.mark.parametrize("generation", ["current", "older"])
async def test_what_runs_cannot_become_something_else(reg: Core, generation: str) -> None:
    """It is said so, in the list of the generation that asked, and the allocation goes on."""
    await prepare(reg, "n1")
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        await allocations.send(request(generation, "k"))
        assert len(await allocations.entries(1)) == 1
        await allocations.send(request(generation, "k", placeholder=True, taskGroupName="g"))
        answer = await allocations.receive()
        rejected = answer.rejectedAllocations if generation == "current" else answer.rejected
        assert [entry.reason.partition(":")[0] for entry in rejected] == ["unchangeable"]
        assert not answer.released
