"""Health, state dump, stacks and log levels (rest.md 11, cases 60 to 64)."""

from __future__ import annotations

import asyncio
import json

import pytest

from kornel.core.engine.engine import Engine
from kornel.core.rest.handlers.dump import MOST_DUMPS
from kornel.core.service.logs.logs import LevelSwitch, LogLevel
from kornel.v1 import callback_pb2 as pb
from kornel.v1 import callback_pb2_grpc
from tests.e2e.harness import Conversation, running_core
from tests.e2e.rest.shim import PREFIX, TREE, Cluster, P, rest_cluster
from tests.patience import PATIENCE_S

HEALTH = f"{PREFIX}/scheduler/healthcheck"
DUMP = "/debug/fullstatedump"
CHECKS = [
    "Scheduling errors",
    "Failed nodes",
    "Negative resources",
    "Negative resources",
    "Consistency of data",
    "Consistency of data",
    "Reservation check",
    "Orphan allocation on node check",
    "Orphan allocation on app check",
    "Resource manager check",
    "Claim check",
]


async def test_case_60_health(cluster: Cluster) -> None:
    found = await cluster.get(HEALTH)
    assert found["Healthy"] is True
    assert [check["Name"] for check in found["HealthChecks"]] == CHECKS
    await cluster.ask("k", "nobody", vcore=1)
    await cluster.wait(31)
    found = await cluster.get(HEALTH)
    assert found["Healthy"] is False
    assert [check["Succeeded"] for check in found["HealthChecks"]] == [False] + [True] * 10
    assert (await cluster.http.get(f"{HEALTH}?strict=true")).status_code == 503
    await cluster.refused(f"{HEALTH}?strict=perhaps", 400)


async def test_case_60_health_before_the_first_run(cluster: Cluster) -> None:
    cluster.core.server.health.report = None
    await cluster.refused(HEALTH, 404, "Health check is not available")


