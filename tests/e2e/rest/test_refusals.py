"""What was refused, and why, over HTTP, over gRPC and on the command line."""

from __future__ import annotations

import json

import grpc
import pytest

from kornel.core.domain.names import LONGEST_NAME
from kornel.core.service.calls.long_answers import fill_answer
from kornel.core.service.events.refusals import KEPT_OF_KIND, Refusal, RefusalKind
from kornel.core.service.services.read_service import encode_refusal
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
        assert application["partition"] == "[rm-1]default"
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
    """The newest, as many as there is room for, however long the texts are that were refused."""
    text = "\N{BUG}" * LONGEST_NAME
    records = [
        encode_refusal(Refusal(number, 1, kind, text, "rm", text, text, text, text, "no-queue", text))
        for number in range(KEPT_OF_KIND, 0, -1)
        for kind in RefusalKind
    ]
    answer = read_pb2.ListRefusalsResponse(refusals=await fill_answer(records))
    assert 2 * 2**20 < answer.ByteSize() < 4 * 2**20
    assert [each.number for each in answer.refusals] == [each.number for each in records[: len(answer.refusals)]]
    assert len(await fill_answer(records[:3])) == 3


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
