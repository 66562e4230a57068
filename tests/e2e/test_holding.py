"""What an operator did holds: a rollback and a drain over whatever the shim says, with the name of who did it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.cli.asking import CalledCore
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    explain_pb2,
    explain_pb2_grpc,
    manager_pb2,
    manager_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    status_pb2,
)
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.status_pb2_grpc import StatusServiceStub
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
from tests.e2e.rest.shim import PREFIX, P, rest_cluster
from tests.patience import PATIENCE_S
from tests.waiting import until

HERE = "anonymous@127.0.0.1"
TWO = CONFIG + "          - name: b\n"
THREE = CONFIG + "          - name: c\n"


async def status(core: Core) -> status_pb2.GetStatusResponse:
    answer: status_pb2.GetStatusResponse = await StatusServiceStub(core.channel).GetStatus(
        status_pb2.GetStatusRequest(), timeout=PATIENCE_S
    )
    return answer


async def queues(core: Core) -> list[str]:
    """Active leaf queues."""
    found = (await status(core)).partitions[0].queues
    return [queue.path.removeprefix("root.") for queue in found if queue.leaf and queue.state == "Active"]


async def update(core: Core, config: str, **extra: str) -> pb.UpdateConfigurationResponse:
    request = pb.UpdateConfigurationRequest(rm_id="rm-1", config=config, extra_config=extra)
    answer: pb.UpdateConfigurationResponse = await ConfigurationServiceStub(core.channel).UpdateConfiguration(
        request, timeout=PATIENCE_S
    )
    return answer


async def roll_back(core: Core, version: int = 0, *, undo: bool = False) -> pb.RollbackConfigurationResponse:
    request = pb.RollbackConfigurationRequest(version=version, undo=undo)
    answer: pb.RollbackConfigurationResponse = await ConfigurationServiceStub(core.channel).RollbackConfiguration(
        request, timeout=PATIENCE_S
    )
    return answer


async def versions(core: Core) -> list[pb.ConfigurationVersion]:
    answer = await ConfigurationServiceStub(core.channel).GetConfigurationHistory(
        pb.GetConfigurationHistoryRequest(), timeout=PATIENCE_S
    )
    return list(answer.versions)


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    code: grpc.StatusCode = caught.value.code()
    return code


def messages(core: Core) -> list[str]:
    """Of all events so far."""
    ring = core.server.events.events
    return [event.message for event in ring.get(ring.lowest_id, ring.next_id) or ()]


@pytest.fixture
async def back(core: Core) -> Core:
    """Registered with TWO, rolled back to CONFIG, which an earlier registration had brought."""
    await core.register()
    await core.register(config=TWO)
    done = await roll_back(core, 1)
    assert (done.changed, done.version, done.holds) == (True, 3, True)
    return core


async def test_an_earlier_registration_does_not_undo_a_rollback_either(core: Core) -> None:
    """Of two replicas with a text each, either may start again; an operator who brings an earlier text means it."""
    for config in (CONFIG, TWO, THREE):
        await core.register(config=config)
    await roll_back(core, 1)
    await core.register(config=TWO)
    assert await queues(core) == ["a"]
    assert (await status(core)).rollback.kept_out == 1
    await core.register(config=THREE)
    assert await queues(core) == ["a"]
    await core.register(config=TWO + "# another\n")
    assert await queues(core) == ["a", "b"]


async def test_an_operator_ends_a_rollback_with_an_earlier_text(core: Core) -> None:
    for config in (CONFIG, TWO, THREE):
        await core.register(config=config)
    await roll_back(core, 1)
    await update(core, TWO)
    assert await queues(core) == ["a", "b"]


async def test_registering_again_does_not_undo_a_rollback(back: Core) -> None:
    """The text rolled back from is compared, not preferred; status and history say that the rollback holds."""
    for count in (1, 2):
        await back.register(config=TWO)
        assert await queues(back) == ["a"]
        held = (await status(back)).rollback
        assert (held.version, held.principal, held.kept_out, held.since_ns) == (1, HERE, count, back.clock.now_ns())
    last = (await versions(back))[-1]
    assert (last.origin, last.in_force) == (pb.ConfigurationVersion.ORIGIN_REGISTRATION, True)
    assert f"the rollback to version 1 by {HERE} holds" in last.note
    assert [said for said in messages(back) if "is not applied" in said]


async def test_what_was_brought_before_by_any_way_is_kept_out(core: Core) -> None:
    """A shim registers with one text and updates to another; after a rollback neither comes back by itself."""
    await core.register()
    await core.register(config=TWO)
    await update(core, THREE)
    await roll_back(core, 1)
    for bring in (core.register(config=TWO), update(core, THREE), core.register(config=THREE), update(core, TWO)):
        await bring
        assert await queues(core) == ["a"]
    assert (await status(core)).rollback.kept_out == 4


async def test_an_update_with_a_text_of_before_says_so(back: Core) -> None:
    """It is OK, with a warning, and its extra settings come into force."""
    done = await update(back, TWO, **{"log.level": "WARN"})
    assert not done.changed
    assert [warning.message for warning in done.warnings if "holds" in warning.message]
    assert back.server.managers.first.runner.extra_config() == {"log.level": "WARN"}
    assert await queues(back) == ["a"]


@pytest.mark.parametrize("by_update", [False, True])
async def test_another_text_ends_a_rollback_and_says_so(back: Core, by_update: bool) -> None:
    await (update(back, THREE) if by_update else back.register(config=THREE))
    assert await queues(back) == ["a", "c"]
    assert not (await status(back)).HasField("rollback")
    ended = f"the rollback to version 1 by {HERE} ended: the text that came is another one than those brought before"
    assert (await versions(back))[-1].note == ended
    assert ended in messages(back)
    await back.register(config=TWO)
    assert await queues(back) == ["a", "b"], "nothing holds any more"


async def test_a_bad_text_does_not_end_a_rollback(back: Core) -> None:
    assert await code_of(update(back, "partitions: 7")) is grpc.StatusCode.INVALID_ARGUMENT
    assert (await status(back)).rollback.version == 1
    await back.register(config=TWO)
    assert await queues(back) == ["a"]


async def test_a_rollback_is_undone(back: Core) -> None:
    """What was brought last comes into force, also what was kept out since; a second time there is nothing to undo."""
    done = await roll_back(back, undo=True)
    assert (done.changed, done.holds) == (True, False)
    assert await queues(back) == ["a", "b"]
    assert not (await status(back)).HasField("rollback")
    assert "was undone by" in (await versions(back))[-1].note
    assert await code_of(roll_back(back, undo=True)) is grpc.StatusCode.FAILED_PRECONDITION
    assert await code_of(roll_back(back, 1, undo=True)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_rollback_to_what_is_brought_anyway_undoes_it(back: Core) -> None:
    done = await roll_back(back, 2)
    assert (done.changed, done.holds) == (True, False)
    assert not (await status(back)).HasField("rollback")
    await back.register()
    assert await queues(back) == ["a"], "and what comes then is applied"


async def test_a_rollback_holds_for_its_manager(back: Core) -> None:
    """It outlives that the manager was unregistered; another manager ends it."""
    await unregister(back)
    assert not (await status(back)).HasField("rollback"), "nothing is in force"
    await back.register(config=TWO)
    assert await queues(back) == ["a"]
    await unregister(back)
    await back.register("rm-2", TWO)
    assert await queues(back) == ["a", "b"]
    assert "it was for resource manager 'rm-1'" in (await versions(back))[-1].note


async def unregister(core: Core) -> None:
    stub = manager_pb2_grpc.ManagerServiceStub(core.channel)
    await stub.UnregisterResourceManager(manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1"), timeout=PATIENCE_S)


async def test_who_did_it_is_written_down(back: Core) -> None:
    """Callers that prove nothing are called anonymous, with their address."""
    assert [version.principal for version in await versions(back)] == [HERE] * 3
    await unregister(back)
    assert f"resource manager rm-1 was unregistered by {HERE}" in messages(back)


async def drain(core: Core, node_id: str = "n1") -> admin_pb2.DrainNodeResponse:
    stub = admin_pb2_grpc.AdminServiceStub(core.channel)
    answer: admin_pb2.DrainNodeResponse = await stub.DrainNode(
        admin_pb2.DrainNodeRequest(node_id=node_id), timeout=PATIENCE_S
    )
    return answer


async def undrain(core: Core, node_id: str = "n1") -> admin_pb2.UndrainNodeResponse:
    stub = admin_pb2_grpc.AdminServiceStub(core.channel)
    answer: admin_pb2.UndrainNodeResponse = await stub.UndrainNode(
        admin_pb2.UndrainNodeRequest(node_id=node_id), timeout=PATIENCE_S
    )
    return answer


async def takes_work(core: Core, node_id: str = "n1") -> bool:
    stub = read_pb2_grpc.ReadServiceStub(core.channel)
    answer = await stub.GetNode(read_pb2.GetNodeRequest(node_id=node_id), timeout=PATIENCE_S)
    return bool(answer.summary.schedulable)


async def act(nodes: Conversation, core: Core, action: int) -> None:
    await nodes.send(si.NodeRequest(rmID="rm-1", nodes=[si.NodeInfo(nodeID="n1", action=action)]))
    await core.settle()


async def test_a_shim_does_not_undo_the_drain_of_an_operator(reg: Core) -> None:
    """Nor by registering again, by creating the node again, or by saying that it is ready."""
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        done = await drain(reg)
        assert (done.changed, done.principal, done.since_ns) == (True, HERE, reg.clock.now_ns())
        assert not (await drain(reg)).changed
        await act(nodes, reg, si.NodeInfo.DRAIN_TO_SCHEDULABLE)
        assert not await takes_work(reg)
        await act(nodes, reg, si.NodeInfo.DECOMISSION)
        (drained,) = (await status(reg)).partitions[0].drained_nodes
        assert (drained.node_id, drained.principal, drained.registered) == ("n1", HERE, False)
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        assert not await takes_work(reg)
        await reg.register()
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        assert not await takes_work(reg)
        assert f"schedulable: false, drained by {HERE}" in messages(reg)
        done_undrain = await undrain(reg)
        assert (done_undrain.changed, done_undrain.schedulable, done_undrain.registered) == (True, True, True)
        assert await takes_work(reg)
        assert f"schedulable: true, undrained by {HERE}" in messages(reg)
        assert not (await status(reg)).partitions[0].drained_nodes


async def test_the_drain_of_a_shim_stands_beside_it(reg: Core) -> None:
    """A node takes work when neither side keeps it out."""
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        await act(nodes, reg, si.NodeInfo.DRAIN_NODE)
        await drain(reg)
        found = await read_pb2_grpc.ReadServiceStub(reg.channel).GetNode(read_pb2.GetNodeRequest(node_id="n1"))
        assert (found.drained_by_manager, found.drained_by) == (True, HERE)
        done = await undrain(reg)
        assert (done.changed, done.schedulable) == (True, False)
        done = await undrain(reg)
        assert (done.changed, done.schedulable) == (False, False)
        await act(nodes, reg, si.NodeInfo.DRAIN_TO_SCHEDULABLE)
        assert await takes_work(reg)


async def test_a_drain_ends_for_a_node_that_is_gone(reg: Core) -> None:
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        await drain(reg)
        await act(nodes, reg, si.NodeInfo.DECOMISSION)
        done = await undrain(reg)
        assert (done.changed, done.schedulable, done.registered) == (True, False, False)
        assert await code_of(undrain(reg)) is grpc.StatusCode.NOT_FOUND


async def test_another_manager_ends_drains(reg: Core) -> None:
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
    await drain(reg)
    await unregister(reg)
    await reg.register("rm-2")
    await unregister_as(reg, "rm-2")
    await reg.register()
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
    assert await takes_work(reg)


async def unregister_as(core: Core, rm_id: str) -> None:
    stub = manager_pb2_grpc.ManagerServiceStub(core.channel)
    await stub.UnregisterResourceManager(manager_pb2.UnregisterResourceManagerRequest(rm_id=rm_id), timeout=PATIENCE_S)


async def test_work_waits_for_a_drained_node_and_is_told_by_whom(reg: Core) -> None:
    async with open_streams(reg) as (nodes, applications, allocations):
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        await drain(reg)
        await applications.send(application_request("app"))
        await applications.receive()
        await allocations.send(allocation_request(ask("k", "app", vcore=1000)))
        assert (await blockers(reg))[0].detail == (
            f"draining: nothing new is placed there; drained by {HERE} until it is undrained"
        )
        await undrain(reg)
        assert (await allocations.entries(1))[0].nodeID == "n1"


async def blockers(core: Core) -> list[explain_pb2.Blocker]:
    await core.settle()
    stub = explain_pb2_grpc.ExplainServiceStub(core.channel)
    answer = await stub.Explain(explain_pb2.ExplainRequest(name="k"), timeout=PATIENCE_S)
    return list(answer.ask.blockers)


async def test_a_shim_that_is_gone_is_said(reg: Core) -> None:
    """In status at once, and as the first thing in the way of what waits after a short grace."""
    began = reg.clock.now_ns()
    assert (await status(reg)).presence.no_stream_since_ns == began, "it has opened none yet"
    async with Conversation.open(reg.scheduler.UpdateApplication()) as applications:
        await applications.send(application_request("app"))
        await applications.receive()
        found = (await status(reg)).presence
        assert (found.open_streams, found.gone, found.HasField("no_stream_since_ns")) == (1, False, False)
        async with Conversation.open(reg.scheduler.UpdateAllocation()) as allocations:
            await allocations.send(allocation_request(ask("k", "app", vcore=1000)))
            await reg.settle()
            reg.clock.advance(60 * SECOND_NS)
            assert [found.kind for found in await blockers(reg)] == ["no-nodes"]
    await until(lambda: reg.metrics.live_streams == 0, "the streams to end")
    gone_at = reg.clock.now_ns()
    reg.clock.advance(9 * SECOND_NS)
    found = (await status(reg)).presence
    assert (found.no_stream_since_ns, found.gone) == (gone_at, False)
    assert [found.kind for found in await blockers(reg)] == ["no-nodes"]
    reg.clock.advance(SECOND_NS)
    assert (await status(reg)).presence.gone
    first, second = await blockers(reg)
    assert (first.kind, first.level, first.name, second.kind) == ("shim-gone", "manager", "rm-1", "no-nodes")
    assert first.detail.startswith("no stream of resource manager rm-1 open since 20")
    report = await read_pb2_grpc.ReadServiceStub(reg.channel).GetHealthReport(read_pb2.GetHealthReportRequest())
    assert [check.name for check in report.checks if not check.succeeded] == ["Resource manager check"]
    async with Conversation.open(reg.scheduler.UpdateApplication()) as applications:
        await applications.send(application_request("app-2"))
        await applications.receive()
        assert not (await status(reg)).presence.gone
        await reg.settle()
        report = await read_pb2_grpc.ReadServiceStub(reg.channel).GetHealthReport(read_pb2.GetHealthReportRequest())
        assert report.healthy


async def test_an_anonymous_stream_is_nobody_of_the_manager(reg: Core) -> None:
    """A stream counts from the moment it says whose it is."""
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(si.NodeRequest(rmID="rm-2"))
        await reg.settle()
        assert (await status(reg)).presence.open_streams == 0


async def test_nobody_registered_is_nobody_gone(core: Core) -> None:
    core.clock.advance(60 * SECOND_NS)
    assert not (await status(core)).HasField("presence")


async def said(core: Core, *arguments: str) -> str:
    """What `kornel` prints; fails unless it exits 0."""
    result = await asyncio.to_thread(CliRunner(env={"KORNEL_ADDRESS": core.address}).invoke, app, [*arguments])
    assert result.exit_code == 0, result.output
    return str(result.output)


async def test_what_an_operator_is_told_about_a_drain(reg: Core) -> None:
    """How long it holds, how to undo it, and that the shim's own drain is another one."""
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        first = await said(reg, "drain", "node", "n1")
        assert "n1: drained, 0 allocations still run there" in first
        assert "It holds until `kornel undrain node n1`" in first
        assert f"drained already, by {HERE} since 2023-" in await said(reg, "drain", "node", "n1")
        assert f"drained: n1 by {HERE} since 2023-" in await said(reg, "status")
        await act(nodes, reg, si.NodeInfo.DRAIN_NODE)
        told = await said(reg, "nodes", "n1")
        assert re.search(
            rf"n1: draining, drained by {HERE} since 2023-11-14T22:13:20Z \(.* ago\) and by its shim", told
        )
        assert "undrained, but its shim drains it: still draining" in await said(reg, "undrain", "node", "n1")
        await act(nodes, reg, si.NodeInfo.DRAIN_TO_SCHEDULABLE)
        assert "n1: ready already" in await said(reg, "undrain", "node", "n1")
        await drain(reg)
        await act(nodes, reg, si.NodeInfo.DECOMISSION)
        assert ", not registered now" in await said(reg, "status")
        assert "undrained; it is not registered now" in await said(reg, "undrain", "node", "n1")


