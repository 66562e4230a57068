"""The Go client: its own tests, its stubs, and its example against the kit and a core."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kornel.core.domain.commands import RegisterManager
from kornel.core.journal.database.reading import read_records
from tests.e2e.cores import cores_on
from tests.e2e.harness import running_core
from tests.e2e.test_resume import books_of_journal, killed_core
from tests.go.toolchain import BUILD_S, CLIENT, ROOT, find_go, list_unformatted, run_go
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.unit.journal.made import open_store

__all__ = ["postgres", "postgres_server"]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("go") / "example"
    run_go(CLIENT, "build", "-o", str(program), "./example")
    return program


def test_sources_are_formatted_and_vetted() -> None:
    assert not list_unformatted(CLIENT)
    run_go(CLIENT, "vet", "./...")


def test_its_own_tests_pass() -> None:
    run_go(CLIENT, "test", "./...")


def test_stubs_match_the_proto_files() -> None:
    find_go()
    command = [sys.executable, CLIENT / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_the_example_keeps_every_rule_for_shims(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kornel.conformance", "shim", "--log", str(tmp_path)]
    command += ["--start", f"{PATIENCE_S:g}", "--deadline", f"{PATIENCE_S:g}"]
    command += ["--", str(example), "--core", "{address}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    # Only devices and questions are left unseen: it has a gang, so the kit can time out and replace placeholders.
    verdict = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"\d+ checks: \d+ pass, 3 not seen, 0 fail: conforms", verdict), done.stdout + done.stderr
    assert re.findall(r"^(S\d+) .*not seen", done.stdout, re.MULTILINE) == ["S29", "S34", "S35"], done.stdout


async def test_the_example_runs_its_gang_and_its_tasks_at_a_core(example: Path) -> None:
    tasks = {f"task-{number}" for number in range(8)}
    async with running_core() as core:
        shim = await asyncio.create_subprocess_exec(
            example, "--core", core.address, "--runtime", "50ms", stderr=asyncio.subprocess.PIPE
        )
        ran: set[str] = set()
        ended: set[str] = set()
        printed = ""
        try:
            assert shim.stderr is not None
            async with asyncio.timeout(PATIENCE_S):
                while not tasks <= ended:
                    line = (await shim.stderr.readline()).decode()
                    assert line, f"the shim ended: {printed}"
                    printed += line
                    ran.update(re.findall(r"(\S+) runs on node-1", line))
                    ended.update(re.findall(r"(\S+) ends", line))
            # Four fit at a time, and the first two take the place of their placeholders.
            assert tasks | {"placeholder-0", "placeholder-1"} <= ran
            assert "placeholder-0 ends: PLACEHOLDER_REPLACED" in printed
            shim.terminate()
            assert await asyncio.wait_for(shim.wait(), PATIENCE_S) == 0
        finally:
            if shim.returncode is None:
                shim.kill()
                await shim.wait()


@dataclass
class Tasks:
    """The example, and what it prints about its tasks."""

    process: Process
    placed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    async def read_until(self, count: int) -> None:
        """Returns when so many tasks have ended."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while self.ended.total() < count:
                line = (await self.process.stderr.readline()).decode()
                assert line, "the shim ended"
                self.placed.update(re.findall(r"(task-\d+) runs on", line))
                self.ended.update(re.findall(r"(task-\d+) ends", line))


@asynccontextmanager
async def running_tasks(example: Path, address: str, count: int) -> AsyncIterator[Tasks]:
    """The example with so many tasks that end at once."""
    command = [example, "--core", address, "--tasks", str(count), "--gang", "0", "--runtime", "1ms"]
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
    try:
        yield Tasks(process)
    finally:
        process.kill()
        await process.wait()


def check_journal(journal: str, tasks: Tasks, count: int) -> None:
    """Fails unless the shim registered once, each task was placed once and ended once, and the journal agrees."""
    assert tasks.placed == tasks.ended == Counter({f"task-{number}": 1 for number in range(count)})
    assert books_of_journal(journal) == (tasks.placed, tasks.ended)
    with closing(open_store(journal)) as store:
        commands = [read.record.call.command for read in read_records(store)]
    assert sum(isinstance(each, RegisterManager) for each in commands) == 1


async def test_the_example_goes_on_exactly_however_often_the_core_is_killed(example: Path, tmp_path: Path) -> None:
    """With a journal, the shim registers once, each task is placed once and ends once, and the core's books agree."""
    count = 300
    async with killed_core(tmp_path) as core:
        async with running_tasks(example, core.address, count) as tasks:
            for number in (1, 90, 91, 200, 260):
                await tasks.read_until(number)
                await core.kill()
                await core.start()
            await tasks.read_until(count)
        await core.kill(signal.SIGTERM)
    check_journal(core.journal, tasks, count)


async def test_the_example_follows_the_leader(example: Path, postgres: Postgres, tmp_path: Path) -> None:
    """Of three cores, the leader is killed, and the next one stopped, so that it hangs without ending its streams."""
    count = 600
    async with cores_on(postgres.url, tmp_path) as cores:
        started = [await cores.start() for _ in range(3)]
        address = ",".join(core.address for core in reversed(started))
        async with running_tasks(example, address, count) as tasks:
            await tasks.read_until(50)
            started[0].send(signal.SIGKILL)
            await tasks.read_until(100)
            second = await cores.leader(started[0])
            second.send(signal.SIGSTOP)
            await tasks.read_until(count)
    check_journal(postgres.url, tasks, count)
    with closing(open_store(postgres.url)) as store:
        assert {read.record.epoch for read in read_records(store) if read.record.call.command is not None} == {1, 2, 3}
