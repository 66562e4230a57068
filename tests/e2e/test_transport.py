"""The service over a real connection: binding of streams, bad clients, and the contract cases that are about them.

Every test ends with the check of :func:`tests.e2e.harness.running_core` that no stream and no task is left over.
Case numbers: protocol.md 17.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from kornel.core.process.grpc_transport import CONCURRENT_CALLS
from kornel.core.service.calls import rpc
from kornel.core.service.services import scheduler_service
from kornel.core.service.streams.streams import HIGH_WATER
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2, configuration_pb2_grpc, status_pb2, status_pb2_grpc
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    keys,
    node_request,
    running_core,
)
from tests.patience import PATIENCE_S
from tests.unit.service.fakes import FakeEngine
from tests.waiting import until

Code = grpc.StatusCode
STREAMS = ["UpdateAllocation", "UpdateApplication", "UpdateNode"]
REQUESTS: dict[str, type[Any]] = {
    "UpdateAllocation": si.AllocationRequest,
    "UpdateApplication": si.ApplicationRequest,
    "UpdateNode": si.NodeRequest,
}


@asynccontextmanager
async def three_streams(core: Core) -> AsyncIterator[tuple[Conversation, Conversation, Conversation]]:
    """Node, application and allocation stream, each bound to rm-1."""
    stub = core.scheduler
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(Conversation.open(stub.UpdateNode()))
        applications = await stack.enter_async_context(Conversation.open(stub.UpdateApplication()))
        allocations = await stack.enter_async_context(Conversation.open(stub.UpdateAllocation()))
        await nodes.send(si.NodeRequest(rmID="rm-1"))
        await applications.send(si.ApplicationRequest(rmID="rm-1"))
        await allocations.send(si.AllocationRequest(rmID="rm-1"))
        yield nodes, applications, allocations


async def with_application(nodes: Conversation, applications: Conversation, node: str = "n1") -> None:
    """n1 and app of the contract cases."""
    await nodes.send(node_request(create(node)))
    await nodes.entries(1)
    await applications.send(application_request("app"))
    assert (await applications.receive()).accepted[0].applicationID == "app"


async def status_of(core: Core, partition: str = "") -> status_pb2.GetStatusResponse:
    stub = status_pb2_grpc.StatusServiceStub(core.channel)
    return await stub.GetStatus(status_pb2.GetStatusRequest(partition=partition), timeout=PATIENCE_S)


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    """Status of a unary call that has to fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(call, PATIENCE_S)
    return caught.value.code(), caught.value.details() or ""


class TestBinding:
    """protocol.md 1.1 beyond the numbered cases."""

    @pytest.mark.parametrize("method", STREAMS)
    async def test_a_stream_without_messages_ends_well(self, core: Core, method: str) -> None:
        """A stream that is closed before it was bound ends OK, registered or not."""
        async with Conversation.open(getattr(core.scheduler, method)()) as stream:
            await stream.half_close()
            assert (await stream.end())[0] is Code.OK

    async def test_a_reopened_stream_goes_on_where_the_old_one_broke(self, reg: Core) -> None:
        """A broken stream costs no state: what was decided meanwhile comes on the next one."""
        async with three_streams(reg) as (nodes, applications, allocations):
            await with_application(nodes, applications)
            await allocations.send(allocation_request(ask("k1")))
            await allocations.entries(1)
            allocations.call.cancel()
            await until(lambda: reg.metrics.live_streams == 2, "the allocation stream to close")
            await nodes.send(node_request(si.NodeInfo(nodeID="n1", action=si.NodeInfo.DECOMISSION)))
            await until(lambda: reg.metrics.queued_entries == 1, "the release to be queued")
            async with Conversation.open(reg.scheduler.UpdateAllocation()) as again:
                await again.send(si.AllocationRequest(rmID="rm-1"))
                assert keys((await again.receive()).released) == ["k1"]


