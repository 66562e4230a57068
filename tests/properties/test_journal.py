"""Whatever the machine's rules can do is in the journal: an engine that plays it decides the same, effect by effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from kornel.core.domain.effects import Effect
from kornel.core.journal.content.calls import Beginning, CallKind, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.effect_sums import sum_effects
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.records import Block, BlockWriter, read_block
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.snapshots.snapshots import SnapshotHead, restore_snapshot, write_snapshot
from kornel.core.snapshot.engines import has_work_under_way
from kornel.core.state.options import EngineOptions
from tests.properties.machine import driver
from tests.properties.machine.world import World
from tests.properties.test_snapshots import RUNS, trace

BEGINNING = Beginning("test", True, EngineOptions(2_000_000_000, 5))


class Calls:
    """A recorder that keeps everything in memory."""

    def __init__(self) -> None:
        self.made: list[tuple[EngineCall, CallOutcome, Sequence[Effect]]] = []

    def add(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        self.made.append((call, outcome, list(effects)))


def record_run(seed: str, steps: int, place: int = 0) -> Calls:
    """Returns the calls of a run of the random machine, which are those of *place*."""
    world, calls = World(), Calls()
    engine = RecordingEngine.begin_empty(BEGINNING, place)
    engine.record_calls(calls, world.now_ns)
    engine.record_events()
    world.engine = engine
    driver.episode(seed, steps, world)
    return calls


def write_blocks(calls: Calls, dice: Random) -> Iterator[Block]:
    """Yields the journal of *calls* in blocks of all sizes."""
    writer = BlockWriter(0, 0, 1)
    begin = EngineCall(CallKind.BEGIN, calls.made[0][0].now_ns, beginning=BEGINNING)
    waiting = [(begin, CallResult(CallOutcome.DONE, 0, 0))]
    sums: Counter[int] = Counter()
    for call, outcome, effects in calls.made:
        if effects:
            sums[call.place] = sum_effects(effects, sums[call.place])
        waiting.append((call, CallResult(outcome, len(effects), sums[call.place])))
        if dice.random() < 0.2:
            yield writer.make_block(waiting, 0)
            waiting = []
    if waiting:
        yield writer.make_block(waiting, 0)


def _check_run(seed: str, steps: int) -> set[str]:
    """Plays the journal of a run. Returns the kinds of effects it had."""
    lived = record_run(seed, steps)
    again = Calls()

    def make_engine(beginning: Beginning, place: int) -> RecordingEngine:
        engine = RecordingEngine.begin_empty(beginning, place)
        engine.record_calls(again, 0)
        return engine

    replay = Replay(make_engine)
    for block in write_blocks(lived, Random(seed)):
        for record in read_block(block):
            found = replay.play(record)
            assert found is None, found.describe()
    assert replay.records == len(lived.made) + 1
    for number, (one, other) in enumerate(zip(lived.made, again.made, strict=True), 2):
        # RECORD_EVENTS is given no time; all others carry theirs.
        assert one[0][2:] == other[0][2:], number
        assert one[1:] == other[1:], number
    return {type(effect).__name__ for _, _, effects in lived.made for effect in effects}


@pytest.mark.parametrize("seed", range(2, 6))
def test_a_journal_is_decided_again_alike(seed: int) -> None:
    """Every command comes out of its record as it went in, and every effect is the same."""
    assert "Allocated" in _check_run(f"journal/{seed}", 300)


def mix_runs(runs: Sequence[Calls], dice: Random) -> Calls:
    """Returns the calls of *runs*, one for each place, in an order in which one core could have made them."""
    mixed = Calls()
    for place in range(1, len(runs)):
        opened = EngineCall(CallKind.OPEN, runs[place].made[0][0].now_ns, beginning=BEGINNING, place=place)
        mixed.add(opened, CallOutcome.DONE, ())
    left = [list(reversed(run.made)) for run in runs]
    while any(left):
        mixed.made.append(dice.choice([calls for calls in left if calls]).pop())
    return mixed


@pytest.mark.parametrize("seed", range(2))
def test_two_places_go_on_alike_from_one_snapshot(seed: int) -> None:
    """Two engines whose calls alternate, and their twins from a snapshot of both, decide the same to the end."""
    dice = Random(seed)
    lived = mix_runs([record_run(f"places/{seed}/{place}", 120, place) for place in range(2)], dice)
    records = [record for block in write_blocks(lived, dice) for record in read_block(block)]
    first, twin, compared = Replay(), Replay(), [0, 0]
    for number, record in enumerate(records):
        assert (found := first.play(record)) is None, found.describe()
        if twin.places:
            assert (found := twin.play(record)) is None, found.describe()
            assert list(map(repr, twin.last_effects)) == list(map(repr, first.last_effects))
            compared[record.call.place] += len(first.last_effects)
        elif number > len(records) // 3 and not any(has_work_under_way(each.engine) for each in first.places.values()):
            head = SnapshotHead("test", record.sequence, 1, 1, 0, record.call.now_ns, 0)
            restore_snapshot(write_snapshot(head, first), twin)
            for place, engine in first.places.items():
                assert trace(twin.places[place].engine) == trace(engine.engine)
    assert min(compared) > 100
    assert [place.effects_sum for place in twin.places.values()] == [
        place.effects_sum for place in first.places.values()
    ]


@pytest.mark.long
def test_long_journals_are_decided_again_alike() -> None:
    """Runs that together show everything that the engine can say."""
    seen: set[str] = set()
    for seed in (*RUNS, *range(100, 113)):
        seen |= _check_run(f"determinism/{seed}", 400)
    assert {"PreemptionDecided", "PredicatesAsked", "PreemptionPredicatesAsked", "Released", "AskReleased"} <= seen
    assert {"ApplicationUpdated", "AllocationRejected", "NodeRejected", "EventRecorded"} <= seen
