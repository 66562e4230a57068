"""Records that a database will never take: they are set aside and counted, and keep nothing else out."""

from __future__ import annotations

import random
import sqlite3
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from kornel.core.archive import archive as archive_module
from kornel.core.archive.archive import Archive
from kornel.core.archive.database import _MIGRATIONS, Database, concerns_records, connect
from kornel.core.archive.reader import HistoryReader, Page, match_any, match_column, match_queue
from kornel.core.archive.records import Kept, encode_batch
from kornel.core.archive.set_aside import DIRECTORY, MOST_BYTES, RECORDS, Refused, SetAside
from kornel.core.archive.spool import Frame, Place
from kornel.core.archive.tables import TABLES
from kornel.core.config.text.problems import Problem, Severity
from kornel.core.domain.effects import ApplicationAccepted, EventRecorded, PreemptionDecided, VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.service.configuration.configuration_history import Origin, Version
from tests.examples import scale_examples
from tests.patience import PATIENCE_S
from tests.unit.archive.archives import NOW_NS, PARTITION, event, events, everything, objects, settings_for, writing
from tests.waiting import wait_until

LONG = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=60_000))
"""No database can make it shorter."""

INT64 = st.integers(-(2**63), 2**63 - 1)
ANY_INT = st.integers(-(2**70), 2**70) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
TEXT = (
    st.text(max_size=20)
    | st.text(st.characters(codec=None, categories=["Cs", "Cc", "Ll"]), max_size=10)
    | st.integers(1, len(LONG)).map(lambda length: LONG[:length])
    | st.sampled_from(["\x00", "\ud800", "\U0001f600" * 3_000, "\\u0000", "'; --", "%s", "\x1b[2J", ""])
)
AMOUNTS = st.dictionaries(TEXT, INT64, max_size=3).map(Resources)


def recorded(kind: int, about: str, reference: str, at_ns: int, message: str, amounts: Resources) -> EventRecorded:
    return EventRecorded(kind, about, reference, kind, kind, at_ns, amounts, message)


def decided(at_ns: int, text: str, priority: int, amounts: Resources) -> PreemptionDecided:
    victims = (VictimRecord(text, text, text, text, amounts, priority),)
    return PreemptionDecided(at_ns, text, "guarantee", text, text, text, Outcome.TRIGGERED, text, text, victims)


def configured(number: int, at_ns: int, text: str, line: int) -> Version:
    problem = Problem(Severity.WARNING, line, 1, text, text, text)
    return Version(number, at_ns, Origin.FILE, text, text, text, False, text, (problem,))


RECORD = (
    st.builds(ApplicationAccepted, TEXT, TEXT, TEXT, TEXT)
    | st.builds(recorded, ANY_INT, TEXT, TEXT, ANY_INT, TEXT, AMOUNTS)
    | st.builds(decided, ANY_INT, TEXT, ANY_INT, AMOUNTS)
    | st.builds(configured, ANY_INT, ANY_INT, TEXT, ANY_INT)
)


@contextmanager
def opened(database: str, tmp_path: Path) -> Iterator[Database]:
    settings = settings_for(database, tmp_path)
    found = Database(settings.url, settings.patience_s)
    found.prepare_tables()
    try:
        yield found
    finally:
        found.forget_connections()


def frame(payload: bytes, records: int, run: int = 1, first: int = 1) -> Frame:
    return Frame(run, first, records, payload, Place(1, 1))


def count(database: Database) -> int:
    with database._engine.connect() as connection:
        return sum(connection.execute(sa.select(sa.func.count()).select_from(t)).scalar_one() for t in TABLES.values())


@pytest.fixture
def tried(database: str, tmp_path: Path) -> Iterator[tuple[Database, Archive]]:
    """A database, and an archive that is never started: it makes frames of whatever there is."""
    settings = settings_for(database, tmp_path)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger())  # type: ignore[arg-type]
    with opened(database, tmp_path) as found:
        yield found, archive
    archive._spool.close()


RUNS = iter(range(1, 10**9))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=scale_examples(150), deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=6))
@example([ApplicationAccepted(LONG[:6_000], PARTITION, "root.a", "ann")])
@example([event(1, at_ns=2**63)])
@example([event(1, at_ns=-(2**70))])
@example([event(1, "\ud800"), event(2, "\x00")])
def test_every_record_is_stored_or_set_aside(tried: tuple[Database, Archive], told: Sequence[Kept]) -> None:
    """Whatever records say, each is in the database or counted as refused, and the next one is taken."""
    database, archive = tried
    before, refused_before, run = count(database), archive.status().refused, next(RUNS)
    put = refused = 0
    batch: list[tuple[int, Sequence[Kept]]] = [(NOW_NS, told)]
    for records, payload in archive._encode_batch(batch):
        committed, left = database.store_frames([frame(payload, records, run)])
        assert committed == records
        put += records
        refused += sum(each.records for each in left)
        SetAside(archive._spool._directory).put_records(left)
    assert put + archive.status().refused - refused_before == len(told)
    assert count(database) - before == put - refused
    committed, left = database.store_frames([frame(*encode_batch([(NOW_NS, [event(1)])], 1)[::-1], next(RUNS))])
    assert (committed, left) == (1, [])


