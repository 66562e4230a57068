"""The levels of a topology: node attributes, outermost first, each called by what stands behind its last slash."""

from __future__ import annotations

import pytest

from kornel.core.config.loader import load
from kornel.core.domain.topology import TopologyLevel
from tests.unit.config.reading import errors

TEXT = "partitions:\n  - name: default\n    queues: []\n    topology: {}\n"


def test_levels_are_called_by_the_end_of_their_attribute() -> None:
    (partition,) = load(TEXT.format("[topology.kubernetes.io/zone, rack]")).partitions
    assert partition.topology == (TopologyLevel("zone", "topology.kubernetes.io/zone"), TopologyLevel("rack", "rack"))


def test_without_the_key_there_are_no_levels() -> None:
    (partition,) = load("partitions: [{queues: []}]").partitions
    assert partition.topology == ()


@pytest.mark.parametrize(
    ("written", "column", "message"),
    [
        ("[zone, example.com/zone]", 22, "level 'zone' is listed already, on line 4"),
        ("[zone, ' ']", 22, "' ' names no level"),
        ("[rack/]", 16, "'rack/' names no level"),
        ("zone", 5, "'zone' found"),
        (f"[{', '.join(f'l{n}' for n in range(9))}]", 48, "one level too many"),
        (f"[{'x' * 1025}]", 16, "an attribute has 1025 characters"),
    ],
)
def test_what_cannot_be_a_level_is_told_at_its_place(written: str, column: int, message: str) -> None:
    (problem,) = errors(TEXT.format(written))
    assert (problem.line, problem.column, problem.message) == (4, column, message)