async def test_what_an_operator_is_told_about_a_shim_that_is_gone(reg: Core) -> None:
    assert "no stream open since 2023-11-14T22:13:20Z" in await said(reg, "status")
    assert "counts as gone" not in await said(reg, "status")
    reg.clock.advance(10 * SECOND_NS)
    assert "it counts as gone, and nothing that is decided reaches it" in await said(reg, "status")
    result = await asyncio.to_thread(CliRunner(env={"KORNEL_ADDRESS": reg.address}).invoke, app, ["health", "--checks"])
    assert result.exit_code == 1
    assert "no stream of resource manager rm-1 open since 2023-11-14T22:13:20Z" in result.output


async def test_a_rack_is_drained_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or any nodes by an attribute, and returned in the same way. No node is asked about by itself."""
    call = CalledCore.call

    def call_for_several(core: CalledCore, method: Any, request: Message, timeout_s: float | None = None) -> Any:
        assert not isinstance(request, read_pb2.GetNodeRequest)
        return call(core, method, request, timeout_s)

    monkeypatch.setattr(CalledCore, "call", call_for_several)
    async with rest_cluster() as cluster:
        await cluster.register("partitions:\n- {name: default, topology: [si/rack], queues: [{name: root}]}\n")
        for number in range(4):
            await cluster.node(f"n{number}", {"si/rack": f"r{number // 2}", "disk": f"d{number % 2}"}, vcore=1)
        drained = await said(cluster.core, "drain", "node", "--where", "rack=r1", "--wait")
        assert [line[:11] for line in drained.splitlines() if ": drained," in line] == ["n2: drained", "n3: drained"]
        assert "nothing runs there any more" in drained
        assert "n2: ready" in await said(cluster.core, "undrain", "node", "--where", "rack=r1", "--where", "disk=d0")
        assert "n3" in await said(cluster.core, "drain", "list")
        run = CliRunner(env={"KORNEL_ADDRESS": cluster.core.address}).invoke
        for wrong in (["--where", "rack"], [], ["n1", "--where", "rack=r1"]):
            assert (await asyncio.to_thread(run, app, ["drain", "node", *wrong])).exit_code == 2
        for nowhere in (["rack=r9"], ["disk=d9"], ["disk=d0", "--where", "disk=d1"]):
            assert (await asyncio.to_thread(run, app, ["drain", "node", "--where", *nowhere])).exit_code == 1


async def test_a_core_that_does_not_select_nodes_drains_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one leaves a field of the request that it does not know, and answers with all nodes."""

    call = CalledCore.call

    def call_older_core(core: CalledCore, method: Any, request: Message, timeout_s: float | None = None) -> Any:
        unknown = isinstance(request, read_pb2.ListNodesRequest) and request.attributes
        return call(core, method, read_pb2.ListNodesRequest() if unknown else request, timeout_s)

    async with rest_cluster() as cluster:
        await cluster.register("partitions:\n- {name: default, queues: [{name: root}]}\n")
        for number in range(2):
            await cluster.node(f"n{number}", {"disk": f"d{number}"}, vcore=1)
        monkeypatch.setattr(CalledCore, "call", call_older_core)
        run = CliRunner(env={"KORNEL_ADDRESS": cluster.core.address}).invoke
        refused = await asyncio.to_thread(run, app, ["drain", "node", "--where", "disk=d0"])
        assert (refused.exit_code, "too old to select nodes" in refused.output) == (1, True)
        assert "n0" not in await said(cluster.core, "drain", "list")


