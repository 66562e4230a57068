"""The agent by itself, with real processes and without control groups."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kornel.shim_local.machine.agent import Agent, AgentBusy
from kornel.shim_local.machine.attempt_folder import AttemptFolder, Slot
from kornel.shim_local.machine.capacity import Capacity
from kornel.shim_local.machine.cgroups import Cgroups, find_cgroups
from kornel.shim_local.machine.processes import find_marked, find_session, is_alive, start_ticks
from tests.patience import PATIENCE_S
from tests.waiting import wait_until

LEAVER = "setsid sh -c 'echo $$ > left; exec sleep 300' & while [ ! -s left ]; do sleep 0.02; done; {then}"


class Reports:
    """What an agent has reported."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    def add(self, message: dict[str, Any]) -> None:
        """Keep a message."""
        self.messages.append(message)
        self._news.set()

    async def wait_for(self, do: str, key: str) -> dict[str, Any]:
        """Returns the first message of a kind about an attempt."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for message in self.messages:
                    if message["do"] == do and message.get("key") == key:
                        return message
                self._news.clear()
                await self._news.wait()


class Machine:
    """A folder in which one agent after the other works."""

    def __init__(self, folder: Path, cgroups: Cgroups) -> None:
        self.folder = folder
        self.cgroups = cgroups
        self.reports = Reports()
        self.agent: Agent

    async def open(self) -> None:
        """Start an agent."""
        self.reports = Reports()
        self.agent = Agent(self.folder / "agent", "here", Capacity(4000, 2**30, 2), self.cgroups, self.reports.add)
        await self.agent.open()

    def start(self, key: str, script: str, **values: Any) -> None:
        """Have an attempt started that runs *script*."""
        spec = {
            "command": ["sh", "-c", script], "directory": str(self.folder), "environment": dict(os.environ),
            "umask": 0o022, "vcore": 1000, "memory": 2**26, "gpu": 0, "time_s": 0.0, "kill_s": 0.3, "log_bytes": 10_000,
        }  # fmt: skip
        self.agent.start_attempt(key, spec | values)

    def attempt(self, key: str) -> AttemptFolder:
        """Returns the folder of a live attempt."""
        return AttemptFolder(self.folder / "agent" / "live" / key)

    async def wait_for_slot(self, key: str, slot: Slot) -> dict[str, Any]:
        """Returns what is written in a slot of a live attempt, once it is: a command may be faster than the note of its
        start."""
        folder = self.attempt(key)
        return dict(await asyncio.to_thread(wait_until, lambda: folder.read_slot(slot), f"{slot} of {key}"))

    async def wait_for_file(self, name: str) -> str:
        """Returns what a file of a job holds, once it does."""
        path = self.folder / name
        return str(await asyncio.to_thread(wait_until, lambda: path.exists() and path.read_text(), name))


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine without control groups."""
    machine = Machine(tmp_path, Cgroups(None, reason="not here"))
    await machine.open()
    yield machine
    await machine.agent.close()


async def test_an_attempt_is_started_once(machine: Machine) -> None:
    """However often the server says so, also after its end and after the agent has forgotten it."""
    machine.start("1-1", "echo run >> runs; sleep 0.1")
    machine.start("1-1", "echo run >> runs")
    await machine.reports.wait_for("ended", "1-1")
    machine.start("1-1", "echo run >> runs")
    machine.agent.confirm_end("1-1")
    machine.start("1-1", "echo run >> runs")
    await machine.agent.close()
    await machine.open()
    machine.start("1-1", "echo run >> runs")
    message = await machine.reports.wait_for("ended", "1-1")
    assert message["end"]["status"] == 0
    assert (machine.folder / "runs").read_text() == "run\n"


async def test_a_new_agent_adopts_what_runs(machine: Machine) -> None:
    """It reports it, can stop it, and finds the end of what ended without an agent."""
    machine.start("1-1", "echo begun > begun; while [ ! -e go ]; do sleep 0.02; done; exit 7")
    machine.start("2-1", "echo x > two; sleep 300")
    for name in ("begun", "two"):
        await machine.wait_for_file(name)
    await machine.wait_for_slot("2-1", Slot.START)
    await machine.agent.close()
    (machine.folder / "go").touch()
    begin = machine.attempt("1-1").read_slot(Slot.BEGIN)
    assert begin is not None
    await asyncio.to_thread(wait_until, lambda: not is_alive(begin["pid"], begin["ticks"]), "the supervisor to end")
    await machine.open()
    attempts = machine.agent.describe_machine()["attempts"]
    assert attempts["1-1"]["end"]["status"] == 7
    assert attempts["2-1"]["end"] is None
    assert attempts["2-1"]["start"]["pid"]
    machine.agent.stop_attempt("2-1", "cancel", 0.0)
    message = await machine.reports.wait_for("ended", "2-1")
    assert (message["end"]["stopped"], message["end"]["status"]) == ("cancel", -signal.SIGTERM)


