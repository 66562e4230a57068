"""Several resource managers on one core: what one of them does, fails at or floods is not the other's concern."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from kornel.core.domain.commands import RegisterManager, UnregisterManager
from kornel.core.process.readiness import CONFIGURATION_FILE, MANAGERS
from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.service.machine.loop_time import Sharing
from kornel.core.service.streams.presence import GRACE_NS
from kornel.core.service.wire.status_codes import EngineFault, JournalFull, ServiceError, ShuttingDown
from kornel.shim_client import Ask, CallbackHandler, PredicatesQuestion, ShimClient
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    configuration_pb2,
    configuration_pb2_grpc,
    manager_pb2,
    manager_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
)
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
    release_request,
    running_core,
)
from tests.patience import PATIENCE_S
from tests.waiting import until

Code = grpc.StatusCode
Health = health_pb2.HealthCheckResponse
ONE, OTHER = "rm-1", "rm-2"


@dataclass
class Manager:
    """A registered manager with its three streams open, a node, and an application in root.a."""

    core: Core
    rm_id: str
    nodes: Conversation
    applications: Conversation
    allocations: Conversation

    async def place(self, *names: str) -> list[Any]:
        """What becomes of asks with these keys."""
        await self.allocations.send(allocation_request(*map(ask, names), rm_id=self.rm_id))
        return await self.allocations.entries(len(names))

    async def status(self) -> status_pb2.PartitionStatus:
        """The manager's only partition, its books checked."""
        request = status_pb2.GetStatusRequest(rm_id=self.rm_id, audit=True)
        found = await status_pb2_grpc.StatusServiceStub(self.core.channel).GetStatus(request)
        assert [partition.invariant_violations for partition in found.partitions] == [0]
        return found.partitions[0]


@asynccontextmanager
async def managing(core: Core, rm_id: str, **capacity: int) -> AsyncIterator[Manager]:
    await core.register(rm_id)
    async with AsyncExitStack() as stack:
        nodes, applications, allocations = [
            await stack.enter_async_context(Conversation.open(call()))
            for call in (core.scheduler.UpdateNode, core.scheduler.UpdateApplication, core.scheduler.UpdateAllocation)
        ]
        await nodes.send(node_request(create("n1", **capacity), rm_id=rm_id))
        await nodes.receive()
        await applications.send(application_request("app", rm_id=rm_id))
        await applications.receive()
        await allocations.send(allocation_request(rm_id=rm_id))
        yield Manager(core, rm_id, nodes, applications, allocations)


async def unregister(core: Core, rm_id: str) -> None:
    request = manager_pb2.UnregisterResourceManagerRequest(rm_id=rm_id)
    await manager_pb2_grpc.ManagerServiceStub(core.channel).UnregisterResourceManager(request, timeout=PATIENCE_S)


async def status_of(core: Core, **request: Any) -> status_pb2.GetStatusResponse:
    return await status_pb2_grpc.StatusServiceStub(core.channel).GetStatus(status_pb2.GetStatusRequest(**request))


async def test_equal_names_of_two_managers_are_two_things(core: Core) -> None:
    """Node, application and ask of the same names: each is placed in its own cluster, and ends there alone."""
    async with managing(core, ONE) as one, managing(core, OTHER, vcore=1_000) as other:
        assert keys(await one.place("k", "l")) == ["k", "l"]
        assert keys(await other.place("k")) == ["k"]
        await one.allocations.send(
            release_request(si.AllocationRelease(applicationID="app", allocationKey="k"), rm_id=ONE)
        )
        await until_held(one, 1)
        assert (await other.status()).allocation_count == 1
        found = await status_of(core)
        assert [partition.name for partition in found.partitions] == ["[rm-1]default", "[rm-2]default"]
        assert [manager.rm_id for manager in found.managers] == [ONE, OTHER]
        assert [manager.presence.open_streams for manager in found.managers] == [3, 3]


