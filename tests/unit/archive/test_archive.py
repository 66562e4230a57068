"""From effects to rows, on a real SQLite and a real PostgreSQL: nothing waits, nothing stored is lost or doubled."""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from structlog.testing import CapturingLogger

from kornel.core.archive.archive import Archive
from kornel.core.archive.database import Database, connect
from kornel.core.archive.link import Report
from kornel.core.archive.reader import HistoryReader, Page, match_any, match_column, match_queue
from kornel.core.archive.records import decode_batch, encode_batch
from kornel.core.archive.settings import DAY_S, HistorySettings, Retention, history_settings
from kornel.core.archive.spool import Frame, Place, SpoolWriter
from kornel.core.archive.tables import METADATA, TABLES
from kornel.core.config.problems import Problem, Severity
from kornel.core.domain.effects import (
    Allocated,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationRemoved,
    ApplicationUpdated,
    Effect,
    EventRecorded,
    PreemptionDecided,
    VictimRecord,
)
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.service.configuration_history import Origin, Version
from kornel.core.service.logs import LogFormat, LogLevel, build_logger
from tests.postgres import Postgres

PATIENCE_S = 60.0
NOW_NS = 1_700_000_000 * 10**9
PARTITION = "[rm]default"


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.005)


def settings_for(database: str, tmp_path: Path, **changes: Any) -> HistorySettings:
    found = history_settings(database, spool=tmp_path / "spool")
    assert found is not None
    quick = {"commit_wait_s": 0.01, "longest_pause_s": 0.2, "prune_every_s": 3600.0, "steady_s": 0.0}
    return replace(found, **(quick | changes))


@contextmanager
def writing(settings: HistorySettings, now_ns: Callable[[], int] = lambda: NOW_NS) -> Iterator[Archive]:
    archive = Archive(settings, now_ns=now_ns, logger=build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO()))
    archive.start()
    try:
        yield archive
    finally:
        archive.close(PATIENCE_S)


def everything(settings: HistorySettings, table: str) -> list[Any]:
    """All rows of *table*, the oldest first."""
    reader = HistoryReader(settings)
    try:
        found: list[Any] = []
        page = Page(size=1_000)
        while True:
            rows, more = reader.read_rows(table, page)
            found += rows
            if not more:
                return found[::-1]
            page = replace(page, after=(rows[-1].at_ns, rows[-1].run, rows[-1].seq))
    finally:
        reader.close()


def event(number: int, message: str = "", at_ns: int | None = None) -> EventRecorded:
    return EventRecorded(
        1,
        f"ask-{number}",
        "app",
        2,
        101,
        NOW_NS + number if at_ns is None else at_ns,
        Resources({"vcore": number}),
        message,
    )


def events(count: int, first: int = 0) -> list[Effect]:
    return [event(first + number) for number in range(count)]


def objects(rows: Sequence[Any]) -> list[str]:
    return [row.object_id for row in rows]


def test_what_an_older_version_spooled_is_taken(database: str, tmp_path: Path) -> None:
    """Its configurations name nobody; those of the database from before the migration do not either."""
    version = Version(1, NOW_NS, Origin.FILE, "rm", "ABC", "partitions: []\n", True, "", ())
    _, frame = encode_batch([(NOW_NS, [version])], 1)
    ((table, rows),) = orjson.loads(frame)
    older = orjson.dumps([(table, [row[:-2] for row in rows])])
    ((_, row),) = decode_batch(older)
    assert list(row) == [*rows[0][:-2], "", ""]
    settings = settings_for(database, tmp_path)
    writer = Database(settings.url, settings.patience_s)
    writer.prepare_tables()
    writer.store_frames([Frame(1, 1, 1, older, Place(0, 0))])
    writer.forget_connections()
    (stored,) = everything(settings, "configurations")
    assert (stored.principal, stored.note, stored.config) == ("", "", "partitions: []\n")