def test_names_of_any_length_are_kept_and_found(database: str, tmp_path: Path) -> None:
    """An index has their beginnings only: PostgreSQL refused rows with more than 2,704 bytes of a name."""
    settings = settings_for(database, tmp_path)
    # Every other one is the same to the index.
    names = [LONG[:6_000], LONG[:6_000] + "x", LONG[:50_000], LONG[:200], LONG[:256], LONG[:257]]
    told: list[Any] = []
    for number, name in enumerate(names):
        told += [
            ApplicationAccepted(name, PARTITION, f"root.{name}", name),
            EventRecorded(1, name, name, 2, 101, NOW_NS + number, Resources(), name),
            decided(NOW_NS + number, name, 1, Resources())._replace(queue=f"root.{name}.b"),
        ]
    with writing(settings) as archive:
        archive.observe(told)
        wait_until(lambda: archive.status().committed == len(told), "all to be committed")
        assert archive.status().refused == 0
        assert archive.status().problem == ""
    reader = HistoryReader(settings)
    try:
        for name in names:
            asked = {
                "applications": [
                    match_column("applications", application_id=name),
                    match_queue("applications", f"root.{name}", "queue"),
                ],
                "events": [match_column("events", object_id=name), match_column("events", reference_id=name)],
                "preemptions": [
                    match_any("preemptions", name, "for_application", "victim_application"),
                    match_queue("preemptions", f"root.{name}", "for_queue", "victim_queue"),
                ],
            }
            for table, each in asked.items():
                for conditions in each:
                    rows, _ = reader.read_rows(table, Page(), conditions)
                    assert len(rows) == 1, (table, len(name))
    finally:
        reader.close()


def test_what_is_refused_is_where_an_operator_finds_it(database: str, tmp_path: Path) -> None:
    """With the reason and all it said; status and health tell of it, until somebody has taken it away."""
    settings = settings_for(database, tmp_path)
    with writing(settings) as archive:
        told: list[str] = []
        archive.on_problem = told.append
        archive.observe([*events(1_000), event(-1, at_ns=2**63), *events(1_000, 1_000)])
        wait_until(lambda: archive.status().set_aside == 1, "the record to be set aside")
        wait_until(lambda: bool(archive.status().problem), "the problem to be told")
        # What is set aside is told before the commit that it was kept out of is counted.
        wait_until(lambda: archive.status().committed == 2_001, "the others to be committed")
        status = archive.status()
        assert status.refused == 1
        assert status.set_aside_in in status.problem
        file = settings.spool / DIRECTORY / RECORDS
        (line,) = file.read_text().splitlines()
        said = orjson.loads(line)
        assert (said["table"], said["run"], said["seq"]) == ("events", status.run, 1_001)
        assert "ask--1" in said["told"]
        assert said["reason"]
        file.unlink()
        wait_until(lambda: not archive.status().problem, "the problem to be over")
        assert archive.status().set_aside == 0
    assert [bool(text) for text in told] == [True, False]
    assert len(everything(settings, "events")) == 2_000


def test_what_was_set_aside_is_still_told_after_a_restart(tmp_path: Path) -> None:
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    with writing(settings) as archive:
        archive.observe([event(1, at_ns=2**63)])
        wait_until(lambda: archive.status().set_aside == 1, "the record to be set aside")
    with writing(settings) as archive:
        wait_until(lambda: archive.status().set_aside == 1, "what lies there to be counted")
        assert archive.status().refused == 0
        archive.observe([event(2)])
        wait_until(lambda: archive.status().committed == 1, "the next record")


@pytest.mark.parametrize(
    "payload",
    [
        b"no JSON",
        b"{}",
        b"[7]",
        b"[[9, []]]",
        b"[[0, [[1]]]]",
        b"[[2, [[1], [1]]]]",
        b"[[0, [[1,[],{},null,5,6,7,8]]]]",
        b"\xff",
        b"[" * 10_000,
    ],
)
def test_frame_that_cannot_be_read_keeps_no_other_out(database: str, tmp_path: Path, payload: bytes) -> None:
    """Of another version, or of a bug: its checksum holds, so it would come again for ever."""
    with opened(database, tmp_path) as found:
        good = [encode_batch([(NOW_NS, [event(number)])], 1)[1] for number in range(2)]
        frames = [frame(good[0], 1, 1), frame(payload, 1, 2), frame(good[1], 1, 3)]
        committed, refused = found.store_frames(frames)
        assert committed >= 3
        assert [each.run for each in refused] == [2]
        assert count(found) == 2
        aside = SetAside(tmp_path)
        aside.put_records(refused)
        assert aside.count_files() == 1


def test_few_bad_ones_of_many_cost_few_tries(tmp_path: Path) -> None:
    with opened(str(tmp_path / "history.db"), tmp_path) as found:
        told = [event(n, at_ns=2**63 if n in (7, 3_000) else None) for n in range(5_000)]
        tries = 0
        real = found._inserts

        def counted(insert: Any) -> Any:
            def wrapper(connection: Any, rows: Any) -> None:
                nonlocal tries
                tries += 1
                insert(connection, rows)

            return wrapper

        found._inserts = tuple(map(counted, real))
        committed, refused = found.store_frames([frame(encode_batch([(NOW_NS, told)], 1)[1], 5_000)])
        assert (committed, [each.seq for each in refused]) == (5_000, [8, 3_001])
        assert tries < 100


