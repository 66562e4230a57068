"""Real processes: what they are given, how they end, and how they are stopped."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from kornel.shim_local.client import RequestRefused
from kornel.shim_local.machine.processes import is_alive, start_ticks
from tests.e2e.local.harness import Local
from tests.waiting import wait_until

LEAVER = """\
trap '' TERM
(trap '' TERM; setsid sh -c 'trap "" TERM; echo $$ > {folder}/leaver; while :; do sleep 1; done' &)
while :; do sleep 1; done
"""
"""A job that ignores SIGTERM, forks, and whose child leaves its session and is not its child any more."""

TRAINING = """\
trap 'echo saved before $(cat "$KORNEL_PREEMPT_AT"); echo half > saved; exit 0' USR1
echo attempt $KORNEL_ATTEMPT begins
if [ -e saved ]; then echo resumed from $(cat saved); exit 0; fi
while :; do sleep 0.05; done
"""


def test_a_job_gets_what_it_was_submitted_with(local: Local, tmp_path: Path) -> None:
    """Directory, environment, mask and arguments are those of the submission; both outputs are in the log."""
    job = local.submit(
        *("sh", "-c", 'pwd; umask; echo "$GREETING" "$1" "$KORNEL_NODE" "$KORNEL_JOB"; echo wrong >&2; exit 3'),
        *("sh", "an argument"),
        directory=str(tmp_path),
        umask=0o027,
        environment={"PATH": os.environ["PATH"], "GREETING": "hello"},
    )
    (task,) = local.wait(job)
    assert (task["state"], task["status"], task["reason"]) == ("failed", 3, "exit status 3")
    assert local.read_log(job) == f"{tmp_path}\n0027\nhello an argument here {job}\nwrong\n"


def test_a_job_sees_its_gpus(local: Local, tmp_path: Path) -> None:
    """No two jobs see the same one at a time."""
    script = f"echo $CUDA_VISIBLE_DEVICES; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    jobs = [local.shell(script, gpu=1, vcore=100) for _ in range(2)]
    for job in jobs:
        wait_until(lambda job=job: local.read_log(job), "both to run")
    (tmp_path / "go").touch()
    local.wait(*jobs)
    assert sorted(local.read_log(job) for job in jobs) == ["0\n", "1\n"]
    none = local.shell('echo "<$CUDA_VISIBLE_DEVICES>"')
    local.wait(none)
    assert local.read_log(none) == "<>\n"


def test_an_array_has_a_task_per_index(local: Local) -> None:
    """Each knows its index, and has a log of its own."""
    job = local.shell("echo index $KORNEL_INDEX of $KORNEL_TASK", indexes=(2, 5, 9), vcore=500)
    tasks = local.wait(job)
    assert [task["task"] for task in tasks] == [f"{job}.2", f"{job}.5", f"{job}.9"]
    assert local.read_log(f"{job}.5") == f"index 5 of {job}.5\n"


def test_a_job_waits_for_those_before_it(local: Local, tmp_path: Path) -> None:
    """It runs when they are done, and is cancelled when they cannot be."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    first = local.shell(f"{wait}; echo first >> {tmp_path}/order")
    second = local.shell(f"echo second >> {tmp_path}/order", after=(int(first),))
    bad = local.shell(f"{wait}; exit 1")
    last = local.shell("true", after=(int(bad),))
    assert local.task(second)["state"] == "held"
    (tmp_path / "go").touch()
    assert local.wait(second)[0]["state"] == "done"
    assert (tmp_path / "order").read_text() == "first\nsecond\n"
    (dependent,) = local.wait(last)
    assert (dependent["state"], dependent["reason"]) == ("cancelled", f"job {bad} did not end well")
    with pytest.raises(RequestRefused, match="did not end well"):
        local.shell("true", after=(int(bad),))


@pytest.mark.parametrize(
    ("command", "directory", "reason"),
    [
        (("/no/such/program",), "/", "cannot run /no/such/program: No such file or directory"),
        (("true",), "/no/such/place", "cannot change to /no/such/place: No such file or directory"),
        (("/etc/passwd",), "/", "cannot run /etc/passwd: Permission denied"),
    ],
)
def test_a_command_that_cannot_start_says_why(
    local: Local, command: tuple[str, ...], directory: str, reason: str
) -> None:
    (task,) = local.wait(local.submit(*command, directory=directory))
    assert (task["state"], task["reason"]) == ("failed", reason)


