"""What a shim of the older generation sees over a real connection (protocol.md 3.4, cases 150 to 156)."""

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


def older_ask(key: str, number: int = 1, application_id: str = "app") -> si.AllocationRequest:
    ask = si.AllocationAsk(
        allocationKey=key, applicationID=application_id, resourceAsk=resource(vcore=1_000), maxAllocations=number
    )
    return si.AllocationRequest(rmID="rm-1", asks=[ask])


async def prepare(core: Core, node: si.NodeInfo) -> None:
    """Application "app", then *node*."""
    async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
        await applications.send(application_request("app"))
        await applications.receive()
    async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(node))
        assert (await nodes.receive()).accepted


def ids(entries: list[Any]) -> list[tuple[str, str, str]]:
    return [(entry.allocationKey, entry.allocationID, entry.UUID) for entry in entries]


@pytest.mark.parametrize("field", ["allocationID", "UUID"])
async def test_each_of_several_allocations_has_an_id_of_its_own(reg: Core, field: str) -> None:
    """`new` and `released` name each by `<key>-<n>` in the field of either release, and so may the shim."""
    await prepare(reg, create("n1"))
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        await allocations.send(older_ask("k", 3))
        assert ids(await allocations.entries(3)) == [("k", f"k-{n}", f"k-{n}") for n in range(3)]
        one = si.AllocationRelease(applicationID="app", terminationType=si.STOPPED_BY_RM, **{field: "k-1"})
        await allocations.send(release_request(one))
        assert ids(await allocations.entries(1)) == [("k", "k-1", "k-1")]
        rest = si.AllocationRelease(applicationID="app", allocationKey="k", terminationType=si.STOPPED_BY_RM)
        await allocations.send(release_request(rest))
        assert ids(await allocations.entries(2)) == [("k", "k-0", "k-0"), ("k", "k-2", "k-2")]


async def test_case_151_152_refusals_come_in_the_older_list(reg: Core) -> None:
    """151, 152: an ask for nothing, for too many, or of nobody is refused once, in `rejected`."""
    await prepare(reg, create("n1"))
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        for request, token in (
            (older_ask("k", 0), "max-allocations"),
            (older_ask("k", 10_001), "max-allocations"),
            (older_ask("k", 2, "nobody"), "application-not-found"),
        ):
            await allocations.send(request)
            response = await allocations.receive()
            assert [entry.reason.partition(":")[0] for entry in response.rejected] == [token]
            assert not response.rejectedAllocations


async def test_running_allocations_keep_their_id_through_a_restart(reg: Core) -> None:
    """Allocations reported with a node, or on their own, are confirmed by the ID they came with."""
    node = create("n1")
    for current, older in (("k-4", ""), ("", "k-2"), ("", "")):
        node.existingAllocations.add(
            allocationKey="k",
            applicationID="app",
            resourcePerAlloc=resource(vcore=1),
            allocationID=current,
            UUID=older,
        )
    await prepare(reg, node)
    async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
        late = si.Allocation(
            allocationKey="k", applicationID="app", resourcePerAlloc=resource(vcore=1), nodeID="n1", allocationID="k-3"
        )
        await allocations.send(allocation_request(late))
        assert [given for _, given, _ in ids(await allocations.entries(4))] == ["k-4", "k-2", "k-0", "k-3"]
