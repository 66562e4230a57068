"""The command line of kornel-local against a server."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kornel.shim_client import ShimClient
from kornel.shim_local.cli import app
from kornel.shim_local.submission import STATE_VARIABLE
from tests.e2e.local.harness import Local
from tests.waiting import wait_until

SCRIPT = """\
#!/bin/sh
# What it needs.
#KORNEL --vcore 0.5 --name from-script
#KORNEL --time 1h
echo "$KORNEL_ATTEMPT $*"
#KORNEL --gpu 7
"""


def run(local: Local, *arguments: str) -> Result:
    """Returns what a command says."""
    return CliRunner().invoke(app, list(arguments), env={STATE_VARIABLE: str(local.folder), "COLUMNS": "200"})


def submit(local: Local, *arguments: str) -> str:
    """Returns the number of a job that was submitted by a command."""
    said = run(local, "submit", *arguments)
    assert said.exit_code == 0, said.output
    return said.stdout.strip()


def test_a_job_is_submitted_shown_and_waited_for(local: Local) -> None:
    """Waiting ends as the job does."""
    job = submit(local, "--name", "greeter", "--memory", "1Gi", "--", "sh", "-c", "echo hi; exit 4")
    waited = run(local, "wait", job)
    assert waited.exit_code == 4
    assert waited.stderr == f"{job}: failed: exit status 4\n"
    assert run(local, "logs", job).stdout == "hi\n"
    assert run(local, "logs", "-f", job).stdout == "hi\n"
    line = next(line for line in run(local, "ps", "-a").stdout.splitlines() if line.startswith(f"{job} "))
    assert re.split(r"\s{2,}", line)[1:9] == ["greeter", "batch", "failed", "1", "1Gi", "-", "0", "here"]
    assert json.loads(run(local, "show", job).stdout)["job"]["memory"] == 2**30


def test_submit_can_wait(local: Local) -> None:
    assert run(local, "submit", "--wait", "--", "sh", "-c", "kill -9 $$").exit_code == 137


def test_options_stand_in_scripts(local: Local, tmp_path: Path) -> None:
    """Those of the command line win, and what stands below the first command is none."""
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT)
    not_yet = run(local, "submit", "--", str(script))
    assert not_yet.exit_code == 2
    assert "is not executable; run chmod +x" in not_yet.stderr
    script.chmod(0o755)
    job = submit(local, "--vcore", "250m", "--", str(script), "--vcore", "9")
    assert run(local, "wait", job).exit_code == 0
    shown = json.loads(run(local, "show", job).stdout)["job"]
    assert (shown["vcore"], shown["name"], shown["time_s"], shown["gpu"]) == (250, "from-script", 3600.0, 0)
    assert run(local, "logs", job).stdout == "1 --vcore 9\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--no-such-option", "No such option: --no-such-option"),
        ("--name 'open", "No closing quotation"),
        ("stray", "'stray' is not an option"),
    ],
)
def test_wrong_options_in_scripts_are_named(local: Local, tmp_path: Path, line: str, complaint: str) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#KORNEL {line}\n")
    script.chmod(0o755)
    said = run(local, "submit", str(script))
    assert said.exit_code == 2
    assert complaint in said.stderr
    assert "job.sh" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("submit",), 2, "there is no command to run"),
        (("submit", "--vcore", "many", "true"), 2, "'many' is no number of cores; write 2, 0.5 or 500m"),
        (("submit", "--memory", "4X", "true"), 2, "'4X' is not an amount of memory; write 4Gi, 512Mi or 2G"),
        (("submit", "--time", "soon", "true"), 2, "'soon' is not a duration; write 90s, 30m, 2h or 1h30m"),
        (("submit", "--array", "5-1", "true"), 2, "'5-1' holds no index"),
        (("submit", "--array", "%4", "true"), 2, "'%4' does not say which tasks, or how many at a time"),
        (("submit", "--array", "1-9%0", "true"), 2, "write 1-100%4"),
        (("submit", "--vcore", "0", "true"), 2, "the job asks for nothing"),
        (("submit", "--after", "me", "true"), 2, "--after 'me' is not a job"),
        (("submit", "--after", "99999", "true"), 1, "there is no job 99999"),
        (("submit", "-C", "/no/such/place", "true"), 2, "/no/such/place is not a directory"),
        (("submit", "x" * 300), 2, "cannot be the name of a file"),
        (("submit", f"./{'x' * 300}"), 2, "cannot be the name of a file"),
        (("submit", "-C", "x" * 300, "true"), 2, "is not a directory"),
        (("submit", "python train.py --fast"), 2, "'python train.py --fast' is not a program; write its words without"),
        (("wait", "x"), 1, "'x' is not a job; write its number"),
        (("logs", "99999"), 1, "there is no job 99999"),
        (("forget", "--yes", "nobody"), 1, "there is no machine nobody"),
    ],
)
def test_what_is_wrong_is_said(local: Local, arguments: tuple[str, ...], status: int, complaint: str) -> None:
    said = run(local, *arguments)
    assert (said.exit_code, said.stdout) == (status, "")
    assert said.stderr.startswith("kornel-local: ")
    assert complaint in said.stderr


def test_a_job_too_large_for_any_machine_is_noticed(local: Local) -> None:
    said = run(local, "submit", "--vcore", "100", "--", "true")
    assert "no machine is large enough for this job" in said.stderr
    job = said.stdout.strip()
    assert run(local, "cancel", job).stdout == "1 task is cancelled\n"
    assert run(local, "wait", job).exit_code == 1


def test_why_asks_about_ones_own_partition(local: Local, capfd: pytest.CaptureFixture[str]) -> None:
    """Another manager of the same core may have a partition of the same name."""
    job = submit(local, "--vcore", "100", "--", "true")
    address = local.request("status")["core"]
    with asyncio.Runner() as loop:
        neighbour = ShimClient(address, "neighbour")
        loop.run(neighbour.connect())
        try:
            loop.run(neighbour.register())
            wait_until(lambda: run(local, "why", job).exit_code == 0, "the core to know of the job")
            assert "vcore" in capfd.readouterr().out
            loop.run(neighbour.unregister())
        finally:
            loop.run(neighbour.close())
            run(local, "cancel", job)


def test_why_knows_of_a_pause(local: Local, capfd: pytest.CaptureFixture[str]) -> None:
    """A task that was lost again and again is not known to the core before it is tried again."""
    job = submit(local, "--", "sh", "-c", "kill -9 $PPID")
    wait_until(lambda: "after 8s" in local.task(job)["reason"], "the fourth loss")
    told = run(local, "why", job)
    reason = "its supervisor was killed; tried again after 8s"
    assert told.stdout == f"{job} does not wait for room: it is paused: {reason}\n"
    assert run(local, "cancel", job).stdout == "1 task is cancelled\n"


def test_top_shows_machines_and_jobs(local: Local) -> None:
    """Once, also as JSON."""
    job = submit(local, "--array", "1-2", "--vcore", "1", "--", "sleep", "300")
    local.wait_for_state(f"{job}.2", "running")
    said = run(local, "top", "--once").stdout
    assert re.search(r"^here +connected +2 +2/4 +0/8Gi +0/2 ", said, re.MULTILINE)
    assert f"{job}[2]" in said
    assert "2 running" in said
    shown = json.loads(run(local, "top", "--once", "--json").stdout)
    assert shown["nodes"][0]["used"] == {"tasks": 2, "vcore": 2000, "memory": 0, "gpus": 0}
    assert run(local, "cancel", f"{job}.1", job).stdout == "2 tasks are cancelled\n"
    assert run(local, "wait", job).exit_code == 1


def test_the_logs_of_an_array_name_its_tasks(local: Local, tmp_path: Path) -> None:
    """Followed until all have ended; a line that does not end is shown all the same."""
    script = f"echo begin; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; printf end"
    job = submit(local, "--array", "1-2", "--vcore", "1", "--", "sh", "-c", script)
    for index in (1, 2):
        wait_until(lambda name=f"{job}.{index}": local.read_log(name), "the begin of both")
    begun = [f"{job}.1: begin", f"{job}.2: begin"]
    assert run(local, "logs", job).stdout.splitlines() == begun
    (tmp_path / "go").touch()
    said = run(local, "logs", "-f", job)
    assert (said.exit_code, sorted(said.stdout.splitlines())) == (0, sorted([*begun, f"{job}.1: end", f"{job}.2: end"]))


def test_what_no_machine_has_is_said(local: Local) -> None:
    """Of a GPU it is said in its own words where none is at all, and a cancelled job is called so once."""
    said = run(local, "submit", "--gpu", "9", "--", "true")
    assert "no machine is large enough" in said.stderr
    job = said.stdout.strip()
    run(local, "cancel", job)
    assert run(local, "wait", job).stderr == f"{job}: cancelled\n"


def test_no_server_is_said(tmp_path: Path) -> None:
    """With what to do."""
    said = CliRunner().invoke(app, ["--state", str(tmp_path / "none"), "ps"])
    assert said.exit_code == 3
    assert said.stderr == f"kornel-local: no server runs in {tmp_path / 'none'}; start one with: kornel-local up\n"


def test_jobs_are_held_changed_and_released(local: Local) -> None:
    """The core sees the change; a held job is not asked for; a job waits for one task of an array."""
    blocker = submit(local, "--vcore", "4", "--", "sleep", "1000")
    local.wait_for_state(blocker, "running")
    array = submit(local, "--array", "1-2", "--vcore", "2", "--", "true")
    after = submit(local, "--after", f"0{array}.02", "--", "true")
    assert run(local, "hold", array).stdout == "1 job is held\n"
    assert "until it is released" in run(local, "ps", "-t").stdout
    assert run(local, "change", array, "--priority", "9", "--mem", "1Mi", "--gpu", "0.5").stdout == "1 job is changed\n"
    shown = json.loads(run(local, "show", array).stdout)["job"]
    assert (shown["priority"], shown["memory"], shown["gpu"], shown["on_hold"]) == (9, 2**20, 0.5, True)
    assert run(local, "change", array, "--gpu", "0").stdout == "1 job is changed\n"
    for arguments, status, said in (
        (("change", array), 2, "there is nothing to change"),
        (("change", array, "--mem", "4000"), 2, "4000"),
        (("change", array, "--gpu", "1.5"), 1, "1.5 GPUs cannot be given"),
        (("change", blocker, "--vcore", "1"), 1, "runs, and can no longer be changed"),
        (("submit", "--after", f"{array}.", "true"), 2, "is not a job"),
        (("show", f"{array}.²"), 1, "is not a job"),
        (("hold", f"{array}.1"), 1, "is held, changed or scaled as a whole"),
        (("submit", "--after", f"{array}.7", "true"), 1, f"has no task {array}.7"),
    ):
        refused = run(local, *arguments)
        assert (refused.exit_code, said in refused.stderr) == (status, True), refused.stderr
    assert run(local, "cancel", blocker).exit_code == 0
    local.wait(blocker)
    assert local.task(f"{array}.1")["state"] == "held"
    assert run(local, "release", array).stdout == "1 job is released\n"
    assert [task["state"] for task in local.wait(array, after)] == ["done"] * 3


def test_an_array_starts_together_and_is_scaled(local: Local) -> None:
    refused = run(local, "submit", "--array", "0-1", "--at-least", "3", "--", "sleep", "1000")
    assert refused.exit_code == 2
    assert "there are never 3 tasks" in refused.stderr
    job = submit(local, "--array", "0-2", "--at-least", "2", "--", "sleep", "1000")
    assert run(local, "scale", job, "4").stdout == f"4 tasks of job {job} wait or run\n"
    assert [task["task"] for task in local.request("show", name=job)["tasks"]] == [
        f"{job}.{index}" for index in range(4)
    ]
    assert "at least 2 tasks, or none" in run(local, "scale", job, "1").stderr
    assert run(local, "scale", job, "0").exit_code == 0
    assert {task["state"] for task in local.wait(job)} == {"cancelled"}
