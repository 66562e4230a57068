"""Runs failed tests once more, alone, when a machine may stall: ``pytest -p tests.second_try``, which CI adds.

At most :data:`MOST` tests get a second try. What passes then is named at the end, so that it is seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

MOST: Final = 20

_failed: dict[str, None] = {}
_verdict: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Takes a failure back when every test that failed passes alone. What is no failure of a test stays."""
    if exitstatus != pytest.ExitCode.TESTS_FAILED or not _failed:
        return
    if len(_failed) > MOST:
        _verdict.append(f"{len(_failed)} tests failed: too many to be tried alone")
        return
    profile = session.config.getoption("--hypothesis-profile", default=None)
    command = [sys.executable, "-m", "pytest", *_failed]
    command += [f"--hypothesis-profile={profile}"] if profile else []
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=session.config.rootpath, env=environment, check=False)
    if done.returncode == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.OK
        _verdict.append(f"failed beside others, passed alone: {', '.join(_failed)}")
    else:
        _verdict.append("failed beside others, and not all of them passed alone")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _verdict:
        terminalreporter.write_line(line, yellow=True)
