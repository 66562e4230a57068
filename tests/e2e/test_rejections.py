"""Every way in which the core turns an entry away, over a real connection: list, ID and token (protocol.md 6 to 9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kornel.core.domain import reasons
from kornel.core.domain.application_states import AppEvent
from kornel.core.domain.names import LONGEST_NAME, LONGEST_TAGS
from kornel.core.domain.reasons import Rejection
from kornel.core.engine import lifecycle
from kornel.core.engine.engine import Engine
from kornel.core.service.wire.scheduler_wire import REQUIRED_NODE_TAG
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import status_pb2, status_pb2_grpc
from tests.e2e.harness import (
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    resource,
    running_core,
)

PARTITION = "[rm-1]default"
LONG = "x" * (LONGEST_NAME + 1)
MUCH = "x" * LONGEST_TAGS
CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
          - name: fair
            properties: {application.sort.policy: fair}
          - name: small
            resources: {max: {vcore: 1}}
"""

UNREACHABLE = {
    Rejection.PARTITION_NOT_ACTIVE: "no message stops a partition",
    Rejection.QUEUE_NOT_LEAF: "a rule that names a parent queue counts as no match",
}
"""Tokens of the contract that no request can bring about, and why."""


def application(application_id: str = "new", **fields: Any) -> si.ApplicationRequest:
    queue = fields.pop("queueName", "root.a")
    request = application_request(application_id, queue=queue)
    request.new[0].MergeFrom(si.AddApplicationRequest(**fields))
    return request


def older_ask(number: int) -> si.AllocationRequest:
    entry = si.AllocationAsk(
        allocationKey="new", applicationID="app", resourceAsk=resource(vcore=1), maxAllocations=number
    )
    return si.AllocationRequest(rmID="rm-1", asks=[entry])


def entry(key: str = "new", application_id: str = "app", **fields: Any) -> si.AllocationRequest:
    allocation = ask(key, application_id)
    allocation.MergeFrom(si.Allocation(**fields))
    return allocation_request(allocation)


def negative_node() -> si.NodeRequest:
    return node_request(create("new", vcore=-1))


def too_many_types() -> si.NodeRequest:
    node = create("new")
    for number in range(2_000):
        node.schedulableResource.resources[f"type{number}"].value = 1
    return node_request(node)


def with_attributes(attributes: dict[str, str]) -> si.NodeRequest:
    node = create("new")
    node.attributes.update(attributes)
    return node_request(node)


def badly_named(user: str) -> si.ApplicationRequest:
    request = application()
    request.new[0].ugi.user = user
    return request


def without(amounts: si.Resource | None) -> si.AllocationRequest:
    request = entry()
    request.allocations[0].ClearField("resourcePerAlloc")
    if amounts is not None:
        request.allocations[0].resourcePerAlloc.CopyFrom(amounts)
    return request