async def test_a_manager_that_was_refused_leaves_nothing_to_the_next_one(core: Core) -> None:
    """Its versions are its own: it finds them until another manager registers first, which never sees them."""
    stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)

    async def list_texts() -> list[str]:
        request = configuration_pb2.GetConfigurationHistoryRequest()
        versions = (await stub.GetConfigurationHistory(request)).versions
        numbers = [version.number for version in versions]
        assert numbers == sorted(numbers)
        return [f"{version.rm_id} {version.reason}" for version in versions]

    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError):
            await core.register(ONE, CONFIG.replace("name: default", "name: '['"))
    [refused] = await list_texts()
    assert refused.startswith(ONE)
    async with managing(core, OTHER) as other:
        assert await list_texts() == [f"{OTHER} "]
        assert (await status_of(core)).managers[0].configuration_version == 1
        assert keys(await other.place("k")) == ["k"]


async def until_held(manager: Manager, count: int) -> None:
    async def is_held() -> bool:
        return (await manager.status()).allocation_count == count

    await until(is_held, f"{manager.rm_id} to hold {count} allocations")


async def test_nobody_reaches_into_the_partition_of_another_one(core: Core) -> None:
    """A request that names it is answered as one for a partition that does not exist; nothing changes there."""
    async with managing(core, ONE) as one, managing(core, OTHER) as other:
        await one.place("k")
        await other.nodes.send(node_request(create("spy", "[rm-1]default"), rm_id=OTHER))
        assert "no partition" in (await other.nodes.receive()).rejected[0].reason
        await other.allocations.send(allocation_request(ask("x", partition="[rm-1]default"), rm_id=OTHER))
        refused = (await other.allocations.entries(1))[0]
        assert (refused.allocationKey, "no partition" in refused.reason) == ("x", True)
        theirs = si.AllocationRelease(partitionName="[rm-1]default", applicationID="app", allocationKey="k")
        await other.allocations.send(release_request(theirs, rm_id=OTHER))
        await core.settle()
        status = await one.status()
        assert (status.node_count, status.allocation_count, status.pending_ask_count) == (1, 1, 0)


async def test_registering_again_leaves_the_other_one_as_it_was(core: Core) -> None:
    async with managing(core, ONE) as one, managing(core, OTHER) as other:
        await one.place("k")
        await other.place("k")
        await core.register(OTHER)
        assert (await other.status()).allocation_count == 0
        assert (await one.status()).allocation_count == 1
        assert keys(await one.place("l")) == ["l"]


async def test_a_bad_registration_is_nobody_elses_concern(core: Core) -> None:
    async with managing(core, ONE) as one:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await core.register(OTHER, "partitions: 7")
        assert refused.value.code() is Code.INVALID_ARGUMENT
        assert [manager.rm_id for manager in (await status_of(core)).managers] == [ONE]
        assert keys(await one.place("k")) == ["k"]
        async with managing(core, OTHER) as other:
            assert keys(await other.place("k")) == ["k"]
        versions = await configuration_pb2_grpc.ConfigurationServiceStub(core.channel).GetConfigurationHistory(
            configuration_pb2.GetConfigurationHistoryRequest(rm_id=OTHER)
        )
        assert [version.applied for version in versions.versions] == [True], "who failed kept no place"
        found = await read_pb2_grpc.ReadServiceStub(core.channel).ListRefusals(read_pb2.ListRefusalsRequest())
        assert [refusal.rm_id for refusal in found.refusals] == [OTHER]


async def test_a_manager_that_leaves_takes_all_that_it_had_with_it() -> None:
    async with running_core() as core, managing(core, ONE) as one:
        async with managing(core, OTHER) as other:
            await other.place("k")
            place = core.server.managers.find(OTHER)
            assert place is not None
            gone = weakref.ref(place.runner._engine)
            del place
            await unregister(core, OTHER)
            code, details = await other.allocations.end()
            assert (code, "'rm-2' was unregistered" in details) == (Code.FAILED_PRECONDITION, True)
        assert keys(await one.place("k")) == ["k"]
        assert [place.rm_id for place in core.server.managers.places] == [ONE]

        def is_freed() -> bool:
            gc.collect()
            return gone() is None

        await until(is_freed, "the engine of the manager that left to be freed")
        assert [manager.rm_id for manager in (await status_of(core)).managers] == [ONE]


