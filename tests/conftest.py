"""How Hypothesis works here, which tests run, and where cores that tests start keep their history.

A failure is reported as it was found, and shrunk only on demand.

Shrinking a failure of a long history takes minutes, which a test does not have. What was found is kept, so that
``pytest --hypothesis-profile=shrink --timeout=0 -k <test>`` begins where the failing run ended.
"""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, Phase, settings

from tests.distribution import pytest_xdist_make_scheduler
from tests.examples import BRIEF, LONG, SHRINK
from tests.history_databases import database, postgres, postgres_server
from tests.missing_programs import pytest_terminal_summary
from tests.prepared import pytest_unconfigure
from tests.selection import pytest_collection_modifyitems, pytest_ignore_collect

__all__ = [
    "database",
    "postgres",
    "postgres_server",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "pytest_xdist_make_scheduler",
]

# Python is started hundreds of times by a run: what it has compiled is kept, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Cores that tests start as processes serve HTTP only where they are told to: many run at once.
os.environ["KORNEL_REST_ADDRESS"] = "off"

# Hypothesis measures by the clock on the wall how long an example takes: that fails where others work beside it.
AT_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
AS_FOUND = settings(AT_ANY_SPEED, phases=(Phase.explicit, Phase.reuse, Phase.generate))
settings.register_profile(BRIEF, AS_FOUND, max_examples=50)
settings.register_profile(LONG, AS_FOUND, max_examples=200)
settings.register_profile(SHRINK, AT_ANY_SPEED, phases=tuple(Phase))
settings.load_profile(BRIEF)

# Tests share a machine with each other and with whoever develops on it; those that are about the history say where.
os.environ["KORNEL_HISTORY"] = "off"
