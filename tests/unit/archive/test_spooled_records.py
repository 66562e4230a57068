"""Records on their way: the spool is replayed, and what has no room is dropped and counted."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from structlog.testing import CapturingLogger

from kornel.core.archive.archive import Archive
from kornel.core.archive.records import encode_batch
from kornel.core.archive.spool import SpoolWriter
from kornel.core.domain.effects import AsksRecorded
from kornel.core.domain.resources import Resources
from kornel.core.service.configuration.configuration_history import Origin, Version
from tests.patience import PATIENCE_S
from tests.unit.archive.archives import NOW_NS, event, events, everything, objects, settings_for, writing
from tests.waiting import wait_until


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
        wait_until(lambda: archive.status().committed == 8, "the spool to be replayed")
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
            wait_until(
                lambda: not archive.status().queued or "spool is full" in archive.status().problem, "room or its end"
            )
        status = archive.status()
        assert status.dropped > 1_000
        assert "spool is full" in status.problem
        wait_until(lambda: "database cannot be written" in archive.status().problem, "the other problem")
        blocked.unlink()
        wait_until(lambda: archive.status().stored == 5_000 - archive.status().dropped, "the queue to be stored")
        wait_until(lambda: archive.status().committed == archive.status().stored, "the database to catch up")
        wait_until(lambda: not archive.status().problem, "the problem to be over")
        kept = archive.status().stored
    assert objects(everything(settings, "events")) == [f"ask-{number}" for number in range(kept)]


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


def test_placements_of_one_slice_wait_one_by_one(tmp_path: Path) -> None:
    """A record of several has the room of so many, and is cut where there is no more; the first ones are stored."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, queue_records=10)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger())  # type: ignore[arg-type]
    size = Resources({"vcore": 1})
    for first in range(0, 40, 4):
        asks = [value for n in range(first, first + 4) for value in ("app", f"k{n:02}", size)]
        archive.observe([AsksRecorded(NOW_NS, asks)])
    assert archive.status().queued == 10
    assert archive.status().dropped == 30
    archive.start()
    archive.close(PATIENCE_S)
    assert archive.status().stored == 10
    assert [row.reference_id for row in everything(settings, "events")] == [f"k{n:02}" for n in range(10)]


@pytest.mark.long
def test_long_records_wait_by_their_size(tmp_path: Path) -> None:
    """Of records with long names, and of whole configurations, fewer wait than of short ones."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, queue_bytes=8 << 20)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger())  # type: ignore[arg-type]
    tracemalloc.start()
    for first in range(0, 60_000, 500):
        archive.observe([event(first + n, message=f"{first + n:01000}") for n in range(500)])
    assert tracemalloc.get_traced_memory()[0] < 12 << 20
    tracemalloc.stop()
    waiting = archive.status().queued
    assert 5_000 < waiting < 10_000
    assert waiting + archive.status().dropped == 60_000
    archive.start()
    wait_until(lambda: not archive.status().queued, "the queue to be stored")
    for _ in range(20):
        archive.observe([event(0)])
    wait_until(lambda: not archive.status().queued, "what follows to have room again")
    archive.close(PATIENCE_S)
    assert archive.status().stored == waiting + 20


def test_configurations_wait_by_their_size(tmp_path: Path) -> None:
    settings = settings_for(str(tmp_path / "history.db"), tmp_path, queue_bytes=8 << 20)
    archive = Archive(settings, now_ns=lambda: NOW_NS, logger=CapturingLogger())  # type: ignore[arg-type]
    for number in range(20):
        archive.version_added(Version(number, NOW_NS, Origin.UPDATE, "rm", "", "x" * (3 << 20), False, "bad", ()))
    assert (archive.status().queued, archive.status().dropped) == (2, 18)
    archive.start()
    archive.close(PATIENCE_S)


def test_absurd_name_in_the_spool_ends_no_thread(tmp_path: Path) -> None:
    """It is set aside and told; records reach the database."""
    settings = settings_for(str(tmp_path / "history.db"), tmp_path)
    settings.spool.mkdir()
    (settings.spool / f"{'9' * 40}.spool").write_bytes(b"")
    with writing(settings) as archive:
        archive.observe(events(3))
        wait_until(lambda: archive.status().committed == 3, "the database to take records")
        wait_until(lambda: archive.status().set_aside == 1, "the file to be counted")
        assert "set-aside" in archive.status().problem
