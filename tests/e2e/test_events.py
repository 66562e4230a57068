"""The event history from the real engine to a shim that listens (protocol.md 13, 14)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb
from kornel.v1 import callback_pb2_grpc, configuration_pb2, configuration_pb2_grpc
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    ask,
    create,
    node_request,
    resource,
    working_streams,
)

Record = si.EventRecord


@asynccontextmanager
async def listening(core: Core) -> AsyncIterator[Conversation]:
    """A stream of somebody who wants events and nothing else."""
    stub = callback_pb2_grpc.CallbackServiceStub(core.channel)
    async with Conversation.open(stub.Attach()) as stream:
        await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", events=True)))
        assert (await stream.receive()).HasField("attached")
        yield stream


async def place(core: Core) -> None:
    """A node, an application, and an ask that is placed."""
    async with working_streams(core) as (_, _, allocations):
        await allocations.send(allocation_request(ask("k")))
        await allocations.receive()


async def configure(core: Core, config: str = CONFIG, **extra: str) -> None:
    stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
    settings = {f"event.{name}": value for name, value in extra.items()}
    await stub.UpdateConfiguration(
        configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=config, extra_config=settings)
    )


def told(records: list[Record]) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            Record.Type.Name(record.type),
            record.objectID,
            Record.ChangeType.Name(record.eventChangeType),
            Record.ChangeDetail.Name(record.eventChangeDetail),
            record.referenceID,
        )
        for record in records
    ]


async def test_what_happened_arrives_in_order_with_time_and_amounts(reg: Core) -> None:
    """14: an ask from its application to its node, as one list."""
    async with listening(reg) as stream:
        await place(reg)
        happened_ns = reg.clock.now_ns()
        reg.clock.advance(2 * SECOND_NS)
        records = list((await stream.receive()).events)
    assert told(records) == [
        ("NODE", "n1", "SET", "NODE_SCHEDULABLE", ""),
        ("NODE", "n1", "ADD", "DETAILS_NONE", ""),
        ("QUEUE", "root", "SET", "QUEUE_MAX", ""),
        ("APP", "app", "ADD", "APP_NEW", ""),
        ("QUEUE", "root.a", "ADD", "QUEUE_APP", "app"),
        ("APP", "app", "SET", "APP_ACCEPTED", ""),
        ("APP", "app", "ADD", "APP_REQUEST", "k"),
        ("NODE", "n1", "ADD", "NODE_ALLOC", "k"),
        ("APP", "app", "SET", "APP_RUNNING", ""),
        ("USERGROUP", "ann", "ADD", "UG_USER_RESOURCE", "root.a"),
        ("APP", "app", "ADD", "APP_ALLOC", "k"),
    ]
    assert {record.timestampNano for record in records} == {happened_ns}
    assert records[-1].resource == resource(vcore=1_000)
    assert records[0].message == "schedulable: true"


async def test_tracking_switched_off_and_on_again(reg: Core) -> None:
    """13: `event.trackingEnabled` holds at once, in both directions."""
    engine = reg.server.managers.first.runner._engine
    async with listening(reg) as stream:
        await configure(reg, trackingEnabled="false")
        await place(reg)
        state = engine.partition("[rm-1]default")  # type: ignore[attr-defined]
        assert not state.recording
        await configure(reg, trackingEnabled="true")
        async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(create("n2")))
            await nodes.receive()
        reg.clock.advance(2 * SECOND_NS)
        records = list((await stream.receive()).events)
    assert [record.objectID for record in records] == ["n2", "n2", "root"]


async def test_a_new_registration_tells_of_its_queues(reg: Core) -> None:
    """5.2: the history goes on; what was dropped is not told one by one."""
    async with listening(reg) as stream:
        await reg.register()
        reg.clock.advance(2 * SECOND_NS)
        records = list((await stream.receive()).events)
    assert told(records) == [
        ("QUEUE", "root", "ADD", "DETAILS_NONE", ""),
        ("QUEUE", "root.a", "ADD", "DETAILS_NONE", ""),
    ]