def test_every_kind_comes_back_as_it_was(database: str, tmp_path: Path) -> None:
    """Applications, preemptions with a row for each victim, events and configurations; other effects are not kept."""
    victims = tuple(
        VictimRecord(f"v{n}", f"app-{n}", f"root.b{n}", "node-1", Resources({"vcore": n, "memory": 2**62}), -n)
        for n in range(2)
    )
    told: list[Effect] = [
        ApplicationAccepted("app", PARTITION, "root.a", "ann"),
        ApplicationRejected("bad", "no-queue: root.x", "default", "root.x", "bob"),
        ApplicationUpdated("app", "Running", NOW_NS + 5, "runApplication", PARTITION, "root.a", "ann", NOW_NS),
        ApplicationRemoved("app", "Running", NOW_NS + 6, PARTITION, "root.a", "ann", NOW_NS),
        Allocated(None, "node-1", Resources()),  # type: ignore[arg-type]  # it is not looked at
        PreemptionDecided(
            NOW_NS, PARTITION, "guarantee", "k", "app", "root.a", Outcome.TRIGGERED, "why", "node-1", victims
        ),
        PreemptionDecided(NOW_NS, PARTITION, "guarantee", "k", "app", "root.a", Outcome.TOO_YOUNG, "", "", ()),
        PreemptionDecided(NOW_NS, PARTITION, "governor", "", "", "root.a", Outcome.BUDGET_SPENT, "spent", "", ()),
        event(3, "placed"),
        event(4)._replace(resources=None),
    ]
    problem = Problem(Severity.WARNING, 3, 1, "partitions[0]", "odd", "even")
    version = Version(
        1, NOW_NS, Origin.FILE, "rm", "ABC", "partitions: []\n", False, "refused", (problem,), "cn:ops", "held"
    )
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        archive.observe(told)
        archive.version_added(version)
        run = archive.status().run
    applications = [row[3:] for row in everything(settings, "applications")]
    assert applications == [
        (PARTITION, "app", "root.a", "ann", "New", NOW_NS, ""),
        ("default", "bad", "root.x", "bob", "Rejected", NOW_NS, "no-queue: root.x"),
        (PARTITION, "app", "root.a", "ann", "Running", NOW_NS, "runApplication"),
        (PARTITION, "app", "root.a", "ann", "Removed", NOW_NS, "removed by its resource manager while Running"),
    ]
    found = everything(settings, "preemptions")
    assert [(row.seq, row.decision, row.victim_key, row.outcome) for row in found] == [
        (5, 5, "v0", "TRIGGERED"),
        (6, 5, "v1", "TRIGGERED"),
        (7, 7, "", "BUDGET_SPENT"),
    ]
    assert found[1].laws == "1 2 3 4 5 6 7"
    assert found[1][9:] == (
        "k", "app", "root.a", "node-1", "v1", "app-1", "root.b1", "node-1", f'{{"memory":{2**62},"vcore":1}}', -1,
    )  # fmt: skip
    assert [row[1:] for row in everything(settings, "events")] == [
        (8, NOW_NS + 3, 1, 2, 101, "ask-3", "app", '{"vcore":3}', "placed"),
        (9, NOW_NS + 4, 1, 2, 101, "ask-4", "app", "", ""),
    ]
    (configuration,) = everything(settings, "configurations")
    assert configuration[:2] == (run, 10)
    assert (configuration.origin, configuration.applied, configuration.config) == ("file", False, version.text)
    assert '"line":3' in configuration.problems
    assert (configuration.principal, configuration.note) == ("cn:ops", "held")


@pytest.mark.parametrize("same_time", [True, False], ids=["one time", "two times"])
@pytest.mark.parametrize("same_text", [True, False], ids=["one text", "two texts"])
def test_events_of_one_moment_are_told_as_others_are(same_time: bool, same_text: bool) -> None:
    """What a whole slice has in common goes to the disk once, and comes back with each."""
    told = [
        event(n, "a" if same_text or n < 2 else "b", NOW_NS if same_time or n < 2 else NOW_NS + 1) for n in range(3)
    ]
    records, payload = encode_batch([(NOW_NS, told), (NOW_NS, told[:1])], 1)
    rows = [tuple(row) for _, row in decode_batch(payload)]
    assert records == len(rows) == 4
    assert [(row[0], row[4], row[7]) for row in rows] == [(e.at_ns, e.object_id, e.message) for e in [*told, told[0]]]


def test_text_that_databases_refuse_is_kept_all_the_same(database: str, tmp_path: Path) -> None:
    """Zero characters are replaced; anything else that is text stays as it is."""
    told = ["zero \x00 here", "\\u0000", "'; DROP TABLE events; --", "%s %(x)s ? :a", "\U0001f600\x1b[31m\n", ""]
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        archive.observe([event(number, text) for number, text in enumerate(told)])
    assert [row.message for row in everything(settings, "events")] == ["zero \ufffd here", *told[1:]]


