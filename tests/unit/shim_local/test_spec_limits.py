"""Submissions that neither the wire nor a supervisor could take are refused before they are stored."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kornel.shim_local.jobs.spec import BadSpec, JobSpec
from kornel.shim_local.jobs.task import Job
from kornel.shim_local.machine.attempt_folder import AttemptFolder
from kornel.shim_local.machine.supervisor import Supervisor
from kornel.shim_local.server import core_link


def _make_spec(**values: Any) -> JobSpec:
    return JobSpec(("true",), "/", {}, "me", **values)


@pytest.mark.parametrize(
    "values",
    [
        {"priority": 2**31},
        {"priority": -(2**31) - 1},
        {"gpu": 2**63},
        {"gpu": 257},
        {"gpu": 1.5},
        {"gpu": 0.0001},
        {"gpu": 0.5, "vcore": 0},
        {"retries": 2**63},
        {"queue": "q\udcff"},
        {"queue": "q\x1b[2J"},
        {"groups": ("g\udcff",)},
    ],
)
def test_what_cannot_be_sent_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadSpec):
        _make_spec(**values).check()


def test_a_program_whose_name_is_no_text_can_be_reported() -> None:
    spec = JobSpec(("./Stra\udcdfe.sh",), "/", {}, "me", queue="batch")
    spec.check()
    application = core_link._make_application(Job(1, spec, 0.0))
    assert application.tags["kornel.name"] == "Stra?e.sh"


def test_a_deadline_may_be_later_than_poll_can_wait(tmp_path: Path) -> None:
    supervisor = Supervisor(AttemptFolder(tmp_path), None)  # type: ignore[arg-type]
    supervisor._deadlines["limit"] = time.monotonic() + 400 * 86_400
    wait_ms = supervisor._wait_ms()
    assert wait_ms is not None
    assert wait_ms < 2**31