CASES: list[tuple[Rejection, str, Callable[[], Any]]] = [
    (Rejection.PARTITION_NOT_FOUND, "new", lambda: node_request(create("new", "gpu"))),
    (Rejection.PARTITION_NOT_FOUND, "new", lambda: application(partitionName="gpu")),
    (Rejection.PARTITION_NOT_FOUND, "new", lambda: entry(partitionName="[rm-2]default")),
    (Rejection.INVALID_ID, "", lambda: node_request(create(""))),
    (Rejection.INVALID_ID, "", lambda: application("")),
    (Rejection.INVALID_KEY, "", lambda: entry("")),
    (Rejection.INVALID_KEY, "k\uffff1", lambda: entry("k\uffff1")),
    (Rejection.NAME_TOO_LONG, LONG, lambda: node_request(create(LONG))),
    (Rejection.NAME_TOO_LONG, "new", lambda: with_attributes({LONG: ""})),
    (Rejection.NAME_TOO_LONG, "new", lambda: with_attributes({"a": MUCH})),
    (Rejection.NAME_TOO_LONG, LONG, lambda: application(LONG)),
    (Rejection.NAME_TOO_LONG, "new", lambda: application(queueName="root." + LONG * 5)),
    (Rejection.NAME_TOO_LONG, "new", lambda: application(gangSchedulingStyle=LONG)),
    (Rejection.NAME_TOO_LONG, "new", lambda: application(tags={"a": MUCH})),
    (Rejection.NAME_TOO_LONG, "new", lambda: application(tags={LONG: "a"})),
    (Rejection.NAME_TOO_LONG, "new", lambda: badly_named("u" * 257)),
    (Rejection.NAME_TOO_LONG, "new", lambda: application(ugi=si.UserGroupInformation(groups=[LONG]))),
    (Rejection.NAME_TOO_LONG, "new", lambda: application(ugi=si.UserGroupInformation(groups=["g" * 1_000] * 132))),
    (Rejection.NAME_TOO_LONG, LONG, lambda: entry(LONG)),
    (Rejection.NAME_TOO_LONG, "new", lambda: entry(taskGroupName=LONG)),
    (Rejection.NAME_TOO_LONG, "new", lambda: entry(allocationTags={"a": MUCH})),
    (Rejection.NAME_TOO_LONG, "new", lambda: entry(allocationTags={LONG: "a"})),
    (Rejection.NAME_TOO_LONG, "new", lambda: entry(allocationTags={REQUIRED_NODE_TAG: LONG})),
    (Rejection.NAME_TOO_LONG, LONG, lambda: entry(LONG, nodeID="n1", allocationTags={"foreign": "default"})),
    (Rejection.APPLICATION_NOT_FOUND, "new", lambda: entry("new", LONG)),
    (Rejection.NODE_NOT_FOUND, "new", lambda: entry(nodeID=LONG)),
    (Rejection.PARTITION_NOT_FOUND, "new", lambda: entry(partitionName=LONG)),
    (Rejection.INVALID_RESOURCE, "new", lambda: without(resource(**{LONG: 1}))),
    (Rejection.INVALID_RESOURCE, "new", lambda: node_request(create("new", **{LONG: 1}))),
    (Rejection.INVALID_RESOURCE, "new", negative_node),
    (Rejection.INVALID_TOPOLOGY, "new", lambda: entry(allocationTags={"kornel.topology.required": "rack"})),
    (Rejection.INVALID_DEVICES, "new", lambda: entry(allocationTags={"kornel.gpu.count": "-1"})),
    (Rejection.INVALID_RESOURCE, "new", too_many_types),
    (Rejection.INVALID_RESOURCE, "new", lambda: application(placeholderAsk=resource(vcore=-1))),
    (Rejection.USER_INVALID, "new", lambda: badly_named("")),
    (Rejection.USER_INVALID, "new", lambda: badly_named("bad user!")),
    (Rejection.APPLICATION_EXISTS, "app", lambda: application("app")),
    (Rejection.NO_QUEUE, "new", lambda: application(queueName="root.missing")),
    (Rejection.NO_QUEUE, "new", lambda: application(queueName="root")),
    (Rejection.NO_QUEUE, "new", lambda: application(queueName="root.@recovery@")),
    (Rejection.GANG_NEEDS_FIFO, "new", lambda: application(queueName="root.fair", placeholderAsk=resource(vcore=1))),
    (
        Rejection.GANG_TOO_LARGE,
        "new",
        lambda: application(queueName="root.small", placeholderAsk=resource(vcore=1_001)),
    ),
    (Rejection.NODE_EXISTS, "n1", lambda: node_request(create("n1"))),
    (Rejection.NODE_NOT_FOUND, "new", lambda: entry(nodeID="n9")),
    (Rejection.NODE_NOT_FOUND, "new", lambda: entry(nodeID="n9", allocationTags={"foreign": "default"})),
    (Rejection.APPLICATION_NOT_FOUND, "new", lambda: entry("new", "nobody")),
    (Rejection.APPLICATION_NOT_FOUND, "new", lambda: entry("new", "")),
    (Rejection.APPLICATION_STATE, "new", lambda: entry("new", "failing")),
    (Rejection.NO_RESOURCES, "new", lambda: without(None)),
    (Rejection.NO_RESOURCES, "new", lambda: without(resource(vcore=0, memory=0))),
    (Rejection.NEGATIVE_RESOURCES, "new", lambda: without(resource(vcore=1, memory=-1))),
    (Rejection.NEGATIVE_RESOURCES, "new", lambda: without(resource(vcore=-(2**63)))),
    (Rejection.KEY_IN_USE, "k", lambda: entry("k", "failing")),
    (Rejection.UNCHANGEABLE, "k", lambda: entry("k", placeholder=True, taskGroupName="g")),
    (Rejection.PLACEHOLDER_WITHOUT_GROUP, "new", lambda: entry(placeholder=True)),
    (Rejection.FOREIGN_WITHOUT_NODE, "new", lambda: entry(allocationTags={"foreign": "static"})),
    (Rejection.MAX_ALLOCATIONS, "new", lambda: older_ask(0)),
    (Rejection.MAX_ALLOCATIONS, "new", lambda: older_ask(-(2**31))),
    (Rejection.MAX_ALLOCATIONS, "new", lambda: older_ask(2**31 - 1)),
]


