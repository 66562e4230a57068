"""Plays the scenarios over again with a wall clock that is set by an hour before each request: the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.language import load
from tests.scenarios.test_scenarios import list_files
from tests.scenarios.wall_clock_stage import WallClockStage


@pytest.mark.parametrize(
    "path", list_files("gang-timeouts", "predicates-odd-times", "foreign", "reservations", "preemption/timers")
)
def test_setting_the_wall_clock_changes_no_answer(path: Path) -> None:
    """Whatever time a shim states, it means the same age as before the clock was set."""
    for scenario in load(path):
        stage = WallClockStage()
        for block in scenario.blocks:
            assert stage.play(block.inputs) == block.answers, f"{path.name}:{block.line}"


def test_load_of_others_that_is_reported_again_is_as_old_as_before() -> None:
    """Nothing is answered to that, but it is shown since when it is there; with another date it is another time."""
    stage = WallClockStage()
    stage.play(["node n1", "at=10s foreign f node=n1 created=5s"])
    state = stage.state
    for _ in range(2):
        stage.play(["foreign f node=n1 vcore=2000 created=5s"])
        assert state.nodes["n1"].foreign_loads["f"].since_ns == 5 * 10**9
    stage.play(["foreign f node=n1 created=7s"])
    assert state.nodes["n1"].foreign_loads["f"].since_ns == 7 * 10**9