def test_a_database_in_trouble_refuses_no_record(tmp_path: Path) -> None:
    """A lock, a full disk, a table that is away: they are about the database, and records wait."""

    def wrapped(cause: Exception) -> Exception:
        return sa.exc.DBAPIError.instance("INSERT", (), cause, sqlite3.Error)  # type: ignore[return-value]

    waits = ["database is locked", "database or disk is full", "no such table: events", "disk I/O error"]
    assert not any(concerns_records(wrapped(sqlite3.OperationalError(text))) for text in waits)
    assert not concerns_records(wrapped(sqlite3.DatabaseError("database disk image is malformed")))
    assert not concerns_records(OSError(28, "No space left on device"))
    assert concerns_records(wrapped(sqlite3.DataError("string or blob too big")))
    for state, about_records in (
        ("54000", True), ("22003", True), ("23502", True), ("57014", False), ("53100", False), ("55P03", False),
        ("40001", False), ("42P01", False), ("42501", False), ("25006", False), ("08006", False), ("XX001", False),
    ):  # fmt: skip
        cause = sqlite3.OperationalError("some words")
        cause.sqlstate = state  # type: ignore[attr-defined]
        assert concerns_records(wrapped(cause)) is about_records, state


def test_records_set_aside_fill_no_disk(tmp_path: Path) -> None:
    """A database that refuses everything leaves a file that has an end; every single text has one too."""
    aside = SetAside(tmp_path)
    for number in range(600):
        aside.put_records(
            [Refused("events", 1, number, "no", ["x" * 200_000, 2**80, b"\xff\xd8", object(), 10**5_000])]
        )
    size = (tmp_path / DIRECTORY / RECORDS).stat().st_size
    assert MOST_BYTES <= size < MOST_BYTES + 200_000
    assert 200 < aside.count_files() < 300


def test_old_database_gets_bounded_indexes(database: str, tmp_path: Path) -> None:
    """One of the first version keeps its records, and takes long names from then on."""
    settings = settings_for(database, tmp_path)
    if settings.url.drivername.startswith("sqlite"):
        Path(str(settings.url.database)).parent.mkdir(parents=True)
    engine = connect(settings.url, PATIENCE_S)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    with engine.begin() as connection:
        row = (7, 1, NOW_NS, PARTITION, "old-app", "root.a", "ann", "New", NOW_NS, "")
        connection.execute(sa.insert(TABLES["applications"]).values(row))
    engine.dispose()
    with writing(settings) as archive:
        archive.observe([ApplicationAccepted(LONG[:6_000], PARTITION, "root.b", "ann")])
        wait_until(lambda: archive.status().committed == 1, "the record")
        assert archive.status().refused == 0
    reader = HistoryReader(settings)
    try:
        for name in ("old-app", LONG[:6_000]):
            rows, _ = reader.read_rows("applications", Page(), match_column("applications", application_id=name))
            assert [row.application_id for row in rows] == [name]
    finally:
        reader.close()
    engine = connect(settings.url, PATIENCE_S)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM history_version")).scalar() == "0004"
    engine.dispose()


def test_a_batch_of_large_records_goes_to_the_disk_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame has more than a database takes within its patience, unless a single record has."""
    monkeypatch.setattr(archive_module, "MOST_FRAME_BYTES", 100_000)
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    with writing(settings) as archive:
        frames: list[tuple[int, int]] = []
        real = archive._spool.append

        def noted(run: int, first: int, records: int, payload: bytes) -> None:
            frames.append((records, len(payload)))
            real(run, first, records, payload)

        monkeypatch.setattr(archive, "_spool", SimpleNamespace(**{
            name: getattr(archive._spool, name) for name in ("mark_stored", "end_writing", "close", "first_segment")
        }, append=noted, full=False, waiting_bytes=0))  # fmt: skip
        archive.observe([event(number, LONG[: 30_000 if number % 5 else 200_000]) for number in range(50)])
        wait_until(lambda: archive.status().committed == 50, "all to be committed")
    assert sum(records for records, _ in frames) == 50
    assert all(size <= 100_000 or records == 1 for records, size in frames)
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(50)]


def test_text_that_is_no_unicode_is_kept_all_the_same(tmp_path: Path) -> None:
    """Halves of surrogate pairs become question marks; the other records of the batch stay as they are."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    with writing(settings) as archive:
        archive.observe([event(1, "a\ud800b"), event(2, "\U0001f600")])
        archive.version_added(configured(1, NOW_NS, "x: \udfff", 1))
        wait_until(lambda: archive.status().committed == 3, "all to be committed")
        assert archive.status().refused == 0
    assert [row.message for row in everything(settings, "events")] == ["a?b", "\U0001f600"]
    assert [row.config for row in everything(settings, "configurations")] == ["x: ?"]
