"""The databases that the history is tested with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres, programs, server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests of a run."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin")
    with server() as running:
        yield running


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    """The server, with an empty database."""
    if postgres_server.process is None:
        postgres_server.start()
    postgres_server.clear()
    return postgres_server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty history database is, as ``--history`` takes it: once as SQLite, once as PostgreSQL."""
    if request.param == "sqlite":
        return str(tmp_path / "db" / "history.db")
    url: str = request.getfixturevalue("postgres").url
    return url