def test_what_the_core_does_not_take_says_why(local: Local) -> None:
    """Of a queue that does not exist, for instance."""
    (task,) = local.wait(local.shell("true", queue="missing"))
    assert task["state"] == "failed"
    assert task["reason"].startswith("no-queue")


def test_failures_are_tried_again(local: Local) -> None:
    """As often as the job says."""
    job = local.shell('echo try $KORNEL_ATTEMPT; [ "$KORNEL_ATTEMPT" = 3 ]', retries=2)
    (task,) = local.wait(job)
    assert (task["state"], task["attempt"], task["failures"]) == ("done", 3, 2)
    assert local.read_log(job) == "try 3\n"
    assert local.read_log(job, attempt=1) == "try 1\n"


def test_a_cancelled_job_leaves_no_process(local: Local, tmp_path: Path) -> None:
    """Neither by ignoring SIGTERM nor by leaving its session."""
    job = local.shell(LEAVER.format(folder=tmp_path), kill_s=0.3)
    wait_until((tmp_path / "leaver").exists, "a child that leaves")
    pid = int(wait_until((tmp_path / "leaver").read_text, "its ID"))
    ticks = start_ticks(pid)
    assert is_alive(pid, ticks)
    assert local.request("cancel", names=[job])["cancelled"] == 1
    (task,) = local.wait(job)
    assert task["state"] == "cancelled"
    assert not is_alive(pid, ticks)


def test_what_a_job_leaves_behind_ends_with_it(local: Local, tmp_path: Path) -> None:
    """The attempt is over only when all its processes are."""
    job = local.shell(f"setsid sleep 300 & echo $! > {tmp_path}/left; sleep 0.1; exit 0", kill_s=0.3)
    (task,) = local.wait(job)
    pid = int((tmp_path / "left").read_text())
    assert task["state"] == "done"
    assert not is_alive(pid, start_ticks(pid))


def test_a_log_has_a_limit(local: Local) -> None:
    """What is too much is left out, with a note, and the job goes on."""
    job = local.shell("yes | head -c 300000; exit 0", log_bytes=1000)
    (task,) = local.wait(job)
    assert task["state"] == "done"
    log = local.read_log(job)
    assert log.startswith("y\ny\n")
    assert "[kornel: the log has reached its limit of 1000 bytes; the rest is left out]" in log
    assert "[kornel: 299000 bytes of the log were left out]" in log
    assert len(log) < 1300


def test_a_job_ends_with_its_time(local: Local) -> None:
    (task,) = local.wait(local.shell("sleep 300", time_s=0.3))
    assert task["state"] == "failed"
    assert task["reason"].startswith("ran longer than its limit of ")


def test_training_is_preempted_and_resumed(local: Local, tmp_path: Path) -> None:
    """Urgent work has it save and leave; it goes on when there is room again."""
    job = local.shell(TRAINING, vcore=4000, directory=str(tmp_path), grace_s=20.0)
    local.wait_for_state(job, "running")
    wait_until(lambda: "begins" in local.read_log(job), "the training to begin")
    began = time.time()
    (urgent,) = local.wait(local.shell("sleep 0.2", queue="urgent", vcore=4000))
    assert urgent["state"] == "done"
    (task,) = local.wait(job)
    assert (task["state"], task["preemptions"], task["attempt"]) == ("done", 1, 2)
    saved = re.search(r"saved before ([0-9.]+)", local.read_log(job, attempt=1))
    assert saved is not None
    assert began + 15 < float(saved[1]) < time.time() + 20
    assert local.read_log(job) == "attempt 2 begins\nresumed from half\n"


def test_a_job_without_a_handler_is_not_killed_by_the_warning(local: Local) -> None:
    """SIGUSR1 would end it; it gets SIGTERM, for which it has a handler, at once."""
    job = local.shell("trap 'echo terminated; exit 0' TERM; echo ready; while :; do sleep 0.05; done", vcore=4000)
    wait_until(lambda: "ready" in local.read_log(job), "the job to begin")
    local.wait(local.shell("true", queue="urgent", vcore=4000))
    local.wait_for_state(job, "running")
    assert local.read_log(job, attempt=1).splitlines()[-1] == "terminated"
    local.request("cancel", names=[job])
    local.wait(job)
