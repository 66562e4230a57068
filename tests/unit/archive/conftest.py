"""Starts the processes that write databases from one that has imported what they need."""

from __future__ import annotations

import pytest

from tests.prepared import python


@pytest.fixture(autouse=True)
def _committers_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", python())