async def test_the_first_one_may_leave_as_well(core: Core) -> None:
    """A stream that has not said whose it is goes on, and so does everything of the manager that came later."""
    async with Conversation.open(core.scheduler.UpdateNode()) as silent, managing(core, OTHER) as other:
        async with managing(core, ONE):
            await unregister(core, ONE)
        assert keys(await other.place("k")) == ["k"]
        await silent.send(node_request(create("n2"), rm_id=OTHER))
        assert (await silent.receive()).accepted[0].nodeID == "n2"
        status = await status_of(core)
        assert (status.rm_id, len(status.partitions)) == (OTHER, 1)


async def test_there_is_a_bound_and_a_place_becomes_free() -> None:
    async with running_core(managers=2) as core:
        await core.register(ONE)
        await core.register(OTHER)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await core.register("rm-3")
        assert refused.value.code() is Code.FAILED_PRECONDITION
        assert "'rm-1', 'rm-2'" in (refused.value.details() or "")
        await unregister(core, ONE)
        await core.register("rm-3")
        assert {manager.rm_id for manager in (await status_of(core)).managers} == {OTHER, "rm-3"}


async def test_a_core_for_one_serves_one() -> None:
    async with running_core(managers=1) as core:
        await core.register(ONE)
        with pytest.raises(grpc.aio.AioRpcError, match="one at a time"):
            await core.register(OTHER)


async def test_a_registration_that_fails_keeps_no_place(core: Core) -> None:
    """Whoever is refused under many names leaves no engine behind for any of them."""
    managers = core.server.managers
    await core.register(ONE)
    for number in range(3):
        with pytest.raises(grpc.aio.AioRpcError):
            await core.register(f"rm-{number + 2}", "partitions: 7")
        assert [place.rm_id for place in managers.places] == [ONE]


async def test_a_manager_that_failed_to_register_again_keeps_its_place() -> None:
    """It may come back, with a configuration that can be used, for the nodes that operators have drained."""
    async with running_core(managers=2) as core:
        for rm_id in (ONE, OTHER):
            await core.register(rm_id)
        place = core.server.managers.find(OTHER)
        with pytest.raises(grpc.aio.AioRpcError):
            await core.register(OTHER, "partitions: 7")
        await core.register(OTHER)
        assert core.server.managers.find(OTHER) is place


async def test_a_place_of_somebody_who_failed_gives_way() -> None:
    async with running_core(managers=2) as core:
        for rm_id in (ONE, OTHER):
            await core.register(rm_id)
        with pytest.raises(grpc.aio.AioRpcError):
            await core.register(OTHER, "partitions: 7")
        await core.register("rm-3")
        assert [place.rm_id for place in core.server.managers.places] == [ONE, "rm-3"]


async def test_many_that_register_at_once_get_a_place_each(core: Core) -> None:
    names = [f"rm-{number}" for number in range(8)]
    await asyncio.gather(*map(core.register, names))
    assert {place.rm_id for place in core.server.managers.places} == set(names)


