"""How Hypothesis works here, and where cores that tests start keep their history.

A failure is reported as it was found, and shrunk only on demand.

Shrinking a failure of a long history takes minutes, which a test does not have. What was found is kept, so that
``pytest --hypothesis-profile=shrink --timeout=0 -k <test>`` begins where the failing run ended.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.history_databases import database, postgres, postgres_server

__all__ = ["database", "postgres", "postgres_server"]

LONG = Path(__file__).parent / "hostile"
"""Tests that run for minutes: collected only where somebody names them."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if collection_path == LONG and not any(path.is_relative_to(LONG) for path in named):
        return True
    return None


# Cores that tests start as processes serve HTTP only where they are told to: many run at once.
os.environ["KORNEL_REST_ADDRESS"] = "off"

settings.register_profile("brief", phases=(Phase.explicit, Phase.reuse, Phase.generate))
settings.register_profile("shrink", phases=tuple(Phase))
settings.load_profile("brief")

# Tests share a machine with each other and with whoever develops on it; those that are about the history say where.
os.environ["KORNEL_HISTORY"] = "off"