async def test_nothing_outlives_a_supervisor_that_is_killed(machine: Machine) -> None:
    """What left the session is found by its environment; the attempt counts as lost."""
    machine.start("1-1", LEAVER.format(then="sleep 300"))
    pid = int(await machine.wait_for_file("left"))
    ticks = start_ticks(pid)
    begin = machine.attempt("1-1").read_slot(Slot.BEGIN)
    assert begin is not None
    os.kill(begin["pid"], signal.SIGKILL)
    message = await machine.reports.wait_for("ended", "1-1")
    assert message["end"]["lost"] == "its supervisor was killed"
    assert not is_alive(pid, ticks)
    identity = (machine.folder / "agent" / "identity").read_text()
    assert not find_marked(f"{identity}/1-1")


async def test_who_hides_the_mark_does_not_outlive_a_supervisor_either(machine: Machine) -> None:
    """A process that clears its environment is found by the session of the command."""
    machine.start("1-1", "exec env -i sh -c 'echo $$ > one; (echo x > two; exec sleep 300); true'")
    await machine.wait_for_file("two")
    main = int(await machine.wait_for_file("one"))
    begin = await machine.wait_for_slot("1-1", Slot.BEGIN)
    start = await machine.wait_for_slot("1-1", Slot.START)
    assert len(find_session(main, start["ticks"])) == 2
    os.kill(begin["pid"], signal.SIGKILL)
    message = await machine.reports.wait_for("ended", "1-1")
    assert message["end"]["lost"] == "its supervisor was killed"
    assert not [pid for pid in find_session(main, start["ticks"]) if is_alive(pid, start_ticks(pid))]


async def test_a_restart_of_the_machine_loses_what_ran(machine: Machine) -> None:
    """An attempt of another boot is lost, whatever process has its number now."""
    folder = machine.attempt("1-1")
    await machine.agent.close()
    folder.create({"gpus": [], "group": ""})
    folder.write_slot(Slot.BEGIN, {"pid": os.getpid(), "ticks": start_ticks(os.getpid()), "boot": "another"})
    await machine.open()
    assert machine.agent.describe_machine()["attempts"]["1-1"]["end"]["lost"] == "the machine was restarted"


async def test_an_attempt_that_never_began_is_not_known(machine: Machine) -> None:
    """So the server asks for it again."""
    folder = machine.attempt("1-1")
    await machine.agent.close()
    folder.create({"gpus": [], "group": ""})
    await machine.open()
    assert not machine.agent.describe_machine()["attempts"]
    machine.start("1-1", "true")
    assert (await machine.reports.wait_for("ended", "1-1"))["end"]["status"] == 0


async def test_the_launching_process_is_started_again(machine: Machine) -> None:
    """Nothing that runs depends on it."""
    machine.start("1-1", "echo x > one; while [ ! -e go ]; do sleep 0.02; done")
    await machine.wait_for_file("one")
    process = machine.agent._launcher._process
    assert process is not None
    process.kill()
    await process.wait()
    (machine.folder / "go").touch()
    assert (await machine.reports.wait_for("ended", "1-1"))["end"]["status"] == 0
    launcher = machine.agent._launcher
    await asyncio.to_thread(wait_until, lambda: launcher._process is not process, "another process")
    machine.start("2-1", "true")
    assert (await machine.reports.wait_for("ended", "2-1"))["end"]["status"] == 0


async def test_many_attempts_start_at_once(machine: Machine) -> None:
    """More than the way to the launching process has room for."""
    keys = [f"{number}-1" for number in range(400)]
    for key in keys:
        machine.start(key, "exit 0")
    for key in keys:
        assert (await machine.reports.wait_for("ended", key))["end"].get("status") == 0


async def test_two_agents_do_not_share_a_folder(machine: Machine) -> None:
    second = Agent(machine.folder / "agent", "here", Capacity(1, 1, 0), Cgroups(None), print)
    with pytest.raises(AgentBusy, match="another agent works in"):
        await second.open()


async def test_no_room_for_files_is_said(machine: Machine) -> None:
    """The attempt has not begun then, so it may be started elsewhere."""
    live = machine.folder / "agent" / "live"
    live.rmdir()
    machine.start("1-1", "true")
    message = await machine.reports.wait_for("ended", "1-1")
    assert message["end"]["unready"] == "No such file or directory"
    live.mkdir()


async def test_a_group_is_killed_at_once(tmp_path: Path) -> None:
    """Where this machine lets us make control groups, each attempt has one, which goes with it."""
    cgroups = find_cgroups(f"kornel-test-{os.getpid()}")
    if cgroups.folder is None:
        pytest.skip(f"no control groups here: {cgroups.reason}")
    machine = Machine(tmp_path, cgroups)
    await machine.open()
    try:
        machine.start("1-1", "trap '' TERM; " + LEAVER.format(then="while :; do sleep 1; done"))
        pid = int(await machine.wait_for_file("left"))
        ticks = start_ticks(pid)
        group = cgroups.folder / "1-1"
        assert str(pid) in (group / "cgroup.procs").read_text().split()
        machine.agent.stop_attempt("1-1", "cancel", 0.0)
        await machine.reports.wait_for("ended", "1-1")
        assert not is_alive(pid, ticks)
        assert not group.exists()
    finally:
        await machine.agent.close()
    assert not cgroups.folder.exists()
