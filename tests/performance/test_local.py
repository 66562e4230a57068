"""How fast kornel-local is on this machine, with nothing beside it."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.local.harness import running_local

JOBS = 1000
LEAST_RATE = 100.0
MOST_S = 0.050


@pytest.mark.alone
def test_short_jobs_and_free_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand short jobs at a hundred per second; a place that gets free is taken within fifty milliseconds."""
    with running_local(tmp_path / "s", "--vcore", "64", real=True) as local:
        began = time.time()
        tasks = local.wait(local.submit("true", indexes=tuple(range(JOBS))))
        rate = JOBS / (max(task["ended_s"] for task in tasks) - began)
        # One after the other, because each takes the whole machine.
        tasks = local.wait(local.submit("sleep", "0.02", indexes=tuple(range(40)), vcore=64_000))
        tasks.sort(key=lambda task: float(task["started_s"]))
        pause_s = median(after["started_s"] - before["ended_s"] for before, after in pairwise(tasks))
    with capsys.disabled():
        load = os.getloadavg()[0]
        print(f"\nkornel-local: {rate:.0f} jobs/s; free to started {1000 * pause_s:.0f} ms (p50); load {load:.1f}")
    assert rate >= LEAST_RATE
    assert pause_s <= MOST_S
