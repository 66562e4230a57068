"""How fast kornel-local is: in processor time, and by the clock where nobody else is at work."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from kornel.shim_local.machine.attempt_folder import AttemptFolder, Slot
from kornel.shim_local.machine.processes import find_descendants
from tests.e2e.local.harness import Local, running_local
from tests.waiting import wait_until

JOBS: Final = 1000
LEAST_RATE: Final = 100.0
MOST_S: Final = 0.050
PROCESSORS: Final = 2
QUIET: Final = 0.1
"""The part of the machine that others may use while the clock is believed."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


def read_used(pid: int) -> float:
    """Returns the processor time that a process has used."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / TICKS


def read_busy() -> float:
    """Returns the processor time that the whole machine has used, with what its host took away from it."""
    user, nice, system, _idle, _waiting, *others = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    return sum(map(int, (user, nice, system, *others))) / TICKS


@dataclass(frozen=True)
class Cost:
    """The processor time of some jobs: of the programs that stay, and of those that each job has."""

    server: float
    others: float
    """The core, its children, and the launching process."""
    supervisors: float
    commands: float
    elsewhere: float
    """The part of the machine that was used by programs that have nothing to do with it."""

    @property
    def whole(self) -> float:
        """The processor time of everything together."""
        return self.server + self.others + self.supervisors + self.commands


def run_jobs(local: Local, size: int, *command: str, vcore: int) -> tuple[list[dict[str, Any]], float, Cost]:
    """Returns the tasks of an array once it is over, when it was submitted, and what each task has cost."""
    assert local.process is not None
    server = local.process.pid
    staying = find_descendants(server)
    busy, began = read_busy(), time.time()
    before = [read_used(pid) for pid in (server, *staying)]
    job = local.submit(*command, indexes=tuple(range(size)), vcore=vcore)
    tasks = local.wait(job)
    took = time.time() - began
    used, *others = (read_used(pid) - earlier for pid, earlier in zip((server, *staying), before, strict=True))
    ends = read_ends(local.folder / "agent" / "done", job, size)
    cost = Cost(
        used / size,
        sum(others) / size,
        sum(end["own_cpu_s"] for end in ends) / size,
        sum(end["cpu_s"] for end in ends) / size,
        0.0,
    )
    elsewhere = (read_busy() - busy - size * cost.whole) / (took * len(os.sched_getaffinity(0)))
    return tasks, began, Cost(cost.server, cost.others, cost.supervisors, cost.commands, elsewhere)


def read_ends(folder: Path, job: str, size: int) -> Sequence[dict[str, Any]]:
    """Returns how the attempts of an array ended, once all have been put away."""
    wait_until(lambda: len(list(folder.glob(f"{job}.*"))) == size, "all attempts to be put away")
    ends = [AttemptFolder(path).read_slot(Slot.END) for path in folder.glob(f"{job}.*")]
    assert None not in ends
    return [end for end in ends if end is not None]


def describe_cost(cost: Cost) -> str:
    """Returns the parts of a cost in milliseconds."""
    parts = {
        "server": cost.server, "core and launching process": cost.others, "supervisor": cost.supervisors,
        "command": cost.commands,
    }  # fmt: skip
    listed = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in parts.items())
    return f"{1000 * cost.whole:.1f} ms of processor time a job ({listed}); others used {100 * cost.elsewhere:.0f} %"


@pytest.mark.alone
def test_a_thousand_short_jobs_take_ten_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processors have the time for a hundred a second, and the server's thread needs half of one."""
    with running_local(tmp_path / "s", "--vcore", "64", real=True) as local:
        tasks, began, cost = run_jobs(local, JOBS, "true", vcore=1000)
    rate = JOBS / (max(task["ended_s"] for task in tasks) - began)
    with capsys.disabled():
        print(f"\nkornel-local: {rate:.0f} jobs/s; {describe_cost(cost)}")
    assert {task["state"] for task in tasks} == {"done"}
    assert cost.whole <= PROCESSORS / LEAST_RATE
    # The server is one thread.
    assert cost.server <= 1 / LEAST_RATE / 2
    assert rate >= LEAST_RATE or cost.elsewhere > QUIET


@pytest.mark.alone
def test_a_free_place_is_taken_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs that each take the whole machine follow one another within fifty milliseconds."""
    with running_local(tmp_path / "s", "--vcore", "64", real=True) as local:
        tasks, _, cost = run_jobs(local, 40, "sleep", "0.02", vcore=64_000)
    tasks.sort(key=lambda task: float(task["started_s"]))
    pause_s = median(after["started_s"] - before["ended_s"] for before, after in pairwise(tasks))
    with capsys.disabled():
        print(f"\nkornel-local: from free to started {1000 * pause_s:.0f} ms (p50); {describe_cost(cost)}")
    # One after the other: what all of them compute is no longer than the pause may be.
    assert cost.whole <= MOST_S
    assert pause_s <= MOST_S or cost.elsewhere > QUIET
