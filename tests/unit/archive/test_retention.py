"""Old rows are removed: by age and number, in small steps, and never because a clock is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.archive.database import Database
from kornel.core.archive.settings import DAY_S, Retention
from kornel.core.domain.effects import ApplicationAccepted
from tests.unit.archive.archives import NOW_NS, PARTITION, event, events, everything, objects, settings_for, writing
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (Retention(), range(300)),
        (Retention(age_s=DAY_S), range(100, 300)),
        (Retention(rows=15), range(285, 300)),
        (Retention(age_s=DAY_S, rows=250), range(100, 300)),
        (Retention(age_s=DAY_S, rows=5), range(295, 300)),
    ],
    ids=["neither", "age", "rows", "age is stricter", "rows are stricter"],
)
def test_retention(database: str, tmp_path: Path, keep: Retention, left: range) -> None:
    """What is older than the age, or beyond the number of rows, goes; the newest stay."""
    settings = settings_for(database, tmp_path, retention={"events": keep}, prune_every_s=0.05)
    day_ns = DAY_S * 10**9
    told = [event(n, at_ns=NOW_NS - 2 * day_ns + n if n < 100 else NOW_NS - n % 7) for n in range(300)]
    with writing(settings) as archive:
        archive.observe(told)
        wait_until(lambda: archive.status().committed == 300, "the database to take records")
        wait_until(lambda: len(everything(settings, "events")) == len(left), "records to go")
    if keep.rows and len(left) < 200:
        newest = sorted(range(100, 300), key=lambda n: (NOW_NS - n % 7, n))[-keep.rows :]
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


def test_clock_that_is_ahead_prunes_nothing(database: str, tmp_path: Path) -> None:
    """One that was ahead for a moment is not believed; the bound of rows needs no clock."""
    ahead_ns = NOW_NS + 400 * DAY_S * 10**9
    keep = {"events": Retention(age_s=DAY_S), "applications": Retention(age_s=DAY_S, rows=2)}
    settings = settings_for(database, tmp_path, retention=keep, prune_every_s=0.05, steady_s=600.0)
    times = iter([NOW_NS, ahead_ns])
    with writing(settings, lambda: next(times, ahead_ns)) as archive:
        archive.observe([*events(10), *(ApplicationAccepted(f"app-{n}", PARTITION, "root.a", "ann") for n in range(5))])
        wait_until(lambda: archive.status().committed == 15, "the database to take records")
        wait_until(lambda: len(everything(settings, "applications")) == 2, "some passes")
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