class TestBadClients:
    """Whatever one client does, the others are served."""

    @pytest.mark.parametrize(
        "method",
        [
            "/si.v1.Scheduler/RegisterResourceManager",
            "/kornel.v1.ConfigurationService/UpdateConfiguration",
            "/kornel.v1.ConfigurationService/ValidateConfiguration",
            "/kornel.v1.StatusService/GetStatus",
        ],
    )
    async def test_garbage_in_a_call(self, reg: Core, method: str) -> None:
        """Bytes that are no message are INVALID_ARGUMENT."""
        call: Any = reg.channel.unary_unary(method)
        assert (await refused(call(b"\xff\xff\xff\xff")))[0] is Code.INVALID_ARGUMENT
        await reg.serves()

    async def test_vanishing_with_a_whole_connection(self, reg: Core) -> None:
        """A client whose connection goes away in the middle of everything leaves nothing behind."""
        async with grpc.aio.insecure_channel(reg.address) as channel:
            other = Core(reg.server, reg.clock, reg.metrics, channel, reg.address)
            nodes = other.scheduler.UpdateNode()
            await nodes.write(node_request(*(create(f"n{n}") for n in range(5_000))))
            await nodes.read()
        await until(lambda: reg.metrics.live_streams == 0, "the streams to close")
        await reg.serves()

    async def test_a_client_that_never_reads_is_slowed_down(self) -> None:
        """Requests whose answers nobody reads stop being read: memory stays bounded, others are served (DB-13)."""
        async with running_core(FakeEngine()) as core:
            await core.register()
            request = node_request(*(create(f"node-{n:04}-{'x' * 200}") for n in range(2_000)))

            async def flood() -> None:
                for _ in range(1_000):
                    await flooding.call.write(request)

            async with Conversation.open(core.scheduler.UpdateNode()) as flooding:
                # How many messages the network itself holds is its own business; that the flood stops is ours.
                flood_task = asyncio.create_task(flood())

                async def is_held_up() -> bool:
                    before = core.metrics.messages_received
                    await core.settle()
                    return core.metrics.messages_received == before > 1

                await until(is_held_up, "the core to read no more")
                assert not flood_task.done()
                assert core.metrics.queued_entries < HIGH_WATER + 2 * 2_000
                async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
                    await applications.send(application_request("app"))
                    assert (await applications.receive()).accepted[0].applicationID == "app"
                flood_task.cancel()
                await asyncio.gather(flood_task, return_exceptions=True)

    async def test_calls_that_have_ended_do_not_count_while_the_core_is_busy(
        self, core: Core, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A client that never has more calls open than it may is not refused one.

        All calls of a first round end at once, and the core is held up before it can free them.
        """
        count = CONCURRENT_CALLS * 2 // 3
        arrived, told, second_round = asyncio.Event(), itertools.count(1), threading.Event()
        end = rpc.end_call

        async def end_together(*arguments: Any) -> None:
            if next(told) == count:
                arrived.set()
                asyncio.get_running_loop().call_soon(
                    asyncio.get_running_loop().call_soon, second_round.wait, PATIENCE_S
                )
            await arrived.wait()
            await end(*arguments)

        def call_twice() -> set[grpc.StatusCode]:
            with grpc.insecure_channel(core.address) as channel:
                method: Any = channel.stream_stream("/si.v1.Scheduler/UpdateNode")
                for call in [method(iter([b"\xff"])) for _ in range(count)]:
                    call.code()
                calls = [method(iter([b"\xff"])) for _ in range(count)]
                # gRPC refuses at once what it refuses.
                time.sleep(0.2)
                second_round.set()
                return {call.code() for call in calls}

        monkeypatch.setattr(scheduler_service, "end_call", end_together)
        assert await asyncio.to_thread(call_twice) == {Code.INVALID_ARGUMENT}

    async def test_a_flood_of_small_messages_loses_nothing(self, reg: Core) -> None:
        """Messages sent as fast as they go are all answered, in order."""
        count = 1_000
        async with Conversation.open(reg.scheduler.UpdateNode()) as stream:

            async def send() -> None:
                for n in range(count):
                    await stream.send(node_request(create(f"n{n}")))

            sending = asyncio.create_task(send())
            names = [entry.nodeID for entry in await stream.entries(count)]
            await sending
        assert names == [f"n{n}" for n in range(count)]


class TestOtherServices:
    """kornel.v1, health and reflection."""

    async def test_status_before_registration_is_empty(self, core: Core) -> None:
        """Asking an unused core is no error."""
        status = await status_of(core)
        assert (status.rm_id, list(status.partitions), status.core_version) == ("", [], "test")

    async def test_status_shows_partitions_and_queues(self, reg: Core) -> None:
        """Partitions are found by full and by bare name, with or without queues; unknown ones are NOT_FOUND."""
        status = await status_of(reg, "default")
        assert [queue.path for queue in status.partitions[0].queues] == ["root", "root.a"]
        assert status == await status_of(reg, "[rm-1]default") == await status_of(reg)
        stub = status_pb2_grpc.StatusServiceStub(reg.channel)
        short = await stub.GetStatus(status_pb2.GetStatusRequest(omit_queues=True))
        assert not short.partitions[0].queues
        code, _ = await refused(stub.GetStatus(status_pb2.GetStatusRequest(partition="gpu")))
        assert code is Code.NOT_FOUND

    async def test_status_saturates_sums_beyond_64_bits(self, reg: Core) -> None:
        """Two nodes of the largest quantity add up to the largest quantity, not to an error (scheduling.md 2.2)."""
        largest = 2**63 - 1
        async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(create("n1", vcore=largest), create("n2", vcore=largest)))
            await nodes.receive()
        status = await status_of(reg)
        assert status.partitions[0].total["vcore"] == largest
        assert status.partitions[0].queues[0].max["vcore"] == largest

    async def test_configuration_update_refused(self, reg: Core) -> None:
        """A bad text is INVALID_ARGUMENT with its problems in the trailing metadata, and changes nothing (case 17)."""
        stub = configuration_pb2_grpc.ConfigurationServiceStub(reg.channel)
        before = (await status_of(reg)).configuration_checksum
        call = stub.UpdateConfiguration(
            configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config="partitions:\n  - nmae: x\n")
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is Code.INVALID_ARGUMENT
        raw = dict(caught.value.trailing_metadata())["kornel-problems-bin"]
        assert isinstance(raw, bytes)
        problems = configuration_pb2.ConfigurationProblems.FromString(raw).problems
        assert any(problem.line == 2 for problem in problems)
        assert (await status_of(reg)).configuration_checksum == before

    async def test_validation_answers_ok_for_a_bad_text_too(self, core: Core) -> None:
        """Validation needs no registration, changes nothing and says what is wrong."""
        stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
        good = await stub.ValidateConfiguration(configuration_pb2.ValidateConfigurationRequest(config=CONFIG))
        bad = await stub.ValidateConfiguration(configuration_pb2.ValidateConfigurationRequest(config="- x"))
        assert good.valid
        assert len(good.checksum) == 64
        assert not bad.valid
        assert bad.problems[0].severity == configuration_pb2.ConfigurationProblem.SEVERITY_ERROR

    @pytest.mark.parametrize(
        "service",
        [
            "",
            "si.v1.Scheduler",
            "kornel.v1.CallbackService",
            "kornel.v1.ConfigurationService",
            "kornel.v1.StatusService",
        ],
    )
    async def test_health(self, core: Core, service: str) -> None:
        """Each service reports its health, and so does the core as a whole."""
        check = HealthStub(core.channel).Check  # type: ignore[attr-defined]
        answer = await check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    async def test_health_of_an_unknown_service(self, core: Core) -> None:
        """A service that does not exist is NOT_FOUND."""
        check = HealthStub(core.channel).Check  # type: ignore[attr-defined]
        assert (await refused(check(health_pb2.HealthCheckRequest(service="x"))))[0] is Code.NOT_FOUND

    async def test_reflection(self, core: Core) -> None:
        """Reflection lists the services and hands out descriptors that a client can work with."""

        def ask_reflection() -> tuple[set[str], str]:
            with grpc.insecure_channel(core.address) as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                pool = DescriptorPool(database)
                method = pool.FindServiceByName("si.v1.Scheduler").FindMethodByName("UpdateAllocation")
                return set(database.get_services()), method.input_type.full_name

        services, input_type = await asyncio.to_thread(ask_reflection)
        assert services >= {
            "si.v1.Scheduler",
            "kornel.v1.CallbackService",
            "kornel.v1.ConfigurationService",
            "kornel.v1.StatusService",
            "grpc.health.v1.Health",
        }
        assert input_type == "si.v1.AllocationRequest"


async def end_late(*call: Any) -> None:
    """Ends a call only after a while, as on a busy machine."""
    for _ in range(50):
        await asyncio.sleep(0.001)
    await rpc.end_call(*call)


class TestShutdown:
    """Going down in order."""

    async def test_streams_are_answered_and_told_to_come_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was sent before the shutdown is answered; then every stream ends UNAVAILABLE, health watches too."""
        monkeypatch.setattr(scheduler_service, "end_call", end_late)
        async with running_core(FakeEngine(), grace_s=PATIENCE_S) as core:
            await core.register()
            watch = HealthStub(core.channel).Watch(health_pb2.HealthCheckRequest())  # type: ignore[attr-defined]
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
                await nodes.send(node_request(create("n1")))
                await until(lambda: core.metrics.messages_received == 1, "the node to arrive")
                stopping = asyncio.create_task(core.server.stop())
                code, details = await nodes.end()
                assert (code, details) == (Code.UNAVAILABLE, "the core is shutting down")
                assert [entry.nodeID for response in nodes.got for entry in response.accepted] == ["n1"]
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
                await asyncio.wait_for(stopping, PATIENCE_S)
            watch.cancel()

    async def test_a_client_that_does_not_read_cannot_hold_the_core_up(self) -> None:
        """Streams that cannot be flushed within the grace period are cut."""
        async with running_core(FakeEngine(), grace_s=0.2) as core:
            await core.register()
            async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
                for _ in range(3):
                    await nodes.send(node_request(*(create(f"node-{n}-{'x' * 500}") for n in range(5_000))))
                await until(lambda: core.metrics.queued_entries > 0, "answers that nobody reads")
                await asyncio.wait_for(core.server.stop(), PATIENCE_S)
