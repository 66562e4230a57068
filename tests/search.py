"""Looks for failures that nobody has thought of: all properties, all their examples, with a new seed each round.

``make search MINUTES=30`` begins rounds for half an hour and ends with the last of them. A run in CI tries the same
examples each time, so that a change is judged by what it changes; here is where new examples are tried. What fails is
printed with the command that tries the same examples again.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

_failed: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints for each test that failed how its examples are tried again, and how they are shrunk."""
    options = (
        f"--hypothesis-profile=long --hypothesis-seed={config.getoption('--hypothesis-seed')} --timeout=0 --shrink"
    )
    for node in _failed:
        terminalreporter.write_line(f"again: pytest '{node}' {options}", red=True)


def search_once(seed: int, tests: list[str], workers: int) -> bool:
    """Tries all properties among *tests* with *seed*; returns whether all hold."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.search", "-q", "-m", "hypothesis and not alone"]
    command += ["--hypothesis-profile=long", f"--hypothesis-seed={seed}"]
    command += ["--workers", str(workers), *tests]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == pytest.ExitCode.OK


def main() -> int:
    """Begins rounds until time is up, and returns 1 when a test has failed in any of them."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.search")
    parser.add_argument("--minutes", type=float, default=30, help="how long to begin new rounds")
    parser.add_argument("--seed", type=int, help="the seed of the only round")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("tests", nargs="*", help="files, folders or single tests instead of all")
    wanted = parser.parse_args()
    if wanted.seed is not None:
        return 0 if search_once(wanted.seed, wanted.tests, wanted.workers) else 1
    until = time.monotonic() + wanted.minutes * 60
    found: list[int] = []
    rounds = 0
    while rounds == 0 or time.monotonic() < until:
        rounds += 1
        seed = secrets.randbits(32)
        print(f"\nround {rounds}: seed {seed}", flush=True)
        if not search_once(seed, wanted.tests, wanted.workers):
            found.append(seed)
    print(f"\n{rounds} rounds, of which failed: {', '.join(f'seed {seed}' for seed in found) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
