"""The committing process or the spooling thread fails: it is started again, or the status says so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest
from structlog.testing import CapturingLogger

from kornel.core.archive.archive import Archive
from kornel.core.archive.link import Report
from kornel.core.service.machine.helpers import Helper
from tests.patience import PATIENCE_S
from tests.prepared import find_program
from tests.unit.archive.archives import NOW_NS, events, everything, objects, settings_for, writing
from tests.waiting import wait_until


def test_committing_process_that_is_killed_is_started_again(database: str, tmp_path: Path) -> None:
    """At any moment: nothing that was stored is missing, nothing is there twice, and health says so meanwhile."""
    settings = settings_for(database, tmp_path)
    told: list[str] = []
    random = Random(7)
    with writing(settings) as archive:
        archive.on_problem = told.append
        for turn in range(5):
            archive.observe(events(2_000, 2_000 * turn))
            wait_until(lambda: archive.committer.pid is not None, "a process")
            pid = archive.committer.pid
            assert pid is not None
            program = find_program(pid)
            time.sleep(random.uniform(0.0, 0.3))
            os.kill(program, signal.SIGKILL)
            wait_until(lambda: archive.committer.pid != pid, "its death to be noticed")  # noqa: B023
        wait_until(lambda: archive.committer.pid is not None, "the last process")
        wait_until(lambda: archive.status().stored == 10_000, "records to be spooled")
        wait_until(lambda: not (archive.status().spool_bytes or archive.status().problem), "the database to catch up")
        assert archive.status().dropped == 0
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(10_000)]
    assert "ended by signal 9" in told[0]
    assert told[-1] == ""


def test_thread_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug on the way to the disk is a problem of the history that health tells of, not a silent end."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    logger = CapturingLogger()
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=logger)  # type: ignore[arg-type]

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(archive._spool, "append", fails)
    archive.start()
    archive.observe(events(1))
    wait_until(lambda: "nothing is stored any more: RuntimeError: a bug" in archive.status().problem, "the problem")
    archive.close(1.0)
    assert archive.status().stored == 0


def test_committing_process_that_says_nonsense_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be understood ends that process, and not the thread that looks after it."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    real, said = Helper.receive, iter([True])
    told: list[str] = []

    def misunderstood(helper: Helper) -> Report:
        if next(said, False):
            raise ValueError("nonsense")
        report: Report = real(helper)
        return report

    monkeypatch.setattr(Helper, "receive", misunderstood)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger(), on_problem=told.append)  # type: ignore[arg-type]
    archive.start()
    archive.observe(events(3))
    wait_until(lambda: "" in told, "the problem to be over")
    archive.close(PATIENCE_S)
    assert "nonsense" in told[0]
    assert len(everything(settings, "events")) == 3
