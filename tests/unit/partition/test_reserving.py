"""Which node is kept for an ask that has waited (scheduling.md 7.3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.model.nodes import Node
from kornel.core.partition.scheduling.reserving import by_missing_share, missing_share

AMOUNTS = st.tuples(st.integers(1, 12), st.integers(1, 12))


@given(st.lists(st.tuples(AMOUNTS, st.tuples(st.integers(0, 15), st.integers(0, 15))), max_size=12), AMOUNTS)
def test_the_node_that_lacks_least_comes_first(
    made: list[tuple[tuple[int, int], tuple[int, int]]], amounts: tuple[int, int]
) -> None:
    """Of those that could hold the ask if they were empty; of equals, the one that came first. Also overfull ones."""
    nodes = [Node(f"n{number}", (), list(capacity)) for number, (capacity, _) in enumerate(made)]
    for node, (_, used) in zip(nodes, made, strict=True):
        node.charge_pairs(tuple(enumerate(used)))
    pairs = tuple(enumerate(amounts))
    able = [node for node in nodes if node.could_hold(pairs)]
    assert by_missing_share(nodes, pairs) == sorted(able, key=lambda node: missing_share(node, pairs))
