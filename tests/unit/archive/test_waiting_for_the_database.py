"""A database that is away, slow, locked or replaced: nothing is lost, nobody waits for it, and the status says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from kornel.core.archive.database import _MIGRATION_LOCK, Database, connect
from kornel.core.archive.settings import history_settings
from kornel.core.archive.tables import TABLES
from tests.patience import PATIENCE_S
from tests.postgres import Postgres
from tests.prepared import find_program
from tests.silent_proxy import silent_proxy
from tests.unit.archive.archives import NOW_NS, events, everything, objects, settings_for, writing
from tests.waiting import wait_until


def test_database_out_of_reach_loses_nothing_and_says_so(postgres: Postgres, tmp_path: Path) -> None:
    """While the server is down records are stored in the spool; health knows since when; then all arrive, once."""
    settings = settings_for(postgres.url, tmp_path, patience_s=PATIENCE_S)
    told: list[str] = []
    with writing(settings) as archive:
        archive.on_problem = told.append
        archive.observe(events(100))
        wait_until(lambda: archive.status().committed == 100, "the database to take records")
        postgres.stop()
        archive.observe(events(3_000, 100))
        wait_until(lambda: archive.status().stored == 3_100, "records to be spooled")
        wait_until(lambda: bool(archive.status().problem), "the problem to be noticed")
        status = archive.status()
        assert "database cannot be written" in status.problem
        assert status.problem_since_ns == NOW_NS
        assert status.spool_bytes > 10_000
        postgres.start()
        wait_until(lambda: archive.status().committed >= 3_100, "the database to catch up")
        wait_until(lambda: not archive.status().problem, "the problem to be over")
        assert archive.status().dropped == 0
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(3_100)]
    assert [bool(text) for text in told] == [True, False]


def test_slow_database_holds_nobody_up(postgres: Postgres, tmp_path: Path) -> None:
    """While a commit hangs, observing does not, and records are stored; afterwards all are there."""
    settings = settings_for(postgres.url, tmp_path, patience_s=PATIENCE_S)
    with writing(settings) as archive:
        archive.observe(events(1))
        wait_until(lambda: archive.status().committed == 1, "the tables")
        with postgres.connect() as other:
            other.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            before = time.monotonic()
            for first in range(1, 2_001, 100):
                archive.observe(events(100, first))
            assert time.monotonic() - before < settings.patience_s / 3, "it waited for the commit"
            wait_until(lambda: archive.status().stored == 2_001, "records to be spooled")
            assert archive.status().committed == 1
        wait_until(lambda: archive.status().committed == 2_001, "the database to catch up")
    assert len(everything(settings, "events")) == 2_001


def test_locked_sqlite_file_is_waited_for(tmp_path: Path) -> None:
    """Somebody who holds the file for longer than the writer's patience makes a problem, not a loss."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, patience_s=0.05)
    with writing(settings) as archive:
        archive.observe(events(1))
        wait_until(lambda: archive.status().committed == 1, "the tables")
        other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        archive.observe(events(10, 1))
        wait_until(lambda: "locked" in archive.status().problem, "the problem to be noticed")
        other.execute("ROLLBACK")
        other.close()
        wait_until(lambda: archive.status().committed == 11, "the database to catch up")
    assert len(everything(settings, "events")) == 11


def test_closing_does_not_wait_for_a_dead_database(tmp_path: Path) -> None:
    """What is queued reaches the spool, and the core goes down."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = settings_for(str(blocked / "history.db"), tmp_path)
    with writing(settings) as archive:
        archive.observe(events(50))
        before = time.monotonic()
        archive.close(PATIENCE_S)
        assert time.monotonic() - before < PATIENCE_S / 2, "it waited for the database"
        assert archive.status().stored == 50
    blocked.unlink()
    with writing(settings) as archive:
        wait_until(lambda: archive.status().committed == 50, "the spool to be replayed")


def test_database_that_hangs_without_a_word_is_told(tmp_path: Path) -> None:
    """A process that neither commits nor complains is a problem too; it is over once it goes on."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, silence_s=0.3)
    with writing(settings) as archive:
        archive.observe(events(1))
        wait_until(lambda: archive.status().committed == 1 and not archive.status().problem, "the tables")
        pid = archive.committer.pid
        assert pid is not None
        program = find_program(pid)
        os.kill(program, signal.SIGSTOP)
        try:
            archive.observe(events(1, 1))
            wait_until(lambda: "accepted nothing for 0.3 s" in archive.status().problem, "the silence to be noticed")
            wait_until(lambda: archive.status().stored == 2, "the record to be spooled")
        finally:
            os.kill(program, signal.SIGCONT)
        wait_until(lambda: archive.status().committed == 2, "the database to catch up")
        wait_until(lambda: not archive.status().problem, "the problem to be over")


