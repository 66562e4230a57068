"""The room that is kept for waiting asks, over gRPC, REST and on the command line."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.v1 import read_pb2 as pb
from kornel.v1 import read_pb2_grpc
from tests.e2e.rest.shim import TREE, Cluster, P, rest_cluster

TWO_LIMITS = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
            resources: {max: {vcore: 3}}
            limits:
              - limit: each
                users: ["*"]
                maxresources: {vcore: 3}
"""


async def wait_for_claim(cluster: Cluster) -> None:
    """Fills n1 with three of four cores, and lets an ask for four wait until room is saved for it."""
    await cluster.register(TREE)
    await cluster.node("n1", vcore=4000)
    await cluster.submit("app")
    await cluster.ask("small", vcore=3000)
    await cluster.ask("big", vcore=4000)
    await cluster.wait(10)


async def wait_below_limits(cluster: Cluster) -> None:
    """Lets ann hold two of three cores of a queue and of her own limit, while an ask for three saves the rest."""
    await cluster.register(TWO_LIMITS)
    await cluster.node("n1", vcore=9000)
    await cluster.submit("app")
    for key in ("r1", "r2", "r3"):
        await cluster.ask(key, vcore=1000)
    await cluster.ask("big", vcore=3000)
    await cluster.wait(4)
    await cluster.release("r1")
    await cluster.wait(4)


async def test_a_claim_is_told_alike_everywhere() -> None:
    async with rest_cluster() as cluster:
        await wait_for_claim(cluster)
        (claim,) = await cluster.get(f"{P}/claims")
        assert (claim["allocationKey"], claim["kind"], claim["reason"], claim["place"]) == ("big", "saved", "age", "n1")
        assert (claim["held"], claim["missing"]) == ({"vcore": 4000}, {"vcore": 3000})
        assert claim["lapses"] > claim["since"]
        assert await cluster.get(f"{P}/claims?kind=firm") == []
        assert await cluster.get(f"{P}/claims?node=n2") == []
        said = "'soft' is no kind of claim: they are firm and saved"
        await cluster.refused(f"{P}/claims?kind=soft", 400, said)

        runner = CliRunner(env={"KORNEL_ADDRESS": cluster.core.address})
        listed = await asyncio.to_thread(runner.invoke, app, ["claims", "--app", "app", "--kind", "Saved", "--json"])
        (told,) = json.loads(listed.output)["claims"]
        assert (told["allocation_key"], told["held"], told["missing"]) == ("big", {"vcore": "4000"}, {"vcore": "3000"})
        table = await asyncio.to_thread(runner.invoke, app, ["claims"])
        assert "vcore=3" in table.output, table.output
        explained = await asyncio.to_thread(runner.invoke, app, ["explain", "big"])
        said = " ".join(explained.output.split())
        assert (
            "what ends there is kept for this ask, but is not enough yet; room has been collected there since" in said
        )


async def test_pages_of_claims_miss_and_repeat_none() -> None:
    """An ask that a queue and a user refuse has two claims with one key."""
    async with rest_cluster() as cluster:
        await wait_below_limits(cluster)
        whole = [claim["place"] for claim in await cluster.get(f"{P}/claims")]
        assert whole == ["root.default", "ann in root.default"]
        first = await cluster.http.get(f"{P}/claims?limit=1")
        assert [claim["place"] for claim in first.json()] == whole[:1]
        second = await cluster.http.get(first.links["next"]["url"])
        assert [claim["place"] for claim in second.json()] == whole[1:]
        assert "next" not in second.links

        wanted = pb.ListClaimsRequest(page_size=1)
        stub, told = read_pb2_grpc.ReadServiceStub(cluster.core.channel), list[str]()
        while not told or wanted.page_token:
            page = await stub.ListClaims(wanted)
            told += [claim.place for claim in page.claims]
            wanted.page_token = page.next_page_token
        assert told == whole

        runner = CliRunner(env={"KORNEL_ADDRESS": cluster.core.address})
        table = await asyncio.to_thread(runner.invoke, app, ["claims"])
        for text in ("stalled", "queue root.default", "user ann in root.default"):
            assert text in table.output, table.output
