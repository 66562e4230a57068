"""Servers that come and go: two at once, a core that is kept, few files that may be open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kornel.shim_local.machine.processes import is_alive, start_ticks
from tests.e2e.local.harness import ROOT, Local
from tests.patience import PATIENCE_S
from tests.waiting import wait_until

UP = ("up", "--name", "here", "--vcore", "2")


def list_programs(*wanted: bytes) -> list[int]:
    """Returns the process IDs of all programs that have all of *wanted* among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = set(path.read_bytes().split(b"\0"))
        except OSError:
            continue
        if words.issuperset(wanted):
            found.append(int(path.parent.name))
    return found


class Commands:
    """A state directory, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.local = Local(folder)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Returns a command that has been started."""
        return subprocess.Popen(
            [sys.executable, "-m", "kornel.shim_local", "--state", str(self.local.folder), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run(self, *words: str) -> str:
        """Returns what a command says that goes well."""
        command = self.begin(*words)
        said, _ = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 0, said
        return said

    def list_cores(self) -> list[int]:
        """Returns the process IDs of the cores of this state directory."""
        return list_programs(b"serve", f"unix:{self.local.folder}/core.sock".encode())

    def list_servers(self) -> list[int]:
        """Returns the process IDs of what serves in this state directory, or is about to."""
        return list_programs(b"--foreground", str(self.local.folder).encode())


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """A state directory in which nothing is left at the end."""
    commands = Commands(tmp_path / "s")
    yield commands
    commands.begin("down").communicate(timeout=PATIENCE_S)
    commands.local.down()


def test_two_commands_at_once_start_one_server(commands: Commands) -> None:
    """Both say that it is up, and neither fails."""
    both = [commands.begin(*UP) for _ in range(2)]
    said = [command.communicate(timeout=PATIENCE_S)[0] for command in both]
    assert [command.returncode for command in both] == [0, 0], said
    assert sorted(text.splitlines()[0] for text in said) == ["already up", "up"]
    assert len(commands.list_cores()) == 1
    # One that was started in vain, and had not found that out yet, would serve as soon as the other goes down.
    assert len(commands.list_servers()) == 1


def test_a_core_that_is_kept_is_the_only_one(commands: Commands) -> None:
    """The next server takes it over, also where nobody has noted its process; without a server it can be ended."""
    commands.run(*UP)
    (core,) = commands.list_cores()
    commands.run("down", "--keep-core")
    (commands.local.folder / "core.pid").unlink()
    commands.run(*UP)
    assert commands.list_cores() == [core]
    commands.run("down", "--keep-core")
    assert commands.list_cores() == [core]
    ticks = start_ticks(core)
    assert commands.run("down") == "down: the core that was kept has ended\n"
    wait_until(lambda: not is_alive(core, ticks), "the core to end")


def test_commands_are_answered_where_few_files_may_be_open(commands: Commands, tmp_path: Path) -> None:
    """What there are no files for waits, everything runs once, and a job has the limit of the machine's user."""
    command = subprocess.Popen(
        [
            *("sh", "-c", 'ulimit -Hn 90; ulimit -Sn 40; exec "$@"', "sh", sys.executable, "-m", "kornel.shim_local"),
            *("--state", str(commands.local.folder), "up", "--name", "here", "--vcore", "100"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert command.wait(PATIENCE_S) == 0
    script = f"echo $KORNEL_INDEX >> {tmp_path}/runs; ulimit -n; while [ ! -e {tmp_path}/go ]; do sleep 0.2; done"
    job = commands.local.shell(script, indexes=tuple(range(100)))
    counts = wait_until(
        lambda: (found := commands.local.request("ps")["jobs"][0]["counts"]).get("running", 0) >= 20 and found,
        "jobs to run",
    )
    assert counts["running"] <= 100
    (tmp_path / "go").touch()
    tasks = commands.local.wait(job)
    assert {task["state"] for task in tasks} == {"done"}
    assert sorted(map(int, (tmp_path / "runs").read_text().split())) == list(range(100))
    assert commands.local.read_log(f"{job}.0") == "40\n"