def test_idle_history_is_no_silent_one(tmp_path: Path) -> None:
    """Nothing to take for longer than the database may be silent is no problem when something comes."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    told: list[str] = []
    with writing(settings) as archive:
        archive.observe(events(1))
        wait_until(lambda: archive.status().committed == 1 and not archive.status().problem, "the tables")
        archive.on_problem = told.append
        archive._moved_s -= 3_600
        archive.observe(events(1, 1))
        wait_until(lambda: archive.status().committed == 2, "the next record")
    assert told == []


def test_database_that_takes_less_than_comes_is_told(tmp_path: Path) -> None:
    """Long before the spool is full."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = settings_for(str(blocked / "history.db"), tmp_path, spool_bytes=20_000)
    with writing(settings) as archive:
        archive.observe(events(220))
        wait_until(lambda: archive.status().stored == 220, "records to be spooled")
        archive.observe(events(1, 220))
        wait_until(lambda: "half of the spool" in archive.status().problem, "the size to be noticed")
        assert "spool is full" not in archive.status().problem
        blocked.unlink()
        wait_until(lambda: archive.status().committed == 221, "the database to catch up")
        wait_until(lambda: not archive.status().problem, "the problem to be over")


def test_database_that_was_replaced_gets_its_tables(postgres: Postgres, tmp_path: Path) -> None:
    """One that comes back empty is made ready again; what the old one had taken is not brought back."""
    settings = settings_for(postgres.url, tmp_path)
    with writing(settings) as archive:
        archive.observe(events(1))
        wait_until(lambda: archive.status().committed == 1, "the tables")
        with postgres.connect() as other:
            other.execute(f"DROP TABLE history_version, {', '.join(TABLES)}")
        archive.observe(events(2, 1))
        wait_until(lambda: archive.status().committed == 3, "the new tables")
    assert objects(everything(settings, "events")) == ["ask-1", "ask-2"]


def test_commits_are_on_the_servers_disk_whatever_the_role_is_set_to(postgres: Postgres) -> None:
    """The spool lets go of what is committed."""
    found = history_settings(postgres.url)
    assert found is not None
    with postgres.connect() as other:
        other.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
    try:
        engine = connect(found.url, PATIENCE_S)
        with engine.connect() as connection:
            assert connection.execute(sa.text("SHOW synchronous_commit")).scalar() == "on"
        engine.dispose()
    finally:
        with postgres.connect() as other:
            other.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")


def test_a_transaction_that_was_given_up_ends(postgres: Postgres, tmp_path: Path) -> None:
    """The server ends it and drops its locks, also if it never hears that the client has gone."""
    engine = connect(settings_for(postgres.url, tmp_path).url, 0.2)
    with engine.connect() as connection, postgres.connect() as other:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(5)"))
        other.execute(f"SET lock_timeout = '{PATIENCE_S}s'")
        other.execute("SELECT pg_advisory_lock(5)")
        other.execute("SELECT pg_advisory_unlock(5)")
        connection.invalidate()
    engine.dispose()


def test_a_start_with_nothing_to_migrate_waits_for_nobody(postgres: Postgres, tmp_path: Path) -> None:
    """Its answers have a deadline like all others, which only a migration has not."""
    settings = settings_for(postgres.url, tmp_path)
    with closing(Database(settings.url, PATIENCE_S)) as first:
        first.prepare_tables()
    with closing(Database(settings.url, 0.2)) as database, postgres.connect() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        database.prepare_tables()


async def test_the_first_questions_to_a_server_have_a_deadline(postgres: Postgres, tmp_path: Path) -> None:
    """SQLAlchemy asks each new server what it is."""
    async with silent_proxy(postgres.port) as proxy:
        url = postgres.url.replace(str(postgres.port), str(proxy.port))
        engine = connect(settings_for(url, tmp_path).url, 0.2)
        sa.event.listen(engine, "connect", lambda *_: setattr(proxy, "silent", True), insert=True)
        with pytest.raises(sa.exc.DBAPIError, match="the database has not answered for"):
            await asyncio.wait_for(asyncio.to_thread(engine.connect), PATIENCE_S)
        engine.dispose()
