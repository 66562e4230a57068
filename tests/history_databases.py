"""The databases that the history is tested with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres, programs, server


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for all tests of a worker."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin")
    with server(tmp_path_factory.getbasetemp() / "postgres") as running:
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


only_sqlite_in_brief = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)
"""For tests of what does not depend on the database, beside others that try each of them in every run."""
