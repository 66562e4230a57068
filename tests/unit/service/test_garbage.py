"""The keeper of the garbage collector: what it set aside does not pile up for ever (docs/performance-journal.md)."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Callable, Iterator

import pytest

from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine import garbage
from kornel.core.service.machine.garbage import (
    BLOCKS_PER_RECORD,
    FEW_FOUND,
    FREEZE_EVERY,
    LOOK_EVERY,
    LOOK_EVERY_S,
    GarbageKeeper,
    GarbageRounds,
)

CIRCLES = 4_000
EXCESS = 10_000


class Circle:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self
        self.size = [object() for _ in range(5)]


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[GarbageKeeper]:
    """One that has started, with low bounds; the collector is left as it was found."""
    monkeypatch.setattr(garbage, "IDLE_EXCESS", EXCESS)
    monkeypatch.setattr(garbage, "BUSY_EXCESS", 4 * EXCESS)
    # Of a large heap it is a part that counts, and a test should not have to fill that.
    monkeypatch.setattr(garbage, "IDLE_PART", 10**9)
    monkeypatch.setattr(garbage, "BUSY_PART", 10**9)
    thresholds = gc.get_threshold()
    made = GarbageKeeper()
    made.start()
    yield made
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def _settled_garbage(circles: int = CIRCLES) -> weakref.ref[Circle]:
    """Objects that were set aside while they lived, and died since: the last of them."""
    made = [Circle() for _ in range(circles)]
    gc.collect(1)
    gc.freeze()
    return weakref.ref(made[-1])


def test_what_was_set_aside_and_died_is_freed_when_idle(keeper: GarbageKeeper) -> None:
    last = _settled_garbage()
    assert last() is not None
    assert keeper.collect_unseen(0, idle=True) >= CIRCLES
    assert last() is None
    assert keeper.full_collections == 1


def test_a_busy_core_is_only_stopped_at_the_ceiling(keeper: GarbageKeeper) -> None:
    last = _settled_garbage()
    keeper.collect_unseen(0, idle=False)
    assert last() is not None
    _settled_garbage(4 * CIRCLES)
    keeper.collect_unseen(0, idle=False)
    assert last() is None


def test_what_the_engine_holds_is_accounted_for(keeper: GarbageKeeper) -> None:
    """However much it takes in, nothing is looked through for it."""
    kept = [Circle() for _ in range(CIRCLES)]
    gc.freeze()
    records = 8 * CIRCLES // BLOCKS_PER_RECORD + CIRCLES
    assert not keeper.collect_unseen(records, idle=True)
    assert keeper.full_collections == 0
    assert len(kept) == CIRCLES


def test_after_most_has_gone_the_rest_is_looked_through(keeper: GarbageKeeper) -> None:
    """Garbage that what went has hidden is found, too."""
    keeper.collect_unseen(CIRCLES, idle=True)
    keeper._records = CIRCLES
    last = _settled_garbage(100)
    keeper.collect_unseen(CIRCLES // 4, idle=True)
    assert last() is None


def test_growth_that_stays_is_looked_through_once(keeper: GarbageKeeper) -> None:
    """A cache that nobody accounts for has no collection follow the other."""
    kept = [Circle() for _ in range(2 * CIRCLES)]
    keeper.collect_unseen(0, idle=True)
    assert keeper.full_collections == 1
    for _ in range(5):
        keeper.collect_unseen(0, idle=True)
    assert keeper.full_collections == 1
    assert kept


def test_nothing_is_touched_while_something_large_is_made(keeper: GarbageKeeper) -> None:
    last = _settled_garbage()
    with keeper.pause_while_building():
        assert not keeper.collect_unseen(0, idle=True)
    assert last() is not None


def test_calls_one_after_the_other_leave_the_core_busy(keeper: GarbageKeeper) -> None:
    """Between two of them nothing is under way, but the next one would wait for a full collection."""
    spent_s = 0.0
    logger = build_logger(LogFormat.CONSOLE, LogLevel.DEBUG, io.StringIO())
    rounds = GarbageRounds(keeper, records=lambda: 0, idle=lambda: True, logger=logger, spent_s=lambda: spent_s)
    last = _settled_garbage()
    for _ in range(3):
        spent_s += LOOK_EVERY_S / 10
        rounds.look_once()
        assert last() is not None
    spent_s += LOOK_EVERY_S / 100
    rounds.look_once()
    assert last() is None


def _count_collections(act: Callable[[], None]) -> int:
    begun: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        begun.append(phase)

    gc.callbacks.append(note)
    try:
        act()
    finally:
        gc.callbacks.remove(note)
    return begun.count("start")


def test_what_settles_is_set_aside_and_looked_at_now_and_then(keeper: GarbageKeeper) -> None:
    """A busy core does not look through all that it keeps."""
    kept: list[list[int]] = []

    def store() -> None:
        for _ in range(3 * LOOK_EVERY):
            kept.extend([number] for number in range(FREEZE_EVERY))
            keeper.count_stored(FREEZE_EVERY)

    assert _count_collections(store) == 3
    assert gc.get_freeze_count() > len(kept)


def test_a_busy_core_that_makes_garbage_looks_each_time(keeper: GarbageKeeper) -> None:
    """So what stays is no more than comes between two samples."""
    made: list[weakref.ref[Circle]] = []
    for _ in range(10 * LOOK_EVERY):
        made += [weakref.ref(circle) for circle in (Circle() for _ in range(2 * FEW_FOUND))]
        keeper.count_stored(FREEZE_EVERY)
    assert sum(circle() is not None for circle in made) <= LOOK_EVERY * 2 * FEW_FOUND


def test_few_entries_set_nothing_aside(keeper: GarbageKeeper) -> None:
    before = gc.get_freeze_count()
    keeper.count_stored(FREEZE_EVERY - 1)
    assert gc.get_freeze_count() == before
    keeper.count_stored(1)
    assert gc.get_freeze_count() > before
