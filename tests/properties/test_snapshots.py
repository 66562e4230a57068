"""An engine that is made of a snapshot goes on as the one that it was taken of: the same effects for the same calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from random import Random
from typing import Final

import pytest

from kornel.core.domain.commands import Command
from kornel.core.domain.effects import Effect, Released
from kornel.core.domain.history.event_records import unpack_effects
from kornel.core.engine.engine import CycleResult, Engine
from kornel.core.journal.content.effect_sums import write_effects
from kornel.core.snapshot.engines import ENGINE, has_work_under_way, restore_engine, write_engine
from kornel.core.snapshot.schema import SCHEMA
from kornel.core.snapshot.writing import FoundObjects, WorkUnderWay, check_fields
from kornel.v1 import snapshot_pb2 as pb
from tests.bench.gang_preemption import SECOND, Cluster
from tests.examples import mark_rest_long, scale_examples
from tests.properties.machine import driver
from tests.properties.machine.world import World
from tests.scenarios.stage import Stage
from tests.unit.partition.graph import digest, find_difference

RUNS: Final = (9, 33, 46, 57)
"""Seeds of runs of the machine in which much happens."""

DERIVED: Final = frozenset(
    {
        "_hash",
        "_sign",
        "_listed",
        "_written",
        "_lack",
        "_named",
        "dues",
        "offers",
        "in_order",
        "glimpses",
        "counted_rooms",
        "placement_rules",
    }
    | {"in_line", "line", "looked_at", "owing", "shares", "victim_index", "with_due"}
)
"""Fields that a restored engine works out when it needs them, or has worked out in its own process."""


def restore(engine: Engine) -> Engine:
    """Returns an engine made of a snapshot of *engine*, by way of its bytes."""
    twin = Engine()
    state = pb.SnapshotState.FromString(write_engine(engine).SerializeToString())
    assert restore_engine(twin, state) == []
    return twin


def fields_of(engine: Engine) -> dict[str, object]:
    """Returns what a snapshot of *engine* is made of."""
    return {name: getattr(engine, name) for name in ENGINE.fields}


def trace(engine: Engine) -> str:
    """Returns all that *engine* holds, in its order and with who refers to whom, as one text."""
    return digest(fields_of(engine), DERIVED)


def check_state(engine: Engine) -> None:
    """Fails if an object of the state has a field that its row in the tables does not name."""
    found = FoundObjects(SCHEMA)
    found.collect(fields_of(engine).values())
    for parts in (
        *found.records.values(),
        *(parts for (_, cls, _), parts in found.values.items() if cls in SCHEMA.rows),
    ):
        for part in parts:
            check_fields(SCHEMA, part)


class FollowedEngine(Engine):
    """An engine with a twin that was made of a snapshot of it, or of its twin before: both get every call."""

    def __init__(self, dice: Random, often: float) -> None:
        super().__init__()
        self._dice = dice
        self._often = often
        self._twin: Engine | None = None
        self.restored = 0
        self.compared = 0

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        twin = self._twin
        effects = self._both(
            lambda: super(FollowedEngine, self).apply(command, now_ns),
            lambda: twin.apply(command, now_ns) if twin else [],
        )
        assert effects is not None
        return effects

    def preempt(self, now_ns: int) -> list[Effect]:
        twin = self._twin
        return self._both(
            lambda: super(FollowedEngine, self).preempt(now_ns), lambda: twin.preempt(now_ns) if twin else []
        )

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        twin, more = self._twin, False

        def mine() -> list[Effect]:
            nonlocal more
            result = super(FollowedEngine, self).cycle(now_ns, budget)
            more = result.more
            return result.effects

        effects = self._both(mine, lambda: twin.cycle(now_ns, budget).effects if twin else [])
        return CycleResult(effects, more)

    def _both(self, mine: Callable[[], list[Effect]], theirs: Callable[[], list[Effect]]) -> list[Effect]:
        try:
            effects = mine()
        except Exception as error:
            if self._twin is not None:
                with pytest.raises(type(error), match=re.escape(str(error))):
                    theirs()
            self._take_snapshot()
            raise
        if self._twin is not None:
            again = theirs()
            assert write_effects(again) == write_effects(effects)
            assert list(map(repr, again)) == list(map(repr, effects))
            assert self._twin.next_wakeup_ns() == self.next_wakeup_ns()
            assert self._twin.preemption_interval_ns == self.preemption_interval_ns
            self.compared += len(effects)
        self._take_snapshot()
        return unpack_effects(effects)

    def _take_snapshot(self) -> None:
        if self._dice.random() >= self._often:
            return
        if has_work_under_way(self):
            with pytest.raises(WorkUnderWay):
                restore(self)
            return
        source = self if self._twin is None or self._dice.random() < 0.5 else self._twin
        check_state(source)
        twin = restore(source)
        # Compared with its source: what two commands share is one object of an engine that had both from the shim.
        assert trace(twin) == trace(source), find_difference(fields_of(source), fields_of(twin), DERIVED)
        self._twin = twin
        self.restored += 1


def _check_run(seed: str, steps: int, often: float = 0.05) -> FollowedEngine:
    world = World()
    engine = world.engine = FollowedEngine(Random(f"snapshots/{seed}"), often)
    engine.record_events()
    driver.episode(seed, steps, world)
    return engine


@pytest.mark.parametrize("seed", range(scale_examples(8)))
def test_restored_engines_go_on_alike(seed: int) -> None:
    """Whatever the machine's rules do, a restored engine decides the same from any moment on."""
    engine = _check_run(f"snapshot/{seed}", 250)
    assert engine.restored
    assert engine.compared


@pytest.mark.long
@pytest.mark.parametrize("seed", mark_rest_long([*RUNS, *range(100, 140)], keep=5))
def test_long_runs_of_restored_engines_go_on_alike(seed: int) -> None:
    """The same for long, with runs that together show everything that the engine can say."""
    assert _check_run(f"determinism/{seed}", 600).compared


def test_a_gang_preempts_alike_in_a_restored_engine() -> None:
    """What attempts keep for later ones comes along: the same victims after the same number of slices."""
    cluster = Cluster(600, 2)
    cluster.now_ns += 2 * SECOND
    cluster.ask_for_gang("first", 4)
    assert cluster.settle() == (4, 4)
    first = len(cluster.slices)
    twin = copy(cluster)
    twin.engine, twin.slices = restore(cluster.engine), []
    cluster.slices = []
    told: list[list[str]] = []
    for each in (cluster, twin):
        each.now_ns += 2 * SECOND
        each.ask_for_gang("second", 4)
        effects = each.run_slices()
        assert sum(isinstance(effect, Released) for effect in effects) == 4
        told.append(list(map(repr, effects)))
    assert told[0] == told[1]
    assert len(cluster.slices) == len(twin.slices) < first


def test_members_that_come_again_are_waited_for_alike_in_a_restored_engine() -> None:
    """The minimum of a gang, what ran of it and the time for which others are waited for come along
    (scheduling.md 10.7)."""
    stage = Stage()
    stage.play(["node n1 vcore=3000", "app a gang={vcore=3000} style=Hard"])
    stage.play([f"run w{number} app=a group=g node=n1 vcore=1000" for number in range(3)])
    stage.play(["decommission n1", "node n2 vcore=2000", "ask r1 app=a group=g vcore=1000", "cycle"])
    stage.play(["ask r2 app=a group=g vcore=1000", "cycle at=9s"])
    stage.engine = restore(stage.engine)
    assert stage.play(["cycle at=18s"]) == ["no answer"]
    assert stage.play(["cycle at=19s"]) == ["allocate r1 on n2", "allocate r2 on n2"]
