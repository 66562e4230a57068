"""Configurations over the wire: history, rollback, preview, health, and explained queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.core.process.readiness import CONFIGURATION_FILE
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.status_pb2 import ExplainQueueRequest, GetStatusRequest, GetStatusResponse
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    running_core,
    working_streams,
)
from tests.patience import PATIENCE_S

TWO = CONFIG + "          - name: b\n"
LIMITED = CONFIG + "            resources: {max: {vcore: 1}}\n"
BAD = "partitions: 7\n"
Kind = pb.QueueChange.Kind


def configurations(core: Core) -> Any:
    return ConfigurationServiceStub(core.channel)


async def status(core: Core) -> GetStatusResponse:
    return await StatusServiceStub(core.channel).GetStatus(GetStatusRequest(), timeout=PATIENCE_S)


async def update(core: Core, text: str, rm_id: str = "rm-1") -> pb.UpdateConfigurationResponse:
    request = pb.UpdateConfigurationRequest(rm_id=rm_id, config=text)
    return await configurations(core).UpdateConfiguration(request, timeout=PATIENCE_S)


async def history(core: Core) -> list[pb.ConfigurationVersion]:
    found = await configurations(core).GetConfigurationHistory(pb.GetConfigurationHistoryRequest(), timeout=PATIENCE_S)
    return list(found.versions)


async def refused(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    code: grpc.StatusCode = caught.value.code()
    return code


async def health(core: Core, service: str) -> str:
    stub: Any = HealthStub(core.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


async def becomes(core: Core, wanted: str) -> None:
    """Wait for the health of the file to be *wanted*."""
    async with asyncio.timeout(PATIENCE_S):
        while await health(core, CONFIGURATION_FILE) != wanted:
            pass


async def test_history_and_rollback(reg: Core) -> None:
    """Every configuration is kept with who wanted it and what came of it; going back makes a new version."""
    changed = await update(reg, TWO)
    assert (changed.changed, changed.version) == (True, 2)
    same = await update(reg, TWO)
    assert (same.changed, same.version) == (False, 2)
    for _ in range(3):
        assert await refused(update(reg, BAD)) is grpc.StatusCode.INVALID_ARGUMENT
    versions = await history(reg)
    origins = pb.ConfigurationVersion
    assert [(v.number, v.origin, v.applied, v.in_force) for v in versions] == [
        (1, origins.ORIGIN_REGISTRATION, True, False),
        (2, origins.ORIGIN_UPDATE, True, True),
        (3, origins.ORIGIN_UPDATE, False, False),
    ]
    assert versions[2].problems[0].line == 1
    assert versions[2].reason
    assert versions[1].at_ns == reg.clock.now_ns()
    back = await configurations(reg).RollbackConfiguration(
        pb.RollbackConfigurationRequest(version=1), timeout=PATIENCE_S
    )
    assert (back.changed, back.version, back.checksum) == (True, 4, versions[0].checksum)
    now = await status(reg)
    assert now.configuration_version == 4
    assert {queue.path: queue.state for queue in now.partitions[0].queues}["root.b"] == "Draining"
    text = await configurations(reg).GetConfiguration(pb.GetConfigurationRequest(), timeout=PATIENCE_S)
    assert (text.version.number, text.config) == (4, CONFIG)


async def test_a_text_with_hidden_secrets_says_so_and_is_not_taken_back(reg: Core) -> None:
    """Whoever read it without the right to see its secrets would replace them by the marks."""
    secret = CONFIG.replace("name: a\n", "name: a\n            properties: {ldap.bindPassword: hunter2}\n")
    get = configurations(reg).GetConfiguration
    assert not (await get(pb.GetConfigurationRequest(), timeout=PATIENCE_S)).has_hidden
    await update(reg, secret)
    shown = await get(pb.GetConfigurationRequest(), timeout=PATIENCE_S)
    assert shown.has_hidden
    assert "hunter2" not in shown.config
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await update(reg, shown.config)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    line = shown.config[: shown.config.index("[hidden]")].count("\n") + 1
    assert f"line {line}, column" in str(caught.value.details())
    assert "[hidden] stands where a secret was" in str(caught.value.details())
    request = pb.UpdateConfigurationRequest(rm_id="rm-1", config=secret, extra_config={"db.password": "[hidden]"})
    assert await refused(configurations(reg).UpdateConfiguration(request, timeout=PATIENCE_S)) is (
        grpc.StatusCode.INVALID_ARGUMENT
    )
    assert (await get(pb.GetConfigurationRequest(), timeout=PATIENCE_S)).version.number == 2


async def test_a_registration_with_hidden_extra_settings_is_refused_and_ends_nothing(reg: Core) -> None:
    """As an update is: the marks would stand where the secrets were. The registered manager goes on."""
    before = await status(reg)
    request = si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG, extraConfig={"db.password": "[hidden]"})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await reg.scheduler.RegisterResourceManager(request, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'db.password' has [hidden]" in str(caught.value.details())
    now = await status(reg)
    assert (now.rm_id, now.configuration_version) == (before.rm_id, before.configuration_version) == ("rm-1", 1)


@pytest.mark.parametrize(
    ("version", "code"), [(2, grpc.StatusCode.FAILED_PRECONDITION), (9, grpc.StatusCode.NOT_FOUND)]
)
async def test_versions_nobody_can_go_back_to(reg: Core, version: int, code: grpc.StatusCode) -> None:
    """Refused ones and unknown ones."""
    await refused(update(reg, BAD))
    request = pb.RollbackConfigurationRequest(version=version)
    assert await refused(configurations(reg).RollbackConfiguration(request, timeout=PATIENCE_S)) is code


async def test_rollback_to_what_cannot_be_applied_now(reg: Core) -> None:
    """It is refused as the update would be, kept in the history, and changes nothing."""
    await update(reg, CONFIG + "            queues: [{name: x}]\n")
    await update(reg, CONFIG)
    async with Conversation.open(reg.scheduler.UpdateApplication()) as applications:
        await applications.send(application_request("app"))
        await applications.receive()
        request = pb.RollbackConfigurationRequest(version=2)
        call = configurations(reg).RollbackConfiguration(request, timeout=PATIENCE_S)
        assert await refused(call) is grpc.StatusCode.INVALID_ARGUMENT
    last = (await history(reg))[-1]
    assert (last.origin, last.applied) == (pb.ConfigurationVersion.ORIGIN_ROLLBACK, False)
    assert "root.a has 1 application" in last.reason
    assert (await status(reg)).configuration_version == 3


async def test_nobody_is_registered(core: Core) -> None:
    """There is no configuration in force to show, to go back from or to compare with."""
    calls = configurations(core)
    failed = grpc.StatusCode.FAILED_PRECONDITION
    assert await refused(calls.PreviewConfiguration(pb.PreviewConfigurationRequest(), timeout=PATIENCE_S)) is failed
    assert await refused(update(core, CONFIG)) is failed
    assert await history(core) == []
    missing = grpc.StatusCode.NOT_FOUND
    assert await refused(calls.GetConfiguration(pb.GetConfigurationRequest(), timeout=PATIENCE_S)) is missing
    await core.register()
    await refused(core.register(config=BAD))
    assert (await status(core)).configuration_version == 0, "a registration that fails leaves nobody registered"
    assert await refused(calls.RollbackConfiguration(pb.RollbackConfigurationRequest(version=1))) is failed


async def test_a_manager_for_which_there_is_no_room_leaves_no_trace() -> None:
    """Its registration is refused before anybody reads what it sends."""
    async with running_core(managers=1) as reg:
        await reg.register()
        assert await refused(reg.register("rm-2", BAD)) is grpc.StatusCode.FAILED_PRECONDITION
        assert await refused(update(reg, BAD, rm_id="rm-2")) is grpc.StatusCode.FAILED_PRECONDITION
        assert len(await history(reg)) == 1


async def test_preview(reg: Core) -> None:
    """What would change is told with what runs now, and nothing has changed afterwards."""
    async with working_streams(reg) as (_, _, allocations):
        await allocations.send(allocation_request(ask("k1"), ask("k2")))
        await allocations.entries(2)
        before = await status(reg)
        request = pb.PreviewConfigurationRequest(config=LIMITED)
        impact = await configurations(reg).PreviewConfiguration(request, timeout=PATIENCE_S)
        assert impact.changed
        assert [(q.path, q.kind, q.application_count) for q in impact.queues] == [("root.a", Kind.KIND_CHANGED, 1)]
        assert [(e.path, e.used, e.max, e.already) for e in impact.quota_excesses] == [("root.a", 2_000, 1_000, False)]
        assert await status(reg) == before
        gone = CONFIG.replace("name: a", "name: b")
        impact = await configurations(reg).PreviewConfiguration(pb.PreviewConfigurationRequest(config=gone))
        assert [a.application_id for a in impact.unplaced_applications] == ["app"]
        call = configurations(reg).PreviewConfiguration(pb.PreviewConfigurationRequest(config=BAD))
        assert await refused(call) is grpc.StatusCode.INVALID_ARGUMENT
        assert len(await history(reg)) == 1


async def test_explained_queue(reg: Core) -> None:
    """The levels of a queue and the one that bounds it; paths in any case, unknown ones are NOT_FOUND."""
    await update(reg, LIMITED)
    stub: Any = StatusServiceStub(reg.channel)
    found = await stub.ExplainQueue(ExplainQueueRequest(path="Root.A"), timeout=PATIENCE_S)
    assert [level.path for level in found.levels] == ["root.a", "root"]
    assert (found.tightest.path, found.tightest.type, found.tightest.left) == ("root.a", "vcore", 1_000)
    for request in (ExplainQueueRequest(path="root.x"), ExplainQueueRequest(path="root.a", partition="gpu")):
        assert await refused(stub.ExplainQueue(request, timeout=PATIENCE_S)) is grpc.StatusCode.NOT_FOUND


async def test_a_caller_that_goes_away_leaves_a_consistent_history(reg: Core) -> None:
    """What it asked for happens whole, and is written down."""
    call = configurations(reg).UpdateConfiguration(pb.UpdateConfigurationRequest(rm_id="rm-1", config=TWO))
    asking = asyncio.ensure_future(call.code())
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    now = await status(reg)
    versions = await history(reg)
    assert versions[now.configuration_version - 1].checksum == now.configuration_checksum


async def test_health_of_the_file(tmp_path: Path) -> None:
    """A bad file is seen in a health service of its own and in the status; scheduling goes on serving."""
    file = tmp_path / "queues.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    async with running_core(default_config=CONFIG, config_file=file) as core:
        await core.register(config="")
        assert await health(core, CONFIGURATION_FILE) == "SERVING"
        file.write_text(BAD, encoding="utf-8")
        core.server.reload()
        await becomes(core, "NOT_SERVING")
        for service in ("", "si.v1.Scheduler", "kornel.v1.ConfigurationService"):
            assert await health(core, service) == "SERVING"
        found = await status(core)
        assert "line 1" in found.configuration_problem
        assert found.configuration_version == 1
        file.write_text(TWO, encoding="utf-8")
        core.server.reload()
        await becomes(core, "SERVING")
        found = await status(core)
        assert found.configuration_problem == ""
        assert "root.b" in [queue.path for queue in found.partitions[0].queues]


async def test_no_file_no_health(core: Core) -> None:
    """Without a file there is nothing to be healthy, and a request to read it again does no harm."""
    assert await refused(health(core, CONFIGURATION_FILE)) is grpc.StatusCode.NOT_FOUND
    core.server.reload()
    await core.serves()


async def test_watching(tmp_path: Path) -> None:
    """The watcher looks once a second of the core's clock."""
    file = tmp_path / "queues.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    async with running_core(default_config=CONFIG, config_file=file, watch=True) as core:
        await core.register(config="")
        file.write_text(TWO, encoding="utf-8")

        async with asyncio.timeout(PATIENCE_S):
            while (await status(core)).configuration_version != 2:
                core.clock.advance(SECOND_NS)
