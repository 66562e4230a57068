"""Prints what the files of a run cost in processor time: ``make test OPTIONS="-p tests.costs"``.

Processor time is that of the worker and of every process below it, those that still run included, so it says the same
on a busy machine, and a test pays for what it has a shared server or browser do.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests import prepared
from tests.workers import name_unit

MOST: Final = 40
OUTPUT: Final = "KORNEL_TEST_COSTS"
"""Names a file for how long the longest units last, which are dealt out first: ``tests/costs.json``."""
LONG_PHASE_S: Final = 0.05
LEAST_S: Final = 1.0
"""How long a unit of that file lasts at least."""

_tests: Counter[str] = Counter()
_durations: Counter[str] = Counter()


class Meter:
    """Measures what the phases of tests cost, each since the one before."""

    def __init__(self) -> None:
        self._own_s = self._others_s = 0.0

    def leave_out(self) -> None:
        """Counts what this process has done until now towards no phase."""
        self._own_s = time.process_time()

    def measure_phase(self, duration_s: float) -> float:
        """Returns the seconds of processor time that a phase of *duration_s* has cost.

        To look at the processes that were started takes longer than most phases last: what they have used in a short
        one counts towards the next long one.
        """
        own_s = time.process_time()
        cost = own_s - self._own_s
        self._own_s = own_s
        if duration_s >= LONG_PHASE_S:
            others_s = measure_others()
            cost += others_s - self._others_s
            self._others_s = others_s
            self._own_s = time.process_time()
        return cost


_meter: Final = Meter()


def measure_others() -> float:
    """Returns the seconds of processor time of all processes that this one has started, ended or not."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    # What the process that forks has forked, it reports itself.
    running = sum(map(_measure_running, set(_find_children(os.getpid())) - prepared.list_keepers()))
    return prepared.sum_costs() + running + ended.ru_utime + ended.ru_stime


def _find_children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # The process has ended.
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # The thread has ended.
                found += map(int, thread.read_text(encoding="ascii").split())
    return found


def _measure_running(pid: int) -> float:
    """Returns the seconds that process *pid* has used, and every process below it."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
    except OSError:  # It has ended.
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + sum(map(_measure_running, _find_children(pid)))


def pytest_runtest_logstart() -> None:
    _meter.leave_out()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of each phase what the phase has cost."""
    report = yield
    vars(report)["processor_s"] = _meter.measure_phase(report.duration)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _tests[report.nodeid] += getattr(report, "processor_s", 0.0)
    _durations[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the costliest files and tests, and the time of them all."""
    files: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, cost in _tests.items():
        files[name.partition("::")[0]] += cost
        counts[name.partition("::")[0]] += 1
    write = terminalreporter.write_line
    write(f"processor time of {len(_tests)} tests: {_tests.total():.0f} s; the costliest files:")
    for name, cost in files.most_common(MOST):
        write(f"{cost:8.1f} s  {counts[name]:5} tests  {name}")
    if OUTPUT in os.environ:
        units: Counter[str] = Counter()
        for name, duration in _durations.items():
            units[name_unit(name)] += duration
        longest = {name: round(duration, 1) for name, duration in units.most_common() if duration >= LEAST_S}
        Path(os.environ[OUTPUT]).write_text(json.dumps(longest, indent=1) + "\n", encoding="utf-8")
