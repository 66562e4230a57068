"""How Hypothesis works here, which tests run, and where cores that tests start keep their history.

Examples follow from the test alone: who runs it again gets the same, and a change is judged by what it changes. New
ones are tried where ``--hypothesis-seed`` says so, as ``make search`` does.

A failure is reported as it was found, and shrunk only on demand, because shrinking a long history takes minutes, which
a test does not have: ``pytest --shrink --timeout=0 <test>``.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import prepared, workers
from tests.examples import BRIEF, LONG
from tests.history_databases import database, postgres, postgres_server
from tests.missing_programs import pytest_terminal_summary
from tests.prepared import pytest_unconfigure
from tests.selection import pytest_collection_modifyitems, pytest_ignore_collect
from tests.temporary import prefer_memory
from tests.workers import pytest_runtestloop

__all__ = [
    "database",
    "postgres",
    "postgres_server",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
    "pytest_runtestloop",
    "pytest_terminal_summary",
    "pytest_unconfigure",
]

prefer_memory()
prepared.prepare_helpers()

# A shell makes its background jobs ignore SIGINT, and all that they start: a command of ours would not end with Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Python is started hundreds of times by a run: what it has compiled is kept, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Cores that tests start as processes serve HTTP only where they are told to: many run at once.
os.environ["KORNEL_REST_ADDRESS"] = "off"

# Hypothesis measures by the clock on the wall how long an example takes: that fails where others work beside it.
COMMON = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.generate),
)
settings.register_profile(BRIEF, COMMON, max_examples=25)
settings.register_profile(LONG, COMMON, max_examples=200)
settings.load_profile(BRIEF)

# Tests share a machine with each other and with whoever develops on it; those that are about the history say where.
os.environ["KORNEL_HISTORY"] = "off"


def pytest_addoption(parser: pytest.Parser) -> None:
    workers.pytest_addoption(parser)
    parser.addoption("--shrink", action="store_true", help="shrink what Hypothesis finds, which may take minutes")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Applies a seed that is named, which Hypothesis ignores where examples follow from the test, and ``--shrink``."""
    name = settings.get_current_profile_name()
    profile = settings.get_profile(name)
    if config.getoption("--hypothesis-seed", default=None) is not None:
        profile = settings(profile, derandomize=False)
    if config.getoption("--shrink"):
        profile = settings(profile, phases=(Phase.explicit, Phase.generate, Phase.shrink))
    settings.register_profile(name, profile)
    settings.load_profile(name)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prepares one process for all workers, which imports while tests are collected."""
    if session.config.getoption("--workers"):
        prepared.begin()


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("--workers"):
        prepared.python()
