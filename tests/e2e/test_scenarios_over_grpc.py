"""Plays the scenarios over gRPC: a shim hears of the same decisions as when the engine is called directly."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.e2e.served_stage import ServedStage, UnsaidInStreams, heard
from tests.scenarios.language import Scenario, load
from tests.scenarios.test_scenarios import FILES, HERE

ROWS: Final = [
    HERE / name
    for name in (
        "queue-order.txt",
        "preemption/order_of_owed.txt",
        "preemption/quota-above-max.txt",
    )
]
"""A few files about who may have room where mechanisms meet. The others are played by the long tests."""


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_rows_are_heard_in_the_streams(path: Path) -> None:
    assert play_file(path)


@pytest.mark.long
@pytest.mark.parametrize("path", sorted({*FILES} - {*ROWS}), ids=lambda path: path.stem)
def test_all_that_a_shim_can_say_is_answered_alike(path: Path) -> None:
    """What has no place in the streams, such as an answer to a question, ends the scenario there."""
    play_file(path)


def play_file(path: Path) -> int:
    """Plays the scenarios of a file, each with a core of its own; returns how many were played to their ends."""
    return sum(_play_scenario(path, scenario) for scenario in load(path))


def _play_scenario(path: Path, scenario: Scenario) -> bool:
    with ServedStage() as stage:
        for block in scenario.blocks:
            if any(line.startswith("refused") for line in block.expected):
                return False
            try:
                answers = stage.play(block.inputs)
            except UnsaidInStreams:
                return False
            assert answers == heard(block.answers), f"{path.name}:{block.line}"
    return True
