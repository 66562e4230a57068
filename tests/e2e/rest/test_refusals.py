"""What was refused, and why, over HTTP, over gRPC and on the command line."""

from __future__ import annotations

import json

import grpc
import pytest

from kornel.v1 import read_pb2, read_pb2_grpc
from tests.e2e.rest.shim import PREFIX, Cluster, rest_cluster
from tests.e2e.test_command_answers import kornel

AT = f"{PREFIX}/scheduler/refusals"
WRONG = "partitions: [{name: default, queues: [{name: root, queues: [{name: 'a b'}]}]}]"


async def refuse_some(cluster: Cluster) -> None:
    """Have an ask, an application, a node and a configuration refused, in this order."""
    await cluster.register()
    await cluster.node("n1", vcore=4_000)
    await cluster.ask("lost", "nobody", vcore=1_000)
    await cluster.submit("app", queue="root.nowhere", user="ann")
    await cluster.node("n1", vcore=4_000)
    with pytest.raises(grpc.aio.AioRpcError):
        await cluster.configure(WRONG)


async def test_what_was_refused_and_why() -> None:
    async with rest_cluster() as cluster:
        assert await cluster.get(AT) == {
            "counts": {"ask": 0, "application": 0, "node": 0, "configuration": 0},
            "refusals": [],
        }
        await refuse_some(cluster)
        found = await cluster.get(AT)
        assert found["counts"] == {"ask": 1, "application": 1, "node": 1, "configuration": 1}
        assert [(each["kind"], each["name"], each["reason"]) for each in found["refusals"]] == [
            ("configuration", "2", "bad-configuration"),
            ("node", "n1", "node-exists"),
            ("application", "app", "no-queue"),
            ("ask", "lost", "application-not-found"),
        ]
        application = found["refusals"][2]
        assert application["user"] == "ann"
        assert application["queueName"] == "root.nowhere"
        assert application["partition"] == "default"
        assert application["rmID"] == "rm-1"
        assert application["time"] == cluster.core.clock.now_ns()
        assert "a b" in found["refusals"][0]["message"]
        assert found["refusals"][3]["applicationID"] == "nobody"
        only = await cluster.get(f"{AT}?kind=node&partition=default&limit=5")
        assert [each["name"] for each in only["refusals"]] == ["n1"]
        elsewhere = await cluster.get(f"{AT}?partition=other")
        assert [each["kind"] for each in elsewhere["refusals"]] == ["configuration"]
        assert len((await cluster.get(f"{AT}?limit=1"))["refusals"]) == 1
        await cluster.refused(f"{AT}?kind=queue", 400)


async def test_an_answer_fits_into_a_message() -> None:
    """The newest, as many as there is room for, however long the names are that were refused."""
    async with rest_cluster() as cluster:
        await cluster.register()
        for number in range(100):
            await cluster.ask(f"lost-{number}", "n" * 60_000, vcore=1_000)
        stub = read_pb2_grpc.ReadServiceStub(cluster.core.channel)
        found = await stub.ListRefusals(read_pb2.ListRefusalsRequest())
        assert 2**20 < found.ByteSize() < 4 * 2**20
        numbers = [refused.number for refused in found.refusals]
        assert numbers == list(range(100, 100 - len(numbers), -1))
        assert found.counts["ask"] == 100


async def test_the_same_over_grpc_and_on_the_command_line() -> None:
    async with rest_cluster() as cluster:
        await refuse_some(cluster)
        stub = read_pb2_grpc.ReadServiceStub(cluster.core.channel)
        found = await stub.ListRefusals(read_pb2.ListRefusalsRequest(kind=read_pb2.REFUSAL_KIND_APPLICATION))
        [refused] = found.refusals
        assert (refused.name, refused.reason, refused.queue) == ("app", "no-queue", "root.nowhere")
        assert found.counts == {"ask": 1, "application": 1, "node": 1, "configuration": 1}
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.ListRefusals(read_pb2.ListRefusalsRequest(kind=99))  # type: ignore[arg-type]
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        said = await kornel(cluster.core, "refusals")
        assert said.stdout.startswith("refused since the core started: 1 application, 1 ask, 1 configuration, 1 node")
        for text in ("node-exists", "no-queue", "application-not-found", "bad-configuration", "lost", "nobody"):
            assert text in said.stdout
        said = await kornel(cluster.core, "refusals", "--kind", "node", "--json")
        assert [each["name"] for each in json.loads(said.stdout)["refusals"]] == ["n1"]
