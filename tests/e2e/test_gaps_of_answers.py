"""What people asked the command line for in vain: stranded amounts, why a key is unknown, and properties of a queue."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import Core
from tests.e2e.rest.shim import rest_cluster

CONFIG = """
partitions:
  - name: default
    topology: [rack]
    queues:
      - {name: root, submitacl: "*", queues: [{name: a, properties: {preemption.delay: 90s}}]}
"""


async def said(core: Core, *arguments: str, status: int = 0) -> str:
    result = await asyncio.to_thread(CliRunner(env={"KORNEL_ADDRESS": core.address}).invoke, app, [*arguments])
    assert result.exit_code == status, result.output
    return str(result.output)


async def test_what_is_stranded_is_summed_up_by_type_and_rack() -> None:
    """GPUs are free on two nodes whose cores are used up: what wants one fits on neither. Nobody waits for memory."""
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        for name, rack, used in (("n1", "r1", 4000), ("n2", "r2", 3000), ("n3", "r2", 4000)):
            await cluster.node(name, {"rack": rack}, vcore=4000, gpu=8, memory=100)
            if name == "n1":
                await cluster.submit("app", queue="root.a")
            await cluster.ask(f"v{name}", "app", {"nodeID": name}, vcore=used, gpu=2 if name == "n3" else 1)
        assert "nothing is stranded" in await said(cluster.core, "nodes", "--sort", "stranded")
        await cluster.ask("big", "app", vcore=2000, gpu=4)
        await cluster.ask("small", "app", vcore=2000, gpu=1)
        shown = [line.split() for line in (await said(cluster.core, "nodes", "--sort", "stranded")).splitlines()]
        assert shown == [
            ["stranded,", "of", "what", "is", "free:", "1", "of", "1", "vcore,", "20", "of", "20", "gpu"],
            [],
            ["domain", "vcore", "gpu"],
            ["r1", "0", "7"],
            ["r2", "1", "13"],
            [],
            ["node", "vcore", "gpu"],
            ["n1", "0", "7"],
            ["n2", "1", "7"],
            ["n3", "0", "6"],
        ]
        found = json.loads(await said(cluster.core, "nodes", "--sort", "stranded", "--limit", "1", "--json"))
        assert [(each["node_id"], each["stranded"]) for each in found["nodes"]] == [("n1", {"gpu": "7"})]
        for option in (["n1"], ["--draining"], ["--by", "rack"]):
            await said(cluster.core, "nodes", *option, "--sort", "stranded", status=2)
        cores = (await said(cluster.core, "nodes", "--sort", "stranded", "--type", "vcore")).splitlines()
        assert [line.split() for line in cores[1:]] == [
            [],
            ["domain", "vcore"],
            ["r2", "1"],
            [],
            ["node", "vcore"],
            ["n2", "1"],
        ]


async def test_who_saves_room_for_long_still_waits_and_what_a_node_owes_hides_nothing() -> None:
    """The ask has a claim on n2 after two seconds. Of n1, which shrank, nothing is free, and nothing is owed to the
    sum."""
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        for name in ("n1", "n2"):
            await cluster.node(name, vcore=4000)
            if name == "n1":
                await cluster.submit("app", queue="root.a")
            await cluster.ask(f"v{name}", "app", {"nodeID": name}, vcore=3000)
        await cluster.ask("big", "app", vcore=4000)
        await cluster.wait(5)
        assert "Reserved" in await said(cluster.core, "explain", "big")
        await cluster.node_action("n1", si.NodeInfo.UPDATE, vcore=1000)
        shown = await said(cluster.core, "nodes", "--sort", "stranded")
        assert shown.splitlines()[0] == "stranded, of what is free: 1 of 1 vcore"


async def test_who_asks_for_an_application_that_has_ended_hears_how() -> None:
    """In the refusal, and from explain."""
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        await cluster.node("n1", vcore=4000)
        await cluster.submit("ray", queue="root.a")
        await cluster.ask("k0", "ray", vcore=1)
        await cluster.remove("ray")
        await cluster.wait(15)
        await cluster.ask("k1", "ray", vcore=1)
        shown = " ".join((await said(cluster.core, "explain", "k1")).split())
        assert "k1 is unknown, and was refused" in shown
        assert "no application 'ray'; one of that name ended 15 s ago as Completed" in shown


async def test_a_queue_shows_its_properties() -> None:
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        assert "preemption.delay: 90s" in await said(cluster.core, "queue", "show", "root.a")
        shown = json.loads(await said(cluster.core, "queue", "show", "root.a", "--json"))
        assert shown["properties"]["preemption.delay"] == "90s"
