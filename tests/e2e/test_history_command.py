"""``kornel history`` against a served core, and ``kornel serve --history``."""

from __future__ import annotations

import asyncio
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kornel.cli import moments
from kornel.cli.app import app
from kornel.core.service.machine.clock import SECOND_NS
from tests.e2e.harness import Core
from tests.e2e.test_history import core_with, preempt, written
from tests.patience import PATIENCE_S
from tests.prepared import python
from tests.waiting import until


async def kornel(core: Core, *arguments: str) -> Result:
    command = ["history", *arguments, "--grpc", core.address]
    return await asyncio.to_thread(CliRunner().invoke, app, command)


async def test_lists_as_tables_and_as_json(tmp_path: Path) -> None:
    """A heading and a line for each record; with --json an object on each line."""
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        await preempt(core)
        apps = await kornel(core, "apps", "--app", "filler")
        assert apps.exit_code == 0, apps.output
        lines = apps.output.splitlines()
        assert lines[0].split() == ["when", "application", "state", "age", "queue", "user", "why"]
        assert [line.split()[2] for line in lines[1:]] == ["Running", "Accepted", "New"]

        preemptions = await kornel(core, "preemptions", "--outcome", "triggered", "--queue", "root.b")
        (line,) = preemptions.output.splitlines()[1:]
        assert " guarantee  TRIGGERED  fill-" in line
        assert "not seen" in line
        assert line.split()[-11:] == ["wanted", "starved", "ann", "root.a", *"1234567"]
        assert (await kornel(core, "preemptions", "--kind", "nonsense")).exit_code == 1
        sums = await kornel(core, "preemptions", "--sum", "queue", "--partition", "default")
        assert sums.output == "root.a took 1 allocation from root.b (vcore=1): the core did not see it leave\n"
        assert (await kornel(core, "preemptions", "--sum", "node")).exit_code == 2

        events = await kornel(core, "events", "--type", "node", "--limit", "3")
        assert len(events.output.splitlines()) == 4
        assert "NODE_ALLOC" in events.output

        configs = await kornel(core, "configs")
        assert "registration" in configs.output
        assert "applied" in configs.output
        assert "anonymous@127.0.0.1" in configs.output

        as_json = await kornel(core, "configs", "--json", "--text")
        (record,) = map(json.loads, as_json.output.splitlines())
        assert record["version"]["applied"] is True
        assert "preemption.delay" in record["config"]

        status = await kornel(core, "status")
        assert status.exit_code == 0
        assert "problem      none" in status.output
        assert "history.db" in status.output


async def test_ranges(tmp_path: Path) -> None:
    """Ages and times; what lies outside is not shown. The clock of this core stands in 2023."""
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        await preempt(core)
        assert (await kornel(core, "events", "--since", "1h")).output == "nothing in this range\n"
        all_of_them = await kornel(core, "events", "--since", "2023-11-14", "--limit", "0")
        assert len(all_of_them.output.splitlines()) > 50
        before = await kornel(core, "events", "--until", "2023-11-14T22:13:20Z")
        assert before.output == "nothing in this range\n"


async def test_how_full_a_queue_was(tmp_path: Path) -> None:
    """Sums in front, then a row a minute with a bar of the max, or of the cluster; as JSON, a point a line."""
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        await preempt(core)
        for _ in range(2):
            stored = (await written(core)).stored
            core.clock.advance(60 * SECOND_NS)
            await until(lambda before=stored: stored_by(core) > before, "the use of queues to be looked at")  # type: ignore[misc]
        await written(core)
        day = ("--on", "2023-11-14", "--type", "vcore")
        said = await kornel(core, "usage", "root.b", *day)
        assert said.exit_code == 0, said.output
        average, gap, heading, *rows = said.output.splitlines()
        full = "root.b used 10 (100%) of vcore on average, at most 10 (100%) from 2023-11-14T22:14:2"
        assert average.startswith(full)
        assert gap == ""
        assert heading.split() == ["from", "running", "vcore"]
        assert len(rows) == 2
        assert all("100% 10/-" in row for row in rows)
        (both,) = (await kornel(core, "usage", "root.b", *day, "--points", "1", "--json")).output.splitlines()
        point = json.loads(both)
        assert (point["sample_count"], point["used"], point["max"]) == ("2", {"vcore": "10000"}, {})
        nothing = await kornel(core, "usage", "root.b", "--on", "2023-11-13")
        assert nothing.exit_code == 0
        assert nothing.output.startswith("nothing in this range")
        assert (await kornel(core, "usage", "root.b", *day, "--since", "1h")).exit_code == 2