def test_record_that_the_database_refuses_keeps_no_other_out(database: str, tmp_path: Path) -> None:
    """It is left out and counted."""
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        archive.observe([event(1), event(2, at_ns=2**63), event(3)])
        until(lambda: archive.status().committed == 3, "the batch")
        assert archive.status().refused == 1
        assert archive.status().problem == ""
    assert objects(everything(settings, "events")) == ["ask-1", "ask-3"]


def test_database_out_of_reach_loses_nothing_and_says_so(postgres: Postgres, tmp_path: Path) -> None:
    """While the server is down records are stored in the spool; health knows since when; then all arrive, once."""
    settings = settings_for(postgres.url, tmp_path, patience_s=2.0)
    told: list[str] = []
    with writing(settings) as archive:
        archive.on_problem = told.append
        archive.observe(events(100))
        until(lambda: archive.status().committed == 100, "the database to take records")
        postgres.stop()
        archive.observe(events(3_000, 100))
        until(lambda: archive.status().stored == 3_100, "records to be spooled")
        until(lambda: bool(archive.status().problem), "the problem to be noticed")
        status = archive.status()
        assert "database cannot be written" in status.problem
        assert status.problem_since_ns == NOW_NS
        assert status.spool_bytes > 10_000
        postgres.start()
        until(lambda: archive.status().committed >= 3_100, "the database to catch up")
        until(lambda: not archive.status().problem, "the problem to be over")
        assert archive.status().dropped == 0
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(3_100)]
    assert [bool(text) for text in told] == [True, False]


def test_slow_database_holds_nobody_up(postgres: Postgres, tmp_path: Path) -> None:
    """While a commit hangs, observing does not, and records are stored; afterwards all are there."""
    settings = settings_for(postgres.url, tmp_path, patience_s=30.0)
    with writing(settings) as archive:
        archive.observe(events(1))
        until(lambda: archive.status().committed == 1, "the tables")
        with postgres.connect() as other:
            other.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            before = time.monotonic()
            for first in range(1, 2_001, 100):
                archive.observe(events(100, first))
            assert time.monotonic() - before < settings.patience_s / 3, "it waited for the commit"
            until(lambda: archive.status().stored == 2_001, "records to be spooled")
            assert archive.status().committed == 1
        until(lambda: archive.status().committed == 2_001, "the database to catch up")
    assert len(everything(settings, "events")) == 2_001


def test_locked_sqlite_file_is_waited_for(tmp_path: Path) -> None:
    """Somebody who holds the file for longer than the writer's patience makes a problem, not a loss."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, patience_s=0.05)
    with writing(settings) as archive:
        archive.observe(events(1))
        until(lambda: archive.status().committed == 1, "the tables")
        other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        archive.observe(events(10, 1))
        until(lambda: "locked" in archive.status().problem, "the problem to be noticed")
        other.execute("ROLLBACK")
        other.close()
        until(lambda: archive.status().committed == 11, "the database to catch up")
    assert len(everything(settings, "events")) == 11


def test_spool_is_replayed_and_twice_is_once(database: str, tmp_path: Path) -> None:
    """What an earlier life left in the spool arrives; what the database had already is not doubled."""
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        archive.observe(events(5))
    (left,) = {row.run for row in everything(settings, "events")}
    spool = SpoolWriter(settings.spool, 2**20)
    spool.append(left, 1, 8, encode_batch([(NOW_NS, events(8))], 1)[1])  # type: ignore[list-item]  # they are of the kind
    spool.close()
    with writing(settings) as archive:
        until(lambda: archive.status().committed == 8, "the spool to be replayed")
        archive.observe([event(8)])
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(9)]


def test_newest_are_dropped_when_nothing_has_room(tmp_path: Path) -> None:
    """A full spool fills the queue; then the newest records are dropped and counted. What was stored all arrives."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = settings_for(str(blocked / "history.db"), tmp_path, spool_bytes=20_000, queue_records=500)
    with writing(settings) as archive:
        for first in range(0, 5_000, 100):
            archive.observe(events(100, first))
            until(lambda: not archive.status().queued or "spool is full" in archive.status().problem, "room or its end")
        status = archive.status()
        assert status.dropped > 1_000
        assert "spool is full" in status.problem
        until(lambda: "database cannot be written" in archive.status().problem, "the other problem")
        blocked.unlink()
        until(lambda: archive.status().stored == 5_000 - archive.status().dropped, "the queue to be stored")
        until(lambda: archive.status().committed == archive.status().stored, "the database to catch up")
        until(lambda: not archive.status().problem, "the problem to be over")
        kept = archive.status().stored
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(kept)]