async def test_nodes_are_drained_whose_names_are_longer_than_a_request() -> None:
    """All together: it is asked about them in several calls."""
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        names = [f"{number}{'n' * 1_000}" for number in range(10)]
        for name in names:
            await cluster.node(name, {"disk": "d0"}, vcore=1)
        assert "nothing runs there any more" in await said(
            cluster.core, "drain", "node", "--where", "disk=d0", "--wait"
        )
        listed = (await said(cluster.core, "drain", "list")).splitlines()[1:]
        assert [(line.split()[0], line.split()[-1]) for line in listed] == [(name, "0") for name in names]


async def test_a_rack_is_that_of_its_zone() -> None:
    """It is named as `kornel nodes --by rack` prints it; a name that several have is refused."""
    async with rest_cluster() as cluster:
        await cluster.register("partitions:\n- {name: default, topology: [si/zone, si/rack], queues: [{name: root}]}\n")
        for number, (zone, rack) in enumerate((("a", "r0"), ("a", "r1"), ("b", "r1"))):
            await cluster.node(f"n{number}", {"si/zone": zone, "si/rack": rack}, vcore=1)
        run = CliRunner(env={"KORNEL_ADDRESS": cluster.core.address}).invoke
        refused = await asyncio.to_thread(run, app, ["drain", "node", "--where", "rack=r1"])
        assert (refused.exit_code, "rack r1 may be any of a/r1, b/r1" in refused.output) == (2, True)
        drained = await said(cluster.core, "drain", "node", "--where", "rack=b/r1")
        assert [line[:11] for line in drained.splitlines() if ": drained," in line] == ["n2: drained"]
        assert "It holds until `kornel undrain node --where rack=b/r1`" in drained
        assert "n0: drained" in await said(cluster.core, "drain", "node", "--where", "rack=r0")


