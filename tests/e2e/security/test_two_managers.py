"""Two managers of one core, each with a certificate or token of its own: neither reaches anything of the other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection_pb2  # noqa: F401 - its requests are found by the name of the method

from kornel.core.security.methods import METHODS
from kornel.core.security.static_tokens import digest_of, new_token
from kornel.shim_client.call_status import StatusKeeper
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from kornel.v1 import callback_pb2, status_pb2
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    release_request,
)
from tests.e2e.security.site import Authority, Pair, Site, bearer, secured
from tests.patience import PATIENCE_S

THEIRS: Final = "[rm-1]default"
POLICY: Final = """
{tokens}
rules:
  - who: ["cn:shim-1", "token:shim-1"]
    managers: [rm-1]
    permissions: [configure]
  - who: ["cn:shim-2", "token:shim-2"]
    managers: [rm-2]
    permissions: [configure]
  - who: ["cn:ops", "token:ops"]
    permissions: [read, administer]
"""
WHO: Final = ("shim-1", "shim-2", "ops")

Connect = Callable[[str], "AbstractAsyncContextManager[grpc.aio.Channel]"]


@pytest.fixture(params=["certificates", "tokens"])
async def connect(
    request: pytest.FixtureRequest, tmp_path: Path, ca: Authority, server_pair: Pair
) -> AsyncIterator[Connect]:
    """Connects to a core as somebody, by what they can prove."""
    if request.param == "certificates":
        policy = POLICY.format(tokens="")
        pairs = {name: ca.issue(name) for name in WHO}
        async with secured(tmp_path, ca=ca.file, server=server_pair, client_ca=ca.file, policy=policy) as site:
            yield lambda name: site.channel(pairs[name])
        return
    tokens = {name: new_token() for name in WHO}
    lines = [f"  - name: {name}\n    sha256: {digest_of(token)}\n" for name, token in tokens.items()]
    (tmp_path / "tokens.yaml").write_text("tokens:\n" + "".join(lines))
    policy = POLICY.format(tokens="tokens: tokens.yaml")
    async with secured(tmp_path, ca=ca.file, server=server_pair, policy=policy) as site:
        yield lambda name: _with_token(site, tokens[name])


@asynccontextmanager
async def _with_token(site: Site, token: str) -> AsyncIterator[grpc.aio.Channel]:
    """A connection each call of which shows *token*."""
    async with site.channel() as plain:
        yield _Showing(plain, bearer(token))


class _Showing:
    """A channel whose calls show a token. Stubs need no more of a channel than this."""

    def __init__(self, channel: grpc.aio.Channel, metadata: list[tuple[str, str]]) -> None:
        self._channel = channel
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        make = getattr(self._channel, name)

        def multicallable(*arguments: Any, **options: Any) -> Any:
            call = make(*arguments, **options)
            return lambda *given, **named: call(*given, metadata=self._metadata, **named)

        return multicallable


def naming_the_other(message: Message) -> Message:
    """Fills every field of *message* that says whose or which partition something is, as if it were rm-1's."""
    values = {"rm_id": "rm-1", "rmID": "rm-1", "partition": THEIRS, "node_id": "n1", "allocation_key": "k", "name": "k"}
    for field in message.DESCRIPTOR.fields:
        if field.name in values and field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, values[field.name])
    if isinstance(message, callback_pb2.AttachRequest):
        message.subscription.rm_id = "rm-1"
    return message


def requests_by_method() -> Iterator[tuple[str, Message]]:
    """Yields a request for each method of the core that is not for everybody. The clock of tests is not served here."""
    pool = descriptor_pool.Default()
    for method, demand in METHODS.items():
        if not demand.public and "TestClock" not in method:
            _, service, name = method.split("/")
            described = pool.FindServiceByName(service).methods_by_name[name]
            yield method, naming_the_other(message_factory.GetMessageClass(described.input_type)())