def test_closing_does_not_wait_for_a_dead_database(tmp_path: Path) -> None:
    """What is queued reaches the spool, and the core goes down."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = settings_for(str(blocked / "history.db"), tmp_path)
    with writing(settings) as archive:
        archive.observe(events(50))
        before = time.monotonic()
        archive.close(10.0)
        assert time.monotonic() - before < 5
        assert archive.status().stored == 50
    blocked.unlink()
    with writing(settings) as archive:
        until(lambda: archive.status().committed == 50, "the spool to be replayed")


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (Retention(), range(3_000)),
        (Retention(age_s=DAY_S), range(1_000, 3_000)),
        (Retention(rows=150), range(2_850, 3_000)),
        (Retention(age_s=DAY_S, rows=2_500), range(1_000, 3_000)),
        (Retention(age_s=DAY_S, rows=5), range(2_995, 3_000)),
    ],
    ids=["neither", "age", "rows", "age is stricter", "rows are stricter"],
)
def test_retention(database: str, tmp_path: Path, keep: Retention, left: range) -> None:
    """What is older than the age, or beyond the number of rows, goes; the newest stay."""
    settings = settings_for(database, tmp_path, retention={"events": keep}, prune_every_s=0.05)
    day_ns = DAY_S * 10**9
    told = [event(n, at_ns=NOW_NS - 2 * day_ns + n if n < 1_000 else NOW_NS - n % 7) for n in range(3_000)]
    with writing(settings) as archive:
        archive.observe(told)
        until(lambda: archive.status().committed == 3_000, "the database to take records")
        until(lambda: len(everything(settings, "events")) == len(left), "records to go")
    if keep.rows and len(left) < 2_000:
        newest = sorted(range(1_000, 3_000), key=lambda n: (NOW_NS - n % 7, n))[-keep.rows :]
        assert sorted(objects(everything(settings, "events"))) == sorted(f"ask-{n}" for n in newest)
    else:
        assert sorted(objects(everything(settings, "events"))) == sorted(f"ask-{n}" for n in left)


def test_pruning_goes_in_small_steps(database: str, tmp_path: Path) -> None:
    """No transaction removes more than a thousand rows of a table."""
    settings = settings_for(database, tmp_path, prune_every_s=3_600)
    with writing(settings) as archive:
        archive.observe(events(2_500))
    writer = Database(settings.url, settings.patience_s)
    step = writer.prune_step({"events": Retention(rows=100)}, NOW_NS)
    left = []
    while True:
        more = step()
        left.append(len(everything(settings, "events")))
        if not more:
            break
    assert left == [1_500, 500, 100]
    writer.forget_connections()


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
        until(lambda: "later one" in archive.status().problem, "the problem to be noticed")
        assert archive.status().committed == 0


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


@pytest.mark.usefixtures("cold_committer")
def test_committing_process_that_is_killed_is_started_again(database: str, tmp_path: Path) -> None:
    """At any moment: nothing that was stored is missing, nothing is there twice, and health says so meanwhile."""
    settings = settings_for(database, tmp_path)
    told: list[str] = []
    random = Random(7)
    with writing(settings) as archive:
        archive.on_problem = told.append
        for turn in range(5):
            archive.observe(events(2_000, 2_000 * turn))
            until(lambda: archive.committer.pid is not None, "a process")
            time.sleep(random.uniform(0.0, 1.2))
            pid = archive.committer.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            until(lambda: archive.committer.pid != pid, "its death to be noticed")  # noqa: B023
        until(lambda: archive.committer.pid is not None, "the last process")
        until(lambda: archive.status().stored == 10_000, "records to be spooled")
        until(lambda: not (archive.status().spool_bytes or archive.status().problem), "the database to catch up")
        assert archive.status().dropped == 0
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(10_000)]
    assert "ended by signal 9" in told[0]
    assert told[-1] == ""


def test_switched_off_events_are_not_kept(tmp_path: Path) -> None:
    """The rest of the history is."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    tracking = False
    logger = build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO())
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=logger, keeps_events=lambda: tracking)
    archive.start()
    told: list[Effect] = [event(1), ApplicationAccepted("app", PARTITION, "root.a", "ann")]
    archive.observe(told)
    tracking = True
    archive.observe([event(2)])
    archive.close(PATIENCE_S)
    assert objects(everything(settings, "events")) == ["ask-2"]
    assert len(everything(settings, "applications")) == 1


