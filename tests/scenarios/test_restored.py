"""Plays the scenarios with a core that ends before each request, and whose journal another one continues: the same
answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from kornel.core.domain.effects import Effect
from kornel.core.journal.content.calls import Beginning, CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.effect_sums import sum_effects
from kornel.core.journal.content.records import BlockWriter, read_block
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.snapshots.snapshots import SnapshotHead, restore_snapshot, write_snapshot
from kornel.core.snapshot.engines import has_work_under_way
from kornel.core.state.options import EngineOptions
from tests.scenarios.language import Line, load
from tests.scenarios.stage import Stage
from tests.scenarios.test_scenarios import list_files

BEGINNING: Final = Beginning("test", True, EngineOptions())
CALLS: Final = 3
"""How many calls a core answers at the least, so that it ends before a request in about every third."""
SLICES: Final = 100
"""The number of calls after which it ends in the middle of a request, too."""


class RestoredStage(Stage):
    """A :class:`Stage` whose core ends again and again. The next one has a snapshot, and the journal since then.

    Every second core makes a snapshot, if no work is under way. So what a request has done comes from the snapshot in
    one restart, and from the journal in the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._snapshot = b""
        self._calls: list[tuple[EngineCall, CallResult]] = []
        """The journal since the snapshot."""
        self._sum = self._cores = self._made = 0
        self.restart()

    def add(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        """Adds a call of the core to the journal."""
        if effects:
            self._sum = sum_effects(effects, self._sum)
        self._calls.append((call, CallResult(outcome, len(effects), self._sum)))
        self._made += 1

    def restart(self) -> None:
        """Has another core go on."""
        replay = Replay()
        if self._snapshot:
            restore_snapshot(self._snapshot, replay)
        else:
            replay.begin_afresh(BEGINNING, 0)
        if self._calls:
            found = replay.play_all(read_block(BlockWriter(0, 0, 1).make_block(self._calls, 0)))
            assert found is None, found.describe()
        engine = replay.engine
        assert engine is not None, "a life has begun"
        self._cores += 1
        self._made = 0
        if self._cores % 2 and not has_work_under_way(engine):
            self._snapshot = write_snapshot(SnapshotHead("test", 0, 1, 1, 0, self.now_ns, 0), replay)
            self._calls = []
        engine.record_calls(self, self.now_ns)
        self.engine = engine

    def _perform(self, request: list[Line]) -> list[str]:
        if self._made >= CALLS:
            self.restart()
        return super()._perform(request)

    def _run_slices(self, budget: int, *, once: bool = False) -> list[str]:
        if self._made >= SLICES:
            self.restart()
        return super()._run_slices(budget, once=once)


@pytest.mark.parametrize(
    "path",
    list_files("claims-firm", "gang-replacement", "dependent-placements", "preemption/rearm", "preemption/timers"),
)
def test_a_restart_changes_no_answer(path: Path) -> None:
    """Holders, ages, claims, notices and timers survive a restart: whoever waits has waited as long as before."""
    for scenario in load(path):
        stage = RestoredStage()
        for block in scenario.blocks:
            assert stage.play(block.inputs) == block.answers, f"{path.name}:{block.line}"
