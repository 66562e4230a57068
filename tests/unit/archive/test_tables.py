"""The tables: migrations make what queries expect, once, and queries use their indexes."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from kornel.core.archive.database import Database, connect
from kornel.core.archive.reader import HistoryReader, Page, match_any, match_column, match_queue
from kornel.core.archive.tables import METADATA, TABLES
from kornel.core.domain.effects import ApplicationAccepted
from tests.patience import PATIENCE_S
from tests.unit.archive.archives import PARTITION, events, settings_for, writing
from tests.waiting import wait_until


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_migrations_make_the_tables_that_queries_expect(database: str, tmp_path: Path) -> None:
    """Alembic finds no difference between the database and the metadata, indexes aside."""
    settings = settings_for(database, tmp_path)
    writer = Database(settings.url, settings.patience_s)
    writer.prepare_tables()
    with writer._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "history_version"})
        found = [change for change in compare_metadata(context, METADATA) if change[0] != "remove_index"]
        assert not found
        indexes = {index["name"] for table in TABLES for index in sa.inspect(connection).get_indexes(table)}
    assert indexes >= {f"{table}_by_time" for table in TABLES}
    writer.forget_connections()


def test_database_of_a_later_version_is_left_alone(database: str, tmp_path: Path) -> None:
    """The problem says so, records wait in the spool."""
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        archive.observe(events(1))
    engine = connect(settings.url, 5)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE history_version SET version_num = '9999'"))
    engine.dispose()
    with writing(settings) as archive:
        archive.observe(events(1, 1))
        wait_until(lambda: "later version" in archive.status().problem, "the problem to be noticed")
        assert archive.status().committed == 0


def test_other_users_cannot_read_a_file(tmp_path: Path) -> None:
    """It has configurations as they were written; so has the log beside it, while it is open."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    with writing(settings) as archive:
        archive.observe(events(1))
        wait_until(lambda: archive.status().committed > 0, "records to be committed")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("history.db*") if path.is_file()}
    assert {"history.db", "history.db-wal"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_two_writers_make_the_tables_once(database: str, tmp_path: Path) -> None:
    """Cores that share a database may start at the same moment."""
    settings = settings_for(database, tmp_path)
    writers = [Database(settings.url, settings.patience_s) for _ in range(4)]
    failures: list[Exception] = []

    def prepare(writer: Database) -> None:
        try:
            writer.prepare_tables()
        except Exception as error:  # noqa: BLE001 - the test tells which
            failures.append(error)

    threads = [threading.Thread(target=prepare, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for writer in writers:
        writer.forget_connections()


def test_another_one_writes_a_new_sqlite_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses to change the journal of a file that is being written at once, whatever patience is set."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def waited(seconds: float) -> None:
        waits.append(seconds)
        other.execute("COMMIT")

    monkeypatch.setattr("kornel.core.archive.database.time.sleep", waited)
    database = Database(settings.url, settings.patience_s)
    database.prepare_tables()
    assert len(waits) == 1
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.forget_connections()
    other.close()


def test_queues_below_a_queue(database: str, tmp_path: Path) -> None:
    """Its own records and those of all below it; not of queues whose names begin alike, whatever the characters."""
    inside = ["root.a", "root.a.b", "root.a.B-1.c", "root.a._"]
    outside = ["root.ab", "root.a-b", "root.A.b", "root", "root.a/b", "root.a@dot@b"]
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        archive.observe([ApplicationAccepted(f"app {queue}", PARTITION, queue, "ann") for queue in inside + outside])
    reader = HistoryReader(settings)
    rows, _ = reader.read_rows("applications", Page(), match_queue("applications", "root.a", "queue"))
    reader.close()
    assert sorted(row.queue for row in rows) == sorted(inside)


def test_filters_have_an_index(tmp_path: Path) -> None:
    """Nothing that is asked for by application, queue or object is looked for row by row."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    writer = Database(settings.url, settings.patience_s)
    writer.prepare_tables()
    asked = [
        ("applications", match_queue("applications", "root.a", "queue")),
        ("applications", match_column("applications", application_id="app")),
        ("events", match_column("events", object_id="ask")),
        ("events", match_column("events", reference_id="app")),
        ("preemptions", match_any("preemptions", "app", "for_application", "victim_application")),
        ("preemptions", match_queue("preemptions", "root.a", "for_queue", "victim_queue")),
    ]
    with writer._engine.connect() as connection:
        for table, conditions in asked:
            query = sa.select(TABLES[table]).where(*conditions)
            text = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))
            assert "SCAN" not in plan, (text, plan)
    writer.forget_connections()


@pytest.mark.parametrize("reader", ["nobody", "idle", "busy"])
def test_sqlite_file_is_whole_after_a_clean_stop(tmp_path: Path, reader: str) -> None:
    """A copy of the one file has everything, also while somebody has it open; who reads holds up nobody for long."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, patience_s=PATIENCE_S)
    log = tmp_path / "history.db-wal"
    other: sqlite3.Connection | None = None
    with writing(settings) as archive:
        archive.observe(events(10))
        wait_until(lambda: archive.status().committed == 10, "the tables")
        if reader != "nobody":
            other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
            assert other.execute("SELECT count(*) FROM events").fetchone() == (10,)
        if reader == "busy":
            assert other is not None
            other.execute("BEGIN")
            assert other.execute("SELECT count(*) FROM events").fetchone() == (10,)
        archive.observe(events(1_000, 10))
        before = time.monotonic()
    assert time.monotonic() - before < PATIENCE_S / 2, "it waited for the reader"
    if reader == "busy":
        assert other is not None
        assert log.stat().st_size > 0, "what the reader does not see yet has to wait until it has gone"
        other.close()
    else:
        assert not log.exists() or not log.stat().st_size
    copy = tmp_path / "copy.db"
    copy.write_bytes((tmp_path / "history.db").read_bytes())
    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("SELECT count(*) FROM events").fetchone() == (1_010,)
    if other is not None:
        other.close()
