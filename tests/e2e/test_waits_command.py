"""``kornel waits``: who waits the longest, for what, and sums of it."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.service.machine.clock import SECOND_NS
from tests.e2e.rest.shim import P, rest_cluster

QUEUES = "[{name: a}, {name: b, resources: {max: {vcore: 10m}}}]"
CONFIG = f"partitions: [{{name: default, queues: [{{name: root, submitacl: '*', queues: {QUEUES}}}]}}]\n"


async def test_who_waits_the_longest_comes_first_and_for_what() -> None:
    """What is explained is the ask whose age is shown, not the one that is tried first; sums are of all asks."""
    async with rest_cluster() as cluster:
        core = cluster.core

        async def said(*arguments: str, status: int = 0) -> str:
            result = await asyncio.to_thread(CliRunner(env={"KORNEL_ADDRESS": core.address}).invoke, app, [*arguments])
            assert result.exit_code == status, result.output
            return str(result.output)

        await cluster.register(CONFIG)
        await cluster.node("n1", vcore=1, memory=1)
        await cluster.submit("one", queue="root.a", user="ann")
        await cluster.submit("two", queue="root.b", user="bob")
        await cluster.submit("three", queue="root.b", user="ann")
        asks = [
            ("two", "vcore", 0),
            ("three", "vcore", 0),
            ("one", "memory", 0),
            ("two", "memory", 9),
            ("two", "memory", 9),
        ]
        for number, (name, wanted, priority) in enumerate(asks):
            await cluster.ask(f"k{number}", name, {"priority": priority}, **{wanted: 50})
            core.clock.advance(60 * SECOND_NS)
        rows = [line.split() for line in (await said("waits")).splitlines()]
        assert [row[:3] for row in rows[1:]] == [
            ["two", "root.b", "3"],
            ["three", "root.b", "1"],
            ["one", "root.a", "1"],
        ]
        assert ["root.b" in row[4:] for row in rows[1:]] == [True, True, False]
        by_queue = [line.split()[:3] for line in (await said("waits", "--by", "queue")).splitlines()]
        assert by_queue[1:] == [["root.b", "2", "4"], ["root.a", "1", "1"]]
        by_user = [line.split()[:3] for line in (await said("waits", "--by", "user")).splitlines()]
        assert by_user[1:] == [["bob", "1", "3"], ["ann", "2", "2"]]
        assert "... and 1 more, see --limit" in await said("waits", "--limit", "2")
        found = json.loads(await said("waits", "--by", "user", "--json"))["waits"]
        assert [(one["name"], one["ask_key"], one["obstacle"]["name"]) for one in found] == [
            ("bob", "k0", "root.b"),
            ("ann", "k1", "root.b"),
        ]
        await said("waits", "--by", "rack", status=2)
        told = await cluster.get(f"{P}/waits?by=user&limit=1")
        assert told["waitCount"] == 2
        assert [(one["name"], one["askKey"], one["obstacle"]["kind"]) for one in told["waits"]] == [
            ("bob", "k0", "queue-quota")
        ]
        assert [one["name"] for one in (await cluster.get(f"{P}/waits?queue=ROOT.A"))["waits"]] == ["one"]
        await cluster.refused(f"{P}/waits?by=rack", 400)


async def test_what_is_stranded_is_told_over_rest() -> None:
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        await cluster.node("n1", vcore=1, memory=8)
        await cluster.node("n2", vcore=4, memory=8)
        await cluster.submit("one", queue="root.a")
        for key, vcore in {"k1": 4, "k2": 3}.items():
            await cluster.ask(key, "one", vcore=vcore)
        found = await cluster.get(f"{P}/stranded")
        assert {node["nodeId"]: node["stranded"] for node in found["nodes"]} == {"n1": {"vcore": 1}, "n2": {}}
        page = await cluster.get(f"{P}/stranded?pageSize=1")
        rest = await cluster.get(f"{P}/stranded?pageSize=1&pageToken={quote(page['nextPageToken'])}")
        assert [node["nodeId"] for node in rest["nodes"]] == ["n2"]
