"""The records that the history keeps: every kind comes back as it was, and texts that databases refuse are kept."""

from __future__ import annotations

import io
from pathlib import Path

import orjson
import pytest
from structlog.testing import CapturingLogger

from kornel.core.archive.archive import Archive
from kornel.core.archive.database import Database
from kornel.core.archive.records import (
    Kept,
    count_entries,
    decode_batch,
    encode_batch,
    split_entries,
    take_apart,
    worth_keeping,
)
from kornel.core.archive.spool import Frame, Place
from kornel.core.config.text.problems import Problem, Severity
from kornel.core.domain.application_states import AppEvent, AppState
from kornel.core.domain.effects import (
    Allocated,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationRemoved,
    ApplicationUpdated,
    AsksRecorded,
    Effect,
    PlacementsRecorded,
    PreemptionDecided,
    RemovalsRecorded,
    VictimRecord,
)
from kornel.core.domain.history.event_records import EVENTS_OF_PLACEMENT, EVENTS_OF_REMOVAL, unpack_effects
from kornel.core.domain.history.events import EventDetail
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.service.configuration.configuration_history import Origin, Version
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from tests.patience import PATIENCE_S
from tests.unit.archive.archives import NOW_NS, PARTITION, event, everything, objects, settings_for, writing
from tests.waiting import wait_until

ASKED = Resources({"vcore": 1})


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


@pytest.mark.parametrize("asks", range(3))
def test_asks_and_placements_become_the_rows_of_their_events(asks: int) -> None:
    """As many rows and numbers as events, between those of others, each as if it had been recorded by itself."""
    sizes = [Resources({"vcore": 5}), Resources({"vcore": 2**63}), Resources({"vcore": 5})]
    asked = AsksRecorded(NOW_NS, [value for n in range(asks) for value in (f"app{n}", f"k{n}", sizes[n])])
    placed = PlacementsRecorded(
        NOW_NS + 1,
        [value for n, size in enumerate(sizes) for value in (f"k{n}", f"app{n}", f"n{n}", "ann", "root.a", size)],
    )
    ended = RemovalsRecorded(NOW_NS, ["k0", "app0", "n0", "ann", "root.a", int(EventDetail.ALLOC_CANCEL), sizes[0]])
    kept: list[Kept] = [event(1), asked, placed, event(2), ended, placed]
    records, frame = encode_batch([(NOW_NS, kept)], 1)
    _, each = encode_batch([(NOW_NS, unpack_effects(kept))], 1)  # type: ignore[arg-type]  # all of these are kept
    rows = [list(row) for _, row in decode_batch(frame)]
    assert rows == [list(row) for _, row in decode_batch(each)]
    assert records == len(rows) == 2 + asks + 6 * EVENTS_OF_PLACEMENT + EVENTS_OF_REMOVAL
    assert worth_keeping(kept) == kept
    assert worth_keeping(kept, events=False) == []


def test_applications_that_change_between_events_keep_their_order() -> None:
    """The records of each table come in the order of the effects, whatever came between them."""
    kept = [
        ApplicationAccepted("app", PARTITION, "root.a", "ann"),
        event(1),
        ApplicationUpdated("app", AppState.ACCEPTED, NOW_NS + 1, AppEvent.RUN, PARTITION, "root.a", "ann", NOW_NS),
        event(2),
        ApplicationUpdated("app", AppState.RUNNING, NOW_NS + 2, AppEvent.RUN, PARTITION, "root.a", "ann", NOW_NS),
        event(3),
        ApplicationRemoved("app", "Running", NOW_NS + 3, PARTITION, "root.a", "ann", NOW_NS),
    ]
    records, frame = encode_batch([(NOW_NS, kept)], 1)
    rows = [(table, tuple(row)) for table, row in decode_batch(frame)]
    assert records == len(rows) == len(kept)
    changes = [(row[0], row[2], row[5], row[7]) for _, row in rows if len(row) == 8 and row[1] == PARTITION]
    assert changes == [
        (NOW_NS, "app", "New", ""),
        (NOW_NS + 1, "app", "Accepted", "runApplication"),
        (NOW_NS + 2, "app", "Running", "runApplication"),
        (NOW_NS + 3, "app", "Removed", "removed by its resource manager while Running"),
    ]
    assert [row[4] for _, row in rows if row[1] != PARTITION] == ["ask-1", "ask-2", "ask-3"]


@pytest.mark.parametrize("same_time", [True, False])
def test_placements_that_an_older_version_spooled_are_taken(same_time: bool) -> None:
    """Each had a time of its own, unless all had the same one, and its own amounts."""
    times = [NOW_NS] if same_time else [NOW_NS, NOW_NS + 1]
    columns = [times, ["k0", "k1"], ["a0", "a1"], ["n0", "n1"], ["ann"] * 2, ["root.a"] * 2, [{"vcore": 1}, {}]]
    found = [tuple(row) for _, row in decode_batch(orjson.dumps([(5, columns)]))]
    placed = [
        PlacementsRecorded(times[n * (not same_time)], [f"k{n}", f"a{n}", f"n{n}", "ann", "root.a", Resources(size)])
        for n, size in enumerate([{"vcore": 1}, {}])
    ]
    _, frame = encode_batch([(NOW_NS, placed)], 1)
    assert found == [tuple(row) for _, row in decode_batch(frame)]
    assert len(found) == 2 * EVENTS_OF_PLACEMENT


@pytest.mark.parametrize("most", range(9))
def test_records_are_split_by_what_they_stand_for(most: int) -> None:
    """Wherever that is: between two records, or between two placements of one."""
    asked = AsksRecorded(NOW_NS, [value for n in range(3) for value in ("app", f"k{n}", ASKED)])
    placed = PlacementsRecorded(NOW_NS, [value for n in range(2) for value in (f"k{n}", "app", "n", "ann", "r", ASKED)])
    kept: list[Kept] = [event(1), asked, event(2), placed]
    first, rest = split_entries(kept, most)
    assert (count_entries(first), count_entries(rest)) == (min(most, 7), max(0, 7 - most))
    assert all(getattr(each, "values", True) for each in (*first, *rest))
    told = unpack_effects(kept)  # type: ignore[arg-type]  # all of these are effects
    assert unpack_effects([*first, *rest]) == told  # type: ignore[list-item]
    assert unpack_effects(take_apart(kept)) == told  # type: ignore[arg-type]
    assert len(list(take_apart(kept))) == count_entries(kept) == 7


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
        wait_until(lambda: archive.status().committed == 3, "the batch")
        assert archive.status().refused == 1
    assert objects(everything(settings, "events")) == ["ask-1", "ask-3"]


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
    wait_until(lambda: archive.status().refused == 1, "the record to be refused")
    archive.observe([event(2)._replace(resources=object())])  # type: ignore[arg-type]
    wait_until(lambda: archive.status().set_aside == 2, "the records to be set aside")
    assert archive.status().refused == 2
    archive.observe([event(3)])
    wait_until(lambda: archive.status().committed == 1, "the next record")
    archive.close(PATIENCE_S)
    assert objects(everything(settings, "events")) == ["ask-3"]