async def test_what_programs_and_metrics_see() -> None:
    async with rest_cluster() as cluster:
        core = cluster.core
        assert await cluster.get(f"{PREFIX}/scheduler/holds") == {"drainedNodes": []}
        await cluster.register()
        await cluster.register(TWO)
        await cluster.node("n1", vcore=1)
        assert (await cluster.get(f"{PREFIX}/scheduler/holds"))["manager"] == {
            "rmID": "rm-1",
            "openStreams": 1,
            "gone": False,
        }
        await roll_back(core, 1)
        await drain(core)
        at = core.clock.now_ns()
        found = await cluster.get(f"{PREFIX}/scheduler/holds")
        assert found["rollback"] == {"version": 1, "since": at, "by": HERE, "keptOut": 0}
        assert found["drainedNodes"] == [
            {"partition": "default", "nodeID": "n1", "by": HERE, "since": at, "registered": True}
        ]
        node = await cluster.get(f"{P}/node/n1")
        assert (node["schedulable"], node["drainedBy"], node["drainedSince"]) == (False, HERE, at)
        lines = (await cluster.http.get(f"{PREFIX}/metrics")).text.splitlines()
        for line in (
            "kornel_configuration_rollback_holds 1.0",
            "kornel_configuration_rollback_kept_out 0.0",
            "kornel_manager_gone 0.0",
            "kornel_manager_streams 1.0",
            'kornel_nodes_drained{partition="default"} 1.0',
        ):
            assert line in lines