def test_record_of_a_bug_is_left_out_and_the_writer_lives(tmp_path: Path) -> None:
    """An effect that cannot be told as rows must not end the thread that tells the others."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger())  # type: ignore[arg-type]
    archive.start()
    archive.observe([event(1)._replace(at_ns=2**80)])
    until(lambda: archive.status().refused == 1, "the record to be refused")
    archive.observe([event(2)._replace(resources=object())])  # type: ignore[arg-type]
    until(lambda: archive.status().set_aside == 2, "the records to be set aside")
    assert archive.status().refused == 2
    archive.observe([event(3)])
    until(lambda: archive.status().committed == 1, "the next record")
    archive.close(PATIENCE_S)
    assert objects(everything(settings, "events")) == ["ask-3"]


def test_full_queue_takes_no_memory_for_what_it_drops(tmp_path: Path) -> None:
    """However long the disk is away, what is dropped leaves nothing behind but its count."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, queue_records=10)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger())  # type: ignore[arg-type]
    for first in range(0, 5_000, 5):
        archive.observe(events(5, first))
    assert archive.status().queued == 10
    assert archive.status().dropped == 4_990
    assert len(archive._queue) == 2
    archive.start()
    archive.close(PATIENCE_S)
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(10)]


@pytest.mark.usefixtures("cold_committer")
def test_database_that_hangs_without_a_word_is_told(tmp_path: Path) -> None:
    """A process that neither commits nor complains is a problem too; it is over once it goes on."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, silence_s=0.3)
    with writing(settings) as archive:
        archive.observe(events(1))
        until(lambda: archive.status().committed == 1 and not archive.status().problem, "the tables")
        pid = archive.committer.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            archive.observe(events(1, 1))
            until(lambda: "taken nothing for 0.3 s" in archive.status().problem, "the silence to be noticed")
            assert archive.status().stored == 2
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: archive.status().committed == 2, "the database to catch up")
        until(lambda: not archive.status().problem, "the problem to be over")


def test_idle_history_is_no_silent_one(tmp_path: Path) -> None:
    """Nothing to take for longer than the database may be silent is no problem when something comes."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, silence_s=1.0)
    told: list[str] = []
    with writing(settings) as archive:
        archive.observe(events(1))
        until(lambda: archive.status().committed == 1 and not archive.status().problem, "the tables")
        archive.on_problem = told.append
        archive._moved_s -= 3_600
        archive.observe(events(1, 1))
        until(lambda: archive.status().committed == 2, "the next record")
    assert told == []