def stored_by(core: Core) -> int:
    status = core.server.history.status()
    assert status is not None
    return status.stored


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("today", "2026-11-25"),
        ("yesterday", "2026-11-24"),
        ("wednesday", "2026-11-25"),
        ("Tue", "2026-11-24"),
        ("thursday", "2026-11-19"),
        ("2026-02-28", "2026-02-28"),
    ],
)
def test_days_by_name(monkeypatch: pytest.MonkeyPatch, text: str, first: str) -> None:
    """A weekday is the last one, today included; a day is 24 hours of UTC."""
    now = datetime(2026, 11, 25, 13, 0, 1, tzinfo=UTC)  # A Wednesday.
    monkeypatch.setattr(moments, "time_ns", lambda: int(now.timestamp()) * SECOND_NS)
    since_ns, until_ns = moments.read_range("", "", text)
    assert datetime.fromtimestamp(since_ns / SECOND_NS, UTC) == datetime.fromisoformat(first).replace(tzinfo=UTC)
    assert until_ns - since_ns == 86_400 * SECOND_NS


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("apps", "--since", "yesterday"), "--since: 'yesterday' is neither an age"),
        (("preemptions", "--on", "someday"), "--on: 'someday' is neither today"),
        (("events", "--type", "pod"), "--type: 'pod' is none of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_options(arguments: tuple[str, ...], why: str) -> None:
    """Exit 2, before anybody is asked."""
    result = CliRunner().invoke(app, ["history", *arguments])
    assert result.exit_code == 2
    assert why in result.output


async def test_core_without_history(core: Core) -> None:
    """Exit 1 and what to do about it."""
    result = await kornel(core, "apps")
    assert result.exit_code == 1
    assert "--history" in result.output
    status = await kornel(core, "status")
    assert (status.exit_code, status.output) == (1, "the core keeps no history\n")


def serve(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [python(), "-m", "kornel", "serve", "--grpc", "unix:/nowhere/at/all", *arguments]
    environment: dict[str, Any] = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environment)


def test_history_that_cannot_be_meant() -> None:
    """Exit 2 with the reason."""
    for arguments, why in (
        (("--history", "mysql://db/x"), "no database the history can be in"),
        (("--history", "h.db", "--history-keep", "events=soon"), "is no age"),
    ):
        done = serve(*arguments)
        assert done.returncode == 2
        assert why in done.stderr


def test_history_that_cannot_be_begun(tmp_path: Path) -> None:
    """Exit 1 if it was asked for; a warning if it is only the default. Then the bad address ends the core."""
    (tmp_path / "file").write_text("")
    done = serve("--history", str(tmp_path / "file" / "history.db"))
    assert done.returncode == 1
    assert "history: " in done.stderr
    assert "cannot listen" not in done.stderr
    done = serve(STATE_DIRECTORY=str(tmp_path / "file"))
    assert "no history is kept" in done.stderr + done.stdout
    assert "cannot listen" in done.stderr


async def until_status(core: Core, code: int) -> Result:
    """Returns what ``kornel history status`` says once it exits with *code*."""

    async def ask() -> Result | None:
        status = await kornel(core, "status")
        return status if status.exit_code == code else None

    found: Result = await until(ask, f"exit status {code}")
    return found


async def test_records_that_were_set_aside_are_told(tmp_path: Path) -> None:
    """With where they lie; the command exits 1 until somebody has removed them."""
    aside = tmp_path / "spool" / "set-aside"
    aside.mkdir(parents=True)
    (aside / "records.jsonl").write_text("{}\n{}\n")
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        status = await until_status(core, 1)
        assert f"set aside    2 in {aside}" in status.output
        assert f"problem      2 records or files lie in {aside}" in status.output
        (aside / "records.jsonl").unlink()
        status = await until_status(core, 0)
        assert "set aside    nothing" in status.output
