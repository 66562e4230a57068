"""Node scores against worked examples 26 and 27 of scheduling.md 22."""

from __future__ import annotations

import pytest

from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.model.nodes import Node
from kornel.core.policies.node_score import NodeScore

V, M, G = 0, 1, 2


def node(capacity: list[int], used: tuple[int, int]) -> Node:
    made = Node("n", (), capacity)
    made.charge_pairs(((V, used[0]), (M, used[1])))
    return made


@pytest.mark.parametrize(
    ("capacity", "used", "weights", "expected"),
    [
        pytest.param([2000, 16000, 0], (500, 12000), {V: 4.0, M: 1.0}, 0.35, id="26"),
        pytest.param([100, 100, 0], (90, 50), {V: 1.0, M: 1.0}, 0.7, id="27 default weights"),
        pytest.param([100, 100, 0], (90, 50), {V: 4.0, M: 1.0}, 0.82, id="27 v4 m1"),
        pytest.param([100, 100, 0], (90, 50), {G: 1.0}, 0.0, id="27 only g"),
        pytest.param([100, 100, 0], (150, 50), {V: 1.0}, 1.5, id="over-allocated"),
        pytest.param([100, 100, 0], (90, 50), {V: 1.0, G: 5.0}, 0.9, id="types the node lacks do not weigh"),
        pytest.param([100, 100, 0], (90, 50), {V: 0.0, M: 1.0}, 0.5, id="a weight of 0 takes a type out"),
    ],
)
def test_score(capacity: list[int], used: tuple[int, int], weights: dict[int, float], expected: float) -> None:
    """The weighted share in use, and for binpacking what is left to 1."""
    subject = node(capacity, used)
    assert NodeScore(NodeSortPolicy.FAIR, weights)(subject) == pytest.approx(expected)
    assert NodeScore(NodeSortPolicy.BINPACKING, weights)(subject) == pytest.approx(1 - expected)


def test_foreign_load_counts() -> None:
    """Load of other schedulers makes a node as full as own load does."""
    subject = node([100, 100, 0], (0, 0))
    subject.book_foreign("f", ((V, 50),))
    assert NodeScore(NodeSortPolicy.FAIR, {V: 1.0})(subject) == 0.5