async def test_case_61_foreign_load_is_no_orphan(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.ask("f", "", fields={"nodeID": "n1", "allocationTags": {"foreign": "default"}}, vcore=2)
    await cluster.wait(31)
    assert (await cluster.get(HEALTH))["Healthy"] is True


async def test_case_61_orphans_on_either_side() -> None:
    """The books are damaged by hand, as no request could."""
    engine = Engine()
    async with rest_cluster(engine=engine) as cluster:
        await cluster.register(TREE)
        await cluster.node("n1", vcore=10)
        await cluster.submit("app")
        await cluster.ask("k", vcore=1)
        state = engine.partition("[rm-1]default")
        assert state is not None

        async def failed() -> list[int]:
            await cluster.wait(31)
            found = await cluster.get(HEALTH)
            numbers = [number for number, check in enumerate(found["HealthChecks"]) if not check["Succeeded"]]
            assert found["Healthy"] is not bool(numbers)
            return numbers

        assert await failed() == []
        application = state.applications.pop("app")
        assert await failed() == [7]
        state.applications["app"] = application
        allocations = dict(state.nodes["n1"].allocations)
        state.nodes["n1"].allocations.clear()
        assert await failed() == [8]
        state.nodes["n1"].allocations.update(allocations)
        assert await failed() == []


async def test_case_62_interval_of_the_checks(cluster: Cluster) -> None:
    async def fails_after(seconds: float) -> bool:
        await cluster.wait(seconds)
        return not (await cluster.get(HEALTH))["Healthy"]

    await cluster.configure(TREE, health_checkInterval="0")
    await cluster.ask("k", "nobody", vcore=1)
    assert not await fails_after(120)
    await cluster.configure(TREE, health_checkInterval="1s")
    assert await fails_after(2)
    await cluster.configure(TREE, health_checkInterval="abc")
    await cluster.wait(660)
    assert not await fails_after(31)


async def test_case_63_state_dump(cluster: Cluster) -> None:
    answer = await cluster.http.get(f"{PREFIX}/fullstatedump")
    assert answer.status_code == 301
    assert answer.headers["location"].endswith("/debug/fullstatedump")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    await cluster.ask("k", vcore=1)
    await cluster.submit("bad", user="no user!")
    answer = await cluster.http.get(DUMP)
    dump = answer.json()
    assert dump["partitions"] == await cluster.get(f"{PREFIX}/partitions")
    assert dump["queues"] == [await cluster.get(f"{P}/queues")]
    assert dump["nodes"] == [{"partitionName": "default", "nodesInfo": await cluster.get(f"{P}/nodes")}]
    assert [found["applicationID"] for found in dump["applications"]] == ["app", "bad"]
    assert dump["placementRules"] == [{"partition": "default", "rules": await cluster.get(f"{P}/placementrules")}]
    assert dump["config"] == await cluster.get(f"{PREFIX}/config", Accept="application/json")
    assert dump["clusterInfo"] == await cluster.get(f"{PREFIX}/clusters")
    assert dump["timestamp"] == cluster.core.clock.now_ns()
    assert dump["rmDiagnostics"]["empty"]
    assert dump["logLevel"] == "info"
    assert answer.text.startswith('{\n  "timestamp": ')
    assert json.loads(answer.text) == dump
    await cluster.configure(TREE, log_level="WARN")
    assert (await cluster.http.get(DUMP)).json()["logLevel"] == "warn"


async def test_case_63_parts_of_a_dump_and_what_is_masked(cluster: Cluster) -> None:
    await cluster.configure(TREE, ldap_bindPassword="hunter2", service_x="y")
    dump = (await cluster.http.get(f"{DUMP}?include=config")).json()
    assert dump.keys() == {"timestamp", "config"}
    assert dump["config"]["Extra"] == {"ldap.bindPassword": "[hidden]", "service.x": "y"}


async def test_secrets_in_values_are_masked_wherever_settings_are_shown(fresh: Cluster) -> None:
    """Whatever the setting is called."""
    token = "krn_" + "a" * 43
    text = TREE.replace(
        "name: a1", "name: a1\n                properties: {hook: 'https://bob:hunter2@host/x', a: password=hunter2}"
    )
    assert text != TREE
    await fresh.register(
        text, {"buildToken": "hunter2", "source": "https://bob:hunter2@git/x", "seal": token}, service_url=f"x {token}"
    )
    for path in (DUMP, f"{PREFIX}/config", f"{PREFIX}/clusters", f"{P}/queues"):
        for accepted in ("application/json", "*/*"):
            shown = (await fresh.http.get(path, headers={"Accept": accepted})).text
            assert "hunter2" not in shown, path
            assert token not in shown, path
    assert "https://[hidden]@host/x" in (await fresh.http.get(f"{PREFIX}/config")).text
    [cluster] = await fresh.get(f"{PREFIX}/clusters")
    assert cluster["rmBuildInformation"] == [
        {"buildToken": "[hidden]", "seal": "[hidden]", "source": "https://[hidden]@git/x", "rmId": "rm-1"}
    ]


async def test_secrets_in_what_the_shim_says_of_itself_are_masked(cluster: Cluster) -> None:
    stub = callback_pb2_grpc.CallbackServiceStub(cluster.core.channel)
    said = {"pods": [{"allocationKey": "k", "url": "redis://:hunter2@db"}], "config": {"apiToken": "hunter2"}}
    async with Conversation.open(stub.Attach()) as stream:
        await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", state_dump=True)))
        await stream.receive()
        asking = asyncio.create_task(cluster.http.get(DUMP))
        question = (await stream.receive()).state_dump
        answer = pb.StateDumpAnswer(question_id=question.question_id, json=json.dumps(said))
        await stream.send(pb.AttachRequest(state_dump=answer))
        assert (await asking).json()["rmDiagnostics"] == {
            "pods": [{"allocationKey": "k", "url": "redis://[hidden]@db"}],
            "config": {"apiToken": "[hidden]"},
        }


@pytest.mark.parametrize(
    ("said", "key"), [('{"pods": 3}', "pods"), ("[1]", "Error"), ("nope", "Error"), ('{"a": NaN}', "Error")]
)
async def test_case_63_what_the_shim_says(cluster: Cluster, said: str, key: str) -> None:
    stub = callback_pb2_grpc.CallbackServiceStub(cluster.core.channel)
    async with Conversation.open(stub.Attach()) as stream:
        await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", state_dump=True)))
        await stream.receive()
        asking = asyncio.create_task(cluster.http.get(DUMP))
        question = (await stream.receive()).state_dump
        answer = pb.StateDumpAnswer(question_id=question.question_id, json=said)
        await stream.send(pb.AttachRequest(state_dump=answer))
        assert key in (await asking).json()["rmDiagnostics"]


async def test_dumps_that_wait_for_a_slow_shim_hold_up_no_lists(cluster: Cluster) -> None:
    """Only what is being made takes one of the few places for long answers."""
    stub = callback_pb2_grpc.CallbackServiceStub(cluster.core.channel)
    async with Conversation.open(stub.Attach()) as stream:
        await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", state_dump=True)))
        await stream.receive()
        dumps = [asyncio.create_task(cluster.http.get(DUMP)) for _ in range(3)]
        question = (await stream.receive()).state_dump
        assert await asyncio.wait_for(cluster.get(f"{P}/nodes"), PATIENCE_S) == []
        assert not any(dump.done() for dump in dumps)
        for number in range(3):
            if number:
                question = (await stream.receive()).state_dump
            answer = pb.StateDumpAnswer(question_id=question.question_id, json='{"pods": 3}')
            await stream.send(pb.AttachRequest(state_dump=answer))
        for dump in dumps:
            assert (await dump).json()["rmDiagnostics"] == {"pods": 3}


async def test_few_dumps_wait_for_others(cluster: Cluster) -> None:
    stub = callback_pb2_grpc.CallbackServiceStub(cluster.core.channel)
    async with Conversation.open(stub.Attach()) as stream:
        await stream.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", state_dump=True)))
        await stream.receive()
        dumps = [asyncio.create_task(cluster.http.get(DUMP)) for _ in range(MOST_DUMPS + 1)]
        [refused], waiting = await asyncio.wait(dumps, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
        answer = await refused
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        for dump in waiting:
            dump.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_case_64_stacks(fresh: Cluster) -> None:
    answer = await fresh.http.get("/debug/stack")
    assert answer.status_code == 200
    assert "debug.py" in answer.text
    assert "in stack" in answer.text
    moved = await fresh.http.get(f"{PREFIX}/stack")
    assert (moved.status_code, moved.headers["location"]) == (301, "/debug/stack")


@pytest.mark.parametrize(("name", "status"), [("cmdline", 200), ("heap", 501), ("trace", 501), ("nope", 404)])
async def test_profiles_of_go_are_not_there(fresh: Cluster, name: str, status: int) -> None:
    """Debug route D3."""
    assert (await fresh.http.get("/debug/pprof/")).status_code == 301
    assert "cmdline" in (await fresh.http.get("/debug/pprof")).text
    assert (await fresh.http.get(f"/debug/pprof/{name}")).status_code == status


async def test_probes(fresh: Cluster) -> None:
    """A core that is damaged lives and is not ready."""
    assert (await fresh.http.get("/healthz/live")).status_code == 200
    assert (await fresh.http.get("/healthz/ready")).status_code == 200
    managers = fresh.core.server.managers
    managers.note_damage(managers.first, damaged=True)
    assert (await fresh.http.get("/healthz/live")).status_code == 200
    assert (await fresh.http.get("/healthz/ready")).status_code == 503


async def test_a_core_on_its_way_down_does_not_become_ready_again() -> None:
    """Its journal may be written again meanwhile; nobody may send it anything for that."""
    async with running_core() as core:
        core.server._on_journal_problem("the database cannot be reached")
        assert not core.server.readiness.ready
        core.server._on_journal_problem("")
        assert core.server.readiness.ready
        core.server._on_journal_problem("the database cannot be reached")
    core.server._on_journal_problem("")
    assert not core.server.readiness.ready


def test_level_of_logs_follows_the_settings() -> None:
    """Any case, numbers of zap too; what is no level means the one at the start."""
    switch = LevelSwitch(LogLevel.INFO)
    for said, level in (("WARN", "warn"), ("debug", "debug"), ("2", "error"), ("loud", "info"), ("", "info")):
        switch.follow_settings({"log.level": said})
        assert switch.name == level
