"""``kornel waits``: who waits the longest, for what, and sums of it."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.service.machine.clock import SECOND_NS
from tests.e2e.rest.shim import rest_cluster

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
        found = json.loads(await said("waits", "--limit", "2", "--json"))
        assert [each["application_id"] for each in found["applications"]] == ["two", "three"]
        await said("waits", "--by", "user", "--json", status=2)


async def test_what_is_not_asked_is_not_taken_for_nothing() -> None:
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        names = [f"app-{number:02}" for number in range(22)]
        await cluster.submit(*names, queue="root.a")
        for name in names:
            await cluster.ask(f"k-{name}", name, vcore=50)
        result = await asyncio.to_thread(
            CliRunner(env={"KORNEL_ADDRESS": cluster.core.address}).invoke, app, ["waits", "--limit", "0"]
        )
        assert [line.endswith("not asked") for line in result.output.splitlines()[1:]] == [False] * 20 + [True] * 2