async def test_a_place_is_taken_while_a_registration_goes_on_that_nobody_waits_for(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that gave up does not have its place handed to the next one, who would be refused there."""
    managers, begun, may_go_on = core.server.managers, asyncio.Event(), asyncio.Event()

    async def build_slowly(*_: object) -> None:
        begun.set()
        await may_go_on.wait()

    monkeypatch.setattr(managers.first.runner, "_build_ahead", build_slowly)
    given_up = asyncio.create_task(managers.register(RegisterManager(ONE, CONFIG)))
    await begun.wait()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    registering = asyncio.create_task(managers.register(RegisterManager(OTHER, CONFIG)))
    await core.settle()
    may_go_on.set()
    await registering
    await until(lambda: {place.rm_id for place in managers.places} == {ONE, OTHER}, "both to be registered")


async def test_a_problem_with_the_file_goes_with_the_manager_that_had_it(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(CONFIG)
    async with running_core(config_file=path, default_config=CONFIG) as core:
        for rm_id in (ONE, OTHER):
            await core.register(rm_id, "")
        place = core.server.managers.find(OTHER)
        assert place is not None
        statuses = core.server.readiness.service._statuses
        place.configurator.report_problem("a queue that is in use would go")
        assert statuses[CONFIGURATION_FILE] == Health.NOT_SERVING
        await core.server.managers.unregister(OTHER)
        assert statuses[CONFIGURATION_FILE] == Health.SERVING


async def test_a_bug_in_one_engine_is_not_the_other_ones(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager that it hits hears of it; the core goes on serving, and says whose state is in doubt."""
    async with managing(core, ONE) as one, managing(core, OTHER) as other:
        place = core.server.managers.find(OTHER)
        assert place is not None

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(place.runner._engine, "apply", fail)
            await other.allocations.send(allocation_request(ask("k"), rm_id=OTHER))
            # The bug stays until the stream has ended: what was sent may arrive long after `send` has returned.
            assert (await other.allocations.end())[0] is Code.INTERNAL
        statuses = core.server.readiness.service._statuses
        assert [manager.damaged for manager in (await status_of(core)).managers] == [False, True]
        assert (statuses[""], statuses[MANAGERS]) == (Health.SERVING, Health.NOT_SERVING)
        assert core.server.readiness.ready
        assert keys(await one.place("k")) == ["k"]
        await core.register(OTHER)
        assert [manager.damaged for manager in (await status_of(core)).managers] == [False, False]
        assert (statuses[""], statuses[MANAGERS]) == (Health.SERVING, Health.SERVING)


async def test_a_partition_task_that_dies_takes_one_manager_along(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    async with managing(core, ONE) as one, managing(core, OTHER) as other:
        # The stream is open for the core too, and not only on its way, when the task dies.
        await other.place("first")
        place = core.server.managers.find(OTHER)
        assert place is not None

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug outside of the engine")

        monkeypatch.setattr(place.runner, "_take_in", fail)
        # What waits there when the task dies is answered, not forgotten.
        waiting = asyncio.create_task(place.runner.call(UnregisterManager(OTHER)))
        await other.allocations.send(allocation_request(ask("k"), rm_id=OTHER))
        assert (await other.allocations.end())[0] is Code.INTERNAL
        with pytest.raises(ShuttingDown):
            await asyncio.wait_for(waiting, PATIENCE_S)
        await until(lambda: not Sharing.of_loop().busy, "the dead task to count as idle")
        assert keys(await one.place("k")) == ["k"]
        await core.register(OTHER)
        assert {manager.rm_id for manager in (await status_of(core)).managers} == {ONE, OTHER}


class Counting(CallbackHandler):
    """Allows everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def predicates(self, question: PredicatesQuestion) -> dict[str, str]:
        self.asked.append((question.partition, question.key))
        return {}


async def test_questions_go_to_whose_they_are(core: Core) -> None:
    async with managing(core, ONE) as one, managing(core, OTHER) as other, ShimClient(core.address, "rm-3") as third:
        handler = Counting()
        await third.register(config=CONFIG)
        await third.attach_callbacks(handler)
        await third.create_nodes([create("n1")])
        await third.add_applications(application_request("app").new)
        await third.submit_asks([Ask("k", "app", {"vcore": 1_000})])
        await one.place("k")
        await other.place("k")
        await until(lambda: bool(handler.asked), "the question")
        assert handler.asked == [("[rm-3]default", "k")]


async def test_each_has_its_own_configuration(core: Core) -> None:
    stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
    await core.register(ONE)
    await core.register(OTHER, CONFIG.replace("name: a", "name: b"))
    update = configuration_pb2.UpdateConfigurationRequest(rm_id=OTHER, config=CONFIG.replace("name: a", "name: c"))
    assert (await stub.UpdateConfiguration(update)).version == 2
    first = await stub.GetConfiguration(configuration_pb2.GetConfigurationRequest(rm_id=ONE))
    second = await stub.GetConfiguration(configuration_pb2.GetConfigurationRequest(rm_id=OTHER))
    assert (first.version.number, "name: a" in first.config) == (1, True)
    assert (second.version.number, "name: c" in second.config) == (2, True)
    rolled = await stub.RollbackConfiguration(configuration_pb2.RollbackConfigurationRequest(version=1, rm_id=OTHER))
    assert rolled.holds
    status = await status_of(core)
    assert [manager.HasField("rollback") for manager in status.managers] == [False, True]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.RollbackConfiguration(configuration_pb2.RollbackConfigurationRequest(version=1))
    assert refused.value.code() is Code.INVALID_ARGUMENT
    assert "'rm-1', 'rm-2'" in (refused.value.details() or "")
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await stub.GetConfiguration(configuration_pb2.GetConfigurationRequest(rm_id="rm-9"))
    assert unknown.value.code() is Code.NOT_FOUND


@pytest.mark.parametrize("error", [EngineFault("a bug"), JournalFull("no room")])
async def test_a_file_is_followed_by_all_others_while_one_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ServiceError
) -> None:
    """The one that could not is shown as a problem, and follows when the file is read the next time."""
    path = tmp_path / "queues.yaml"
    path.write_text(CONFIG)
    async with running_core(config_file=path, default_config=CONFIG) as core:
        managers = core.server.managers
        for rm_id in (ONE, OTHER):
            await core.register(rm_id, "")
        places = [managers.find(rm_id) for rm_id in (ONE, OTHER)]
        versions = [place.configurator for place in places if place is not None]
        path.write_text(CONFIG.replace("name: a", "name: b"))

        async def refuse(*_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(managers.first.runner, "call", refuse)
            core.server.reload()
            await until(lambda: [each.in_force for each in versions] == [1, 2], "the other one to follow")
            await until(lambda: managers.problem != "", "the problem")
        core.server.reload()
        await until(lambda: managers.problem == "", "the end of the problem")
        assert [each.in_force for each in versions] == [2, 2]


async def test_a_bare_name_that_two_have_is_asked_back_for(core: Core) -> None:
    """Nothing is drained by mistake; the full name, and a bare one that only one manager has, say which is meant."""
    reading, admin = read_pb2_grpc.ReadServiceStub(core.channel), admin_pb2_grpc.AdminServiceStub(core.channel)
    async with managing(core, ONE) as one, managing(core, OTHER) as other:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n1"))
        assert refused.value.code() is Code.INVALID_ARGUMENT
        assert "'[rm-1]default', '[rm-2]default'" in (refused.value.details() or "")
        await admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n1", partition="[rm-2]default"))
        assert [len((await each.status()).drained_nodes) for each in (one, other)] == [0, 1]
        assert keys(await one.place("k")) == ["k"]
        await core.register("rm-3", CONFIG.replace("name: default", "name: third"))
        found = await reading.ListQueues(read_pb2.ListQueuesRequest(partition="third"))
        assert [queue.path for queue in found.queues] == ["root", "root.a"]


async def test_one_that_is_gone_is_named(core: Core) -> None:
    async with managing(core, ONE):
        async with managing(core, OTHER):
            pass
        await core.settle()
        core.clock.advance(GRACE_NS + SECOND_NS)
        await core.settle()
        status = await status_of(core)
        assert [manager.presence.gone for manager in status.managers] == [False, True]
        report = await read_pb2_grpc.ReadServiceStub(core.channel).GetHealthReport(read_pb2.GetHealthReportRequest())
        failed = [check.diagnosis for check in report.checks if not check.succeeded]
        assert len(failed) == 1
        assert "rm-2" in failed[0]
        assert "rm-1" not in failed[0]


async def test_refusals_say_whose_they_are(core: Core) -> None:
    async with managing(core, ONE) as one, managing(core, OTHER) as other:
        for each in (one, other):
            await each.applications.send(application_request("app", rm_id=each.rm_id))
            await each.applications.receive()
        found = await read_pb2_grpc.ReadServiceStub(core.channel).ListRefusals(read_pb2.ListRefusalsRequest())
        assert [refusal.rm_id for refusal in found.refusals] == [OTHER, ONE]
