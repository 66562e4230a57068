"""Jobs run exactly once, whichever of server, agent and core is killed while they do."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.e2e.local.harness import Local, running_local
from tests.ports import reserve_port
from tests.waiting import wait_until

JOBS = 200
KILLS = 24
SCRIPT = """\
f={folder}/$KORNEL_TASK
date +"begin $KORNEL_ATTEMPT %s.%N" >> $f
sleep 0.$((KORNEL_INDEX % 5))
date +"end $KORNEL_ATTEMPT %s.%N" >> $f
"""


def find_faults(folder: Path, tasks: list[dict[str, object]]) -> list[str]:
    """Returns what is wrong with the traces of tasks that should each have run once, from begin to end."""
    faults = [f"{task['task']} is {task['state']}: {task['reason']}" for task in tasks if task["state"] != "done"]
    for task in tasks:
        lines = [line.split() for line in (folder / str(task["task"])).read_text().splitlines()]
        runs: dict[str, list[float]] = defaultdict(list)
        for _, attempt, at in lines:
            runs[attempt].append(float(at))
        if len(runs) != 1 or any(len(times) != 2 for times in runs.values()):
            faults.append(f"{task['task']} left {lines}")
    return faults


def run_through_kills(tmp_path: Path, jobs: int, kills: int, seed: int) -> None:
    generator = random.Random(seed)
    traces = tmp_path / "traces"
    traces.mkdir()
    with running_local(tmp_path / "s", "--vcore", "8", real=True) as local:
        job = local.shell(SCRIPT.format(folder=traces), indexes=tuple(range(jobs)), vcore=1000)
        for _ in range(kills):
            time.sleep(generator.uniform(0.05, 0.6))
            if generator.random() < 0.6:
                local.kill_server()
                time.sleep(generator.choice([0.0, 0.0, 0.3]))
                local.start()
            else:
                local.kill_core()
        if not local.works():
            wait_for_server(local)
        tasks = local.wait(job)
        assert len(tasks) == jobs
        assert not find_faults(traces, tasks)
        # The core's books hold nothing any more, and its machine takes the next job.
        assert local.wait(local.submit("true", vcore=8000))[0]["state"] == "done"


def run_on_two_machines(tmp_path: Path, jobs: int, kills: int, seed: int) -> None:
    """As :func:`run_through_kills`, with an agent of another machine that is killed as well."""
    generator = random.Random(seed)
    traces = tmp_path / "traces"
    traces.mkdir()
    address = f"127.0.0.1:{reserve_port()}"
    options = ("--name", "first", "--vcore", "4", "--listen", address)
    with running_local(tmp_path / "s", *options, real=True) as local:
        token = str(tmp_path / "s" / "token")
        joining = ("--name", "second", "--vcore", "4", "--join", address, "--agent-token", token)
        second = Local(tmp_path / "b", *joining, real=True)
        try:
            second.start()
            wait_until(lambda: count_connected(local) == 2, "the second machine")
            job = local.shell(SCRIPT.format(folder=traces), indexes=tuple(range(jobs)), vcore=1000)
            # One that takes long to come back might find nothing left to run.
            wait_until(lambda: find_starters(local, job) == {"first", "second"}, "both to run some")
            for _ in range(kills):
                time.sleep(generator.uniform(0.05, 0.6))
                victim = generator.choice(("server", "core", "agent", "agent"))
                if victim == "core":
                    local.kill_core()
                else:
                    killed = local if victim == "server" else second
                    killed.kill_server()
                    time.sleep(generator.choice([0.0, 0.0, 0.3]))
                    killed.start()
            wait_for_server(local)
            tasks = local.wait(job)
            assert len(tasks) == jobs
            assert not find_faults(traces, tasks)
            assert {task["node"] for task in tasks} == {"first", "second"}
            # Nothing is held on either machine any more.
            wait_until(lambda: count_connected(local) == 2, "both machines")
            full = [local.submit("true", vcore=4000) for _ in range(2)]
            assert [task["state"] for task in local.wait(*full)] == ["done", "done"]
        finally:
            second.down()


def count_connected(local: Local) -> int:
    """Returns how many machines the server has now."""
    return sum(node["online"] for node in local.request("status")["nodes"])


def find_starters(local: Local, job: str) -> set[str]:
    """Returns the machines that have started tasks of a job."""
    return {task["node"] for task in local.request("show", name=job)["tasks"] if task["started_s"]}


def wait_for_server(local: Local) -> None:

    wait_until(local.works, "the server")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_of_many_jobs_runs_once(tmp_path: Path, seed: int) -> None:
    """Server and agent, and the core, are killed at random moments of two hundred short jobs."""
    run_through_kills(tmp_path, JOBS, KILLS, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [4, 5])
def test_each_of_many_jobs_on_two_machines_runs_once(tmp_path: Path, seed: int) -> None:
    """Server, core, and the agent of the other machine are killed at random moments of two hundred short jobs."""
    run_on_two_machines(tmp_path, JOBS, KILLS, seed)


@pytest.mark.long
def test_each_of_a_few_jobs_on_two_machines_runs_once(tmp_path: Path) -> None:
    """The same with fewer, each time."""
    run_on_two_machines(tmp_path, 30, 4, 8)


def test_each_of_a_few_jobs_runs_once(tmp_path: Path) -> None:
    """The same with fewer, each time."""
    run_through_kills(tmp_path, 30, 3, 7)