def test_database_that_takes_less_than_comes_is_told(tmp_path: Path) -> None:
    """Long before the spool is full."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = settings_for(str(blocked / "history.db"), tmp_path, spool_bytes=20_000)
    with writing(settings) as archive:
        archive.observe(events(220))
        until(lambda: archive.status().stored == 220, "records to be spooled")
        archive.observe(events(1, 220))
        until(lambda: "half of the spool" in archive.status().problem, "the size to be noticed")
        assert "spool is full" not in archive.status().problem
        blocked.unlink()
        until(lambda: archive.status().committed == 221, "the database to catch up")
        until(lambda: not archive.status().problem, "the problem to be over")


def test_thread_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug on the way to the disk is a problem of the history that health tells of, not a silent end."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    logger = CapturingLogger()
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=logger)  # type: ignore[arg-type]

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(archive._spool, "append", fails)
    archive.start()
    archive.observe(events(1))
    until(lambda: "nothing is stored any more: RuntimeError: a bug" in archive.status().problem, "the problem")
    archive.close(1.0)
    assert archive.status().stored == 0


def test_database_that_was_replaced_gets_its_tables(postgres: Postgres, tmp_path: Path) -> None:
    """One that comes back empty is made ready again; what the old one had taken is not brought back."""
    settings = settings_for(postgres.url, tmp_path)
    with writing(settings) as archive:
        archive.observe(events(1))
        until(lambda: archive.status().committed == 1, "the tables")
        with postgres.connect() as other:
            other.execute(f"DROP TABLE history_version, {', '.join(TABLES)}")
        archive.observe(events(2, 1))
        until(lambda: archive.status().committed == 3, "the new tables")
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


def test_clock_that_is_ahead_prunes_nothing(database: str, tmp_path: Path) -> None:
    """One that was ahead for a moment is not believed; the bound of rows needs no clock."""
    ahead_ns = NOW_NS + 400 * DAY_S * 10**9
    keep = {"events": Retention(age_s=DAY_S), "applications": Retention(age_s=DAY_S, rows=2)}
    settings = settings_for(database, tmp_path, retention=keep, prune_every_s=0.05, steady_s=600.0)
    times = iter([NOW_NS, ahead_ns])
    with writing(settings, lambda: next(times, ahead_ns)) as archive:
        archive.observe([*events(10), *(ApplicationAccepted(f"app-{n}", PARTITION, "root.a", "ann") for n in range(5))])
        until(lambda: archive.status().committed == 15, "the database to take records")
        until(lambda: len(everything(settings, "applications")) == 2, "some passes")
        assert len(everything(settings, "events")) == 10


def test_a_pass_removes_an_hour_of_records(database: str, tmp_path: Path) -> None:
    """A clock that is wrong for long takes them little by little, by their own times: somebody can notice."""
    hour_ns = 3_600 * 10**9
    settings = settings_for(database, tmp_path, retention={})
    with writing(settings) as archive:
        archive.observe([event(n, at_ns=NOW_NS - (400 - n) * hour_ns) for n in range(100)])
    writer = Database(settings.url, settings.patience_s)
    left = []
    for _ in range(4):
        step = writer.prune_step({"events": Retention(age_s=DAY_S)}, NOW_NS)
        while step():
            pass
        left.append(len(everything(settings, "events")))
    assert left == [99, 98, 97, 96]
    writer.forget_connections()


@pytest.mark.parametrize("reader", ["nobody", "idle", "busy"])
def test_sqlite_file_is_whole_after_a_clean_stop(tmp_path: Path, reader: str) -> None:
    """A copy of the one file has everything, also while somebody has it open; who reads holds up nobody for long."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    log = tmp_path / "history.db-wal"
    other: sqlite3.Connection | None = None
    with writing(settings) as archive:
        archive.observe(events(10))
        until(lambda: archive.status().committed == 10, "the tables")
        if reader != "nobody":
            other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
            assert other.execute("SELECT count(*) FROM events").fetchone() == (10,)
        if reader == "busy":
            assert other is not None
            other.execute("BEGIN")
            assert other.execute("SELECT count(*) FROM events").fetchone() == (10,)
        archive.observe(events(1_000, 10))
        before = time.monotonic()
    assert time.monotonic() - before < 5
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


def test_absurd_name_in_the_spool_ends_no_thread(tmp_path: Path) -> None:
    """It is set aside and told; records reach the database."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    settings.spool.mkdir()
    (settings.spool / f"{'9' * 40}.spool").write_bytes(b"")
    with writing(settings) as archive:
        archive.observe(events(3))
        until(lambda: archive.status().committed == 3, "the database to take records")
        until(lambda: archive.status().set_aside == 1, "the file to be counted")
        assert "set-aside" in archive.status().problem


def test_committing_process_that_says_nonsense_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be understood ends that process, and not the thread that looks after it."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    real, said = Report.from_line, iter([True])
    told: list[str] = []

    def misunderstood(line: bytes) -> Report:
        if next(said, False):
            raise ValueError("nonsense")
        return real(line)

    monkeypatch.setattr(Report, "from_line", misunderstood)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger(), on_problem=told.append)  # type: ignore[arg-type]
    archive.start()
    archive.observe(events(3))
    until(lambda: "" in told, "the problem to be over")
    archive.close(PATIENCE_S)
    assert "nonsense" in told[0]
    assert len(everything(settings, "events")) == 3
