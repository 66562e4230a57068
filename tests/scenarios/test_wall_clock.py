"""Plays the scenarios over again with a wall clock that is set by an hour before each request: the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.language import load
from tests.scenarios.test_scenarios import FILES
from tests.scenarios.wall_clock_stage import WallClockStage


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_setting_the_wall_clock_changes_no_answer(path: Path) -> None:
    """Whatever time a shim states, it means the same age as before the clock was set."""
    for scenario in load(path):
        stage = WallClockStage()
        for block in scenario.blocks:
            assert stage.play(block.inputs) == block.expected, f"{path.name}:{block.line}"
