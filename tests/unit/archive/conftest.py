"""Starts the processes that write databases from one that has imported what they need."""

from __future__ import annotations

import pytest

from tests.prepared import python


@pytest.fixture
def cold_committer() -> None:
    """Has the committing process of a test started as a core starts it, so that its ID can be used for signals."""


@pytest.fixture(autouse=True)
def _committers_are_prepared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "cold_committer" not in request.fixturenames:
        monkeypatch.setattr("sys.executable", python())
