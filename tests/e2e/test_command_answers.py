"""What commands say before anybody registered, of work that has ended, and of earlier runs of the core."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kornel.cli.app import app
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import CONFIG, Conversation, Core
from tests.e2e.test_history import PREEMPTING, core_with, preempt, written


async def kornel(core: Core, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner(env={"KORNEL_ADDRESS": core.address}).invoke, app, [*arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ("queues",), ("apps",), ("nodes",), ("users",), ("top", "--count", "1"), ("drain", "list"), ("explain", "k"),
        ("queue", "show", "root"), ("user", "show", "ann"), ("drain", "node", "n1"), ("what-if", "node-lost", "n1"),
    ],
    ids=" ".join,
)  # fmt: skip
async def test_before_the_first_registration(core: Core, arguments: tuple[str, ...]) -> None:
    """What is missing is the manager, not what was asked about."""
    result = await kornel(core, *arguments)
    assert result.exit_code == 1
    assert "no resource manager is registered" in result.output


async def test_the_newest_events_are_those_that_were_asked_for(reg: Core) -> None:
    """However many others came after them."""
    found = await kornel(reg, "events", "--newest", "1", "--type", "QUEUE", "--object", "root.a", "--json")
    assert found.exit_code == 0, found.output
    (event,) = map(json.loads, found.output.splitlines())
    assert event["record"]["object_id"] == "root.a"
    both = await kornel(reg, "events", "--newest", "5", "--type", "QUEUE")
    assert len(both.output.splitlines()) == 2


async def test_work_that_has_ended_is_explained_by_the_history(tmp_path: Path) -> None:
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        await preempt(core)
        async with Conversation.open(core.scheduler.UpdateApplication()) as applications:
            gone = si.ApplicationRequest(rmID="rm-1")
            gone.remove.add(applicationID="filler", partitionName="[rm-1]default")
            await applications.send(gone)
            await core.settle()
        await written(core)
        application = await kornel(core, "explain", "filler")
        assert application.exit_code == 0, application.output
        assert "filler has ended. Its states:" in application.output
        assert "What it lost or gained by preemption:" in application.output
        ask = await kornel(core, "explain", "fill-0")
        assert ask.exit_code == 0, ask.output
        nobody = await kornel(core, "explain", "nobody")
        assert nobody.exit_code == 1


async def test_a_text_with_hidden_secrets_is_shown_with_a_word_about_them(tmp_path: Path) -> None:
    """On standard error, so that what is piped away is the text and nothing else. Also for a text of an earlier run."""
    database = str(tmp_path / "history.db")
    secret = CONFIG.replace("name: a\n", "name: a\n            properties: {ldap.bindPassword: hunter2}\n")
    async with core_with(database, tmp_path) as core:
        await core.register(config=secret)
        await written(core)
    async with core_with(database, tmp_path) as core:
        await core.register(config=CONFIG)
        await written(core)
        listed = (await kornel(core, "config", "history")).output.splitlines()
        earlier = listed[2].split()[0]
        shown = await kornel(core, "config", "show", earlier)
        assert shown.stdout == secret.replace("hunter2", "[hidden]")
        assert "secrets are shown as [hidden]; cores refuse such a text, but" in shown.stderr
        assert "differences between them cannot be seen" in (await kornel(core, "config", "diff", earlier)).stderr
        assert not (await kornel(core, "config", "show")).stderr


async def test_configurations_of_earlier_runs(tmp_path: Path) -> None:
    """Listed behind those of this run, compared and shown under RUN/NUMBER; who registers again makes no version."""
    database = str(tmp_path / "history.db")
    async with core_with(database, tmp_path) as core:
        await core.register(config=PREEMPTING)
        await written(core)
    async with core_with(database, tmp_path) as core:
        await core.register(config=CONFIG)
        await core.register(config=CONFIG)
        await written(core)
        listed = (await kornel(core, "config", "history")).output.splitlines()
        names = [line.split()[0] for line in listed[1:] if "registration" in line]
        assert len(names) == 2, listed
        assert names[0] == "1"
        assert names[1].endswith("/1")
        shown = await kornel(core, "config", "show", names[1])
        assert "preemption.delay" in shown.output
        difference = await kornel(core, "config", "diff", names[1], "--json")
        found = json.loads(difference.output)
        assert any(line.startswith("-") and "preemption.delay" in line for line in found["lines"])
        assert found["after"]["in_force"] is True
        assert (await kornel(core, "config", "show", "nonsense")).exit_code == 2
        assert (await kornel(core, "config", "show", "00000000/1")).exit_code == 1
