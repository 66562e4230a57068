"""The room that is kept for waiting asks, over gRPC, REST and on the command line."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from kornel.core.cli.app import app
from tests.e2e.rest.shim import TREE, Cluster, P, rest_cluster


async def wait_for_claim(cluster: Cluster) -> None:
    """Fills n1 with three of four cores, and lets an ask for four wait until room is saved for it."""
    await cluster.register(TREE)
    await cluster.node("n1", vcore=4000)
    await cluster.submit("app")
    await cluster.ask("small", vcore=3000)
    await cluster.ask("big", vcore=4000)
    await cluster.wait(10)


async def test_a_claim_is_told_alike_everywhere() -> None:
    async with rest_cluster() as cluster:
        await wait_for_claim(cluster)
        (claim,) = await cluster.get(f"{P}/claims")
        assert (claim["allocationKey"], claim["kind"], claim["reason"], claim["place"]) == ("big", "saved", "age", "n1")
        assert (claim["held"], claim["missing"]) == ({"vcore": 4000}, {"vcore": 3000})
        assert claim["lapses"] > claim["since"]
        assert await cluster.get(f"{P}/claims?kind=firm") == []
        assert await cluster.get(f"{P}/claims?node=n2") == []
        await cluster.refused(f"{P}/claims?kind=soft", 400, "No such kind of claim")

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