@asynccontextmanager
async def world() -> AsyncIterator[tuple[Core, dict[type[Any], Conversation]]]:
    """n1 with allocation k of application "app", an application that fails, and the stream for each request type."""
    engine = Engine()
    async with running_core(engine) as served, AsyncExitStack() as stack:
        await served.register(config=CONFIG)
        stub = served.scheduler
        calls = {
            si.NodeRequest: stub.UpdateNode(),
            si.ApplicationRequest: stub.UpdateApplication(),
            si.AllocationRequest: stub.UpdateAllocation(),
        }
        streams = {kind: await stack.enter_async_context(Conversation.open(call)) for kind, call in calls.items()}
        await streams[si.NodeRequest].send(node_request(create("n1")))
        await streams[si.NodeRequest].receive()
        await streams[si.ApplicationRequest].send(application_request("app", "failing"))
        await streams[si.ApplicationRequest].entries(2)
        await streams[si.AllocationRequest].send(allocation_request(ask("k")))
        await streams[si.AllocationRequest].receive()
        await streams[si.ApplicationRequest].entries(2)
        state = engine.partition(PARTITION)
        assert state is not None
        lifecycle.fire_event(state, state.applications["failing"], AppEvent.FAIL, served.clock.now_ns())
        await served.settle()
        yield served, streams


ID_FIELDS: dict[type[Any], str] = {
    si.NodeResponse: "nodeID",
    si.ApplicationResponse: "applicationID",
    si.AllocationResponse: "allocationKey",
}


def rejections(response: Any) -> list[tuple[str, str]]:
    """ID and token of everything that *response* says, which must be refusals only."""
    found: list[tuple[str, str]] = []
    for field, entries in response.ListFields():
        assert field.name in ("rejected", "rejectedAllocations"), response
        for refused in entries:
            token, _, text = refused.reason.partition(": ")
            assert text, f"{refused.reason!r} explains nothing"
            assert len(refused.reason) < 500, "a reason repeats no name that is too long"
            found.append((getattr(refused, ID_FIELDS[type(response)]), token))
    return found


async def test_every_rejection_names_its_entry_and_its_token() -> None:
    """Each bad entry is refused with its own token, and none leaves a trace; the same streams take good ones after."""
    async with world() as (served, streams):
        await streams[si.ApplicationRequest].send(application_request("probe"))
        while not (await streams[si.ApplicationRequest].receive()).accepted:
            pass  # The state change of the failing application may come first.
        for token, name, build in CASES:
            request = build()
            await streams[type(request)].send(request)
            assert rejections(await streams[type(request)].receive()) == [(name, token.value)], request
        status = await status_pb2_grpc.StatusServiceStub(served.channel).GetStatus(
            status_pb2.GetStatusRequest(audit=True)
        )
        (partition,) = status.partitions
        assert (partition.node_count, partition.allocation_count, partition.pending_ask_count) == (1, 1, 0)
        assert partition.invariant_violations == 0
        await streams[si.AllocationRequest].send(allocation_request(ask("good")))
        assert (await streams[si.AllocationRequest].receive()).new[0].allocationKey == "good"


def test_every_token_has_a_case() -> None:
    """The table covers the enum, but for the tokens that no request can bring about."""
    assert {token for token, _, _ in CASES} | set(UNREACHABLE) == set(Rejection)
    assert not {token for token, _, _ in CASES} & set(UNREACHABLE)


@pytest.mark.parametrize("token", UNREACHABLE)
def test_a_token_without_a_case_is_used_nowhere(token: Rejection) -> None:
    """As soon as the core refuses something for this reason, the table needs a case of it."""
    package = Path(reasons.__file__).parents[1]
    users = [path for path in package.rglob("*.py") if f"Rejection.{token.name}" in path.read_text(encoding="utf-8")]
    assert users == []
