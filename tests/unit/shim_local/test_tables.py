"""What a user reads of jobs and machines."""

from __future__ import annotations

import pytest

from kornel.shim_local.tables import format_jobs

JOB = {
    "id": 3,
    "name": "collect",
    "queue": "root.batch",
    "vcore": 1000,
    "memory": 0,
    "gpu": 0,
    "priority": 0,
    "after": [],
}
TASK = {"task": "3", "node": "vm", "state": "done", "stopping": False, "reason": "", "preemptions": 0, "attempt": 1}


@pytest.mark.parametrize(
    ("took_s", "shown"), [(0.0007, "0s"), (0.26, "0.3s"), (0.97, "1s"), (59.9, "59s"), (3_700, "1h1m")]
)
def test_a_time_is_as_exact_as_it_is_of_use(took_s: float, shown: str) -> None:
    task = TASK | {"started_s": 1_000.0, "ended_s": 1_000.0 + took_s}
    heads, row = format_jobs([JOB | {"tasks": [task]}], now=9_999.0)
    assert row[heads.index("TIME") :] == shown


def test_a_held_task_says_what_it_waits_for() -> None:
    """For the jobs before it, or, once its array has begun, for others of the array."""
    held = TASK | {"state": "held", "node": "", "started_s": 0.0, "ended_s": 0.0}
    array = JOB | {"after": [2], "at_once": 4, "on_hold": False, "size": 3, "tasks": [held]}
    for counts, note in (({"held": 2, "cancelled": 1}, "after 2"), ({"held": 2, "running": 1}, "4 at a time")):
        heads, row = format_jobs([array | {"counts": counts}], now=9_999.0)
        assert row[heads.index("NOTE") :] == note
