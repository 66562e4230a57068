"""Plays the scenarios with a core that is restored from a snapshot before each step: the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kornel.core.engine.engine import Engine
from kornel.core.snapshot.engines import has_work_under_way, restore_engine, write_engine
from kornel.v1 import snapshot_pb2
from tests.scenarios.language import load
from tests.scenarios.stage import Stage
from tests.scenarios.test_scenarios import list_files


class RestoredStage(Stage):
    """A :class:`Stage` whose core ends before each step, and goes on from what a snapshot keeps of it."""

    def play(self, inputs: Sequence[str]) -> list[str]:
        if not has_work_under_way(self.engine):
            snapshot = write_engine(self.engine).SerializeToString()
            self.engine = Engine()
            assert restore_engine(self.engine, snapshot_pb2.SnapshotState.FromString(snapshot)) == []
        return super().play(inputs)


@pytest.mark.parametrize(
    "path",
    list_files("claims", "gang-again", "gang-replacement", "devices", "preemption/rearm", "preemption/timers"),
)
def test_a_restart_changes_no_answer(path: Path) -> None:
    """Holders, ages, claims, notices and timers survive a restart: whoever waits has waited as long as before."""
    for scenario in load(path):
        stage = RestoredStage()
        for block in scenario.blocks:
            assert stage.play(block.inputs) == block.answers, f"{path.name}:{block.line}"