async def end_of(channel: grpc.aio.Channel, method: str, request: Message) -> grpc.StatusCode:
    """Returns how a call ends of which *request* is the only one, whatever its kind: on the wire all are streams."""
    call: Any = channel.stream_stream(method)()
    status = StatusKeeper(call)
    with suppress(grpc.aio.AioRpcError):  # It may have been refused before its request was read.
        await asyncio.wait_for(call.write(request.SerializeToString()), PATIENCE_S)
        await call.done_writing()
    return (await asyncio.wait_for(status.wait_for_status(), PATIENCE_S)).code


async def register(channel: grpc.aio.Channel, rm_id: str) -> None:
    request = si.RegisterResourceManagerRequest(rmID=rm_id, config=CONFIG)
    await SchedulerStub(channel).RegisterResourceManager(request, timeout=PATIENCE_S)


async def test_every_call_about_the_other_is_refused(connect: Connect) -> None:
    """Whatever there is to call: with the identity of one manager nothing is to be had of the other."""
    async with connect("shim-1") as one, connect("shim-2") as two:
        await register(one, "rm-1")
        await register(two, "rm-2")
        ends = {method: await end_of(two, method, request) for method, request in requests_by_method()}
        assert len(ends) > 30
        assert {method: end for method, end in ends.items() if end is not grpc.StatusCode.PERMISSION_DENIED} == {}


async def test_the_others_partition_is_none_on_ones_own_streams(connect: Connect) -> None:
    """Named in full on streams that are its own, it does not exist, and nothing changes there."""
    async with connect("shim-1") as one, connect("shim-2") as two, connect("ops") as ops:
        await register(one, "rm-1")
        await register(two, "rm-2")
        async with (
            Conversation.open(SchedulerStub(one).UpdateNode()) as nodes,
            Conversation.open(SchedulerStub(one).UpdateApplication()) as applications,
            Conversation.open(SchedulerStub(one).UpdateAllocation()) as allocations,
        ):
            await nodes.send(node_request(create("n1")))
            await nodes.receive()
            await applications.send(application_request("app"))
            await applications.receive()
            await allocations.send(allocation_request(ask("k")))
            assert (await allocations.entries(1))[0].allocationKey == "k"
        async with (
            Conversation.open(SchedulerStub(two).UpdateNode()) as nodes,
            Conversation.open(SchedulerStub(two).UpdateApplication()) as applications,
            Conversation.open(SchedulerStub(two).UpdateAllocation()) as allocations,
        ):
            await nodes.send(node_request(create("spy", THEIRS), rm_id="rm-2"))
            assert "no partition" in (await nodes.receive()).rejected[0].reason
            drain = si.NodeInfo(nodeID="n1", action=si.NodeInfo.DECOMISSION, attributes={"si/node-partition": THEIRS})
            await nodes.send(node_request(drain, create("own"), rm_id="rm-2"))
            assert [accepted.nodeID for accepted in (await nodes.receive()).accepted] == ["own"]
            await applications.send(application_request("spy", partition=THEIRS, rm_id="rm-2"))
            assert "no partition" in (await applications.receive()).rejected[0].reason
            await allocations.send(allocation_request(ask("x", partition=THEIRS), rm_id="rm-2"))
            assert "no partition" in (await allocations.entries(1))[0].reason
            stop = si.AllocationRelease(partitionName=THEIRS, applicationID="app", allocationKey="k")
            await allocations.send(release_request(stop, rm_id="rm-2"), allocation_request(ask("y"), rm_id="rm-2"))
            # The answer to what came last: what came before has been read.
            assert "application-not-found" in (await allocations.entries(1))[0].reason
        request = status_pb2.GetStatusRequest(rm_id="rm-1", audit=True)
        (theirs,) = (await StatusServiceStub(ops).GetStatus(request, timeout=PATIENCE_S)).partitions
        assert (theirs.node_count, theirs.allocation_count, theirs.pending_ask_count) == (1, 1, 0)
        assert theirs.invariant_violations == 0
