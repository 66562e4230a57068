"""``kornel events`` as people and scripts use it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.cli.text.events import render_event
from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.resources import Resources
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import events_pb2 as pb
from tests.e2e.harness import Core, running_core
from tests.patience import PATIENCE_S
from tests.prepared import python
from tests.waiting import until

ROOT = Path(__file__).parents[2]


async def kornel(core: Core, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["events", *arguments, "--grpc", core.address])


def record(core: Core, *names: str) -> None:
    resources = Resources({"vcore": 500, "memory": 7})
    happened = [EventRecorded(2, name, "k", 2, 200, 1_790_000_000_123_456_789, resources, "so") for name in names]
    core.server.events.observe(happened)


async def test_the_newest_events_in_lines(reg: Core) -> None:
    record(reg, "app-1", "app-2")
    found = await kornel(reg, "--newest", "2")
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        f'      {number} 2026-09-21T14:13:20.123Z APP       {name} ADD APP_ALLOC k vcore=500m memory=7 "so"'
        for number, name in ((2, "app-1"), (3, "app-2"))
    ]


@pytest.mark.parametrize(
    ("arguments", "objects"),
    [
        (["--since", "3"], ["app-2", "job-3"]),
        (["--app", "app"], ["app-1", "app-2"]),
        (["--type", "queue", "--queue", "root.a"], ["root.a"]),
        (["--object", "job"], ["job-3"]),
        (["--type", "QUEUE", "--type", "NODE"], ["root", "root.a"]),
        (["--node", "n"], []),
        (["--newest", "0"], []),
    ],
)
async def test_what_is_left_out(reg: Core, arguments: list[str], objects: list[str]) -> None:
    record(reg, "app-1", "app-2", "job-3")
    found = await kornel(reg, "--json", *arguments)
    assert found.exit_code == 0
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert [line["record"]["object_id"] for line in lines] == objects
    assert all(line["instance"] == reg.server.events.instance for line in lines)


async def test_a_restart_since_then_is_told_on_standard_error(reg: Core) -> None:
    found = await kornel(reg, "--since", "0000-00:17", "--json")
    assert found.exit_code == 0
    assert found.stderr == "the core was restarted: the last events before that are lost, and IDs begin at 0 again\n"
    assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == ["0", "1"]


async def test_lost_events_are_told_on_standard_error(reg: Core) -> None:
    reg.server.events.follow_settings({"event.ringBufferCapacity": "1"})
    record(reg, "a", "b")
    found = await kornel(reg, "--since", "1")
    assert found.stderr == "events 1 to 2 are lost: the core no longer keeps them\n"
    assert len(found.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--since", "x"], 2, "--since: 'x' is not ID or INSTANCE:ID, for instance 4711"),
        (["--type", "POD"], 2, "--type: 'POD' is not one of REQUEST, APP, NODE, QUEUE, USERGROUP"),
        (["--since", "99"], 1, "event 99 has not happened yet; the next one is 2"),
    ],
)
async def test_what_cannot_be_shown(reg: Core, arguments: list[str], code: int, said: str) -> None:
    found = await kornel(reg, *arguments)
    assert (found.exit_code, found.stdout) == (code, "")
    assert found.stderr.strip().endswith(said)


async def test_nobody_there() -> None:
    found = await asyncio.to_thread(CliRunner().invoke, app, ["events", "--grpc", "127.0.0.1:1"])
    assert found.exit_code == 1
    assert found.stderr.startswith("no core answers at 127.0.0.1:1; start one with `kornel serve`")


@asynccontextmanager
async def follow_events(address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs ``kornel events --follow``, and leaves nothing of it behind."""
    follower = await asyncio.create_subprocess_exec(
        *(python(), "-m", "kornel", "events", "--follow", "--json", "--grpc", address),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield follower
    finally:
        if follower.returncode is None:
            follower.kill()
            await follower.communicate()


async def test_follow_survives_a_restart_of_the_core_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    """What the next life of the core records is shown too, and that it is another one is said."""
    address = f"unix:{tmp_path / 'core'}"
    async with AsyncExitStack() as stack:
        async with running_core(address=address) as first:
            await first.register()
            follower = await stack.enter_async_context(follow_events(address))

            async def read_event() -> tuple[str, str]:
                assert follower.stdout is not None
                line = json.loads(await asyncio.wait_for(follower.stdout.readline(), PATIENCE_S))
                return line["instance"], line["record"]["object_id"]

            for name in ("root", "root.a"):
                assert await read_event() == (first.server.events.instance, name)
            record(first, "live")
            assert await read_event() == (first.server.events.instance, "live")
            await first.server.stop()
        async with running_core(address=address) as second:
            await second.register()
            for name in ("root", "root.a"):
                assert await read_event() == (second.server.events.instance, name)
            follower.send_signal(signal.SIGINT)
            _, said = await asyncio.wait_for(follower.communicate(), PATIENCE_S)
            assert follower.returncode == 0
            text = said.decode()
            assert 0 < text.find("; trying again\n") < text.find("the core was restarted")
            await until(lambda: not second.server.events.places, "the place of the follower to be free")


def test_a_line_cannot_be_forged() -> None:
    """What shims send may hold anything; a line stays a line, and numbers of newer cores are shown as such."""
    event = pb.Event(id=1, record=si.EventRecord(type=77, objectID="a\nb", message="\x1b[2J"))  # type: ignore[arg-type]
    assert render_event(event) == '      1 1970-01-01T00:00:00.000Z 77        a\\nb NONE "\\x1b[2J"'
