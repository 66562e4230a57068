"""The grouped search against looking at every node in order."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.model.nodes import Node
from kornel.core.model.orders import node_order
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.policies.node_score import NodeScore
from tests.bench.opcodes import counted
from tests.examples import scale_examples

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "discard", "charge", "refund", "search", "resize"]),
        st.integers(0, 30),
        st.integers(1, 9),
        st.integers(0, 9),
    ),
    max_size=120,
)


@settings(max_examples=scale_examples(200))
@given(OPERATIONS, st.sampled_from(list(NodeSortPolicy)))
def test_first_fit_equals_the_plain_search(history: list[tuple[str, int, int, int]], policy: NodeSortPolicy) -> None:
    """The first node found is the first in (score, ID) order whose free room holds the demand."""
    with patch.multiple(node_order, GROUP_SIZE=4, REFUSED_KEPT=2):
        follow(history, NodeOrder(NodeScore(policy, {0: 1.0, 1: 1.0})))


def follow(history: list[tuple[str, int, int, int]], order: NodeOrder) -> None:
    order.widen_amounts(2)
    nodes = [Node(f"n{number:02}", (), [10, 10]) for number in range(31)]
    for action, which, first, second in history:
        node = nodes[which]
        pairs = ((0, first), (1, second)) if second else ((0, first),)
        if action == "add" and node not in order:
            order.add(node)
        elif action == "discard":
            order.discard(node)
        elif action == "charge":
            node.charge_pairs(pairs)
            order.refresh_node(node)
        elif action == "refund":
            node.refund_pairs(pairs)
            order.refresh_node(node)
        elif action == "resize":
            node.resize([first + 5, second + 5])
            order.refresh_node(node)
        plain = sorted((n for n in nodes if n in order), key=lambda n: (n.score, n.node_id))
        assert list(order) == plain
        expected = next((n for n in plain if n.has_room(pairs)), None)
        assert order.first_fit(pairs) is expected


def test_many_nodes_split_into_groups() -> None:
    """Groups divide as they grow, and every node stays findable."""
    order = NodeOrder(NodeScore(NodeSortPolicy.FAIR, {0: 1.0}))
    order.widen_amounts(1)
    nodes = [Node(f"n{number:04}", (), [10]) for number in range(1000)]
    for node in nodes:
        order.add(node)
    assert list(order) == nodes
    for node in nodes[:-1]:
        node.charge_pairs(((0, 10),))
        order.refresh_node(node)
    assert order.first_fit(((0, 1),)) is nodes[-1]
    for node in nodes:
        order.discard(node)
    assert len(order) == 0
    assert order.first_fit(((0, 1),)) is None


def test_what_no_single_node_can_hold_is_found_out_once() -> None:
    """One half of the nodes has only processors left, the other only memory: bounds promise both (a fragmented end)."""
    both = ((0, 1), (1, 1))
    counted(lambda: _fragmented()[0].first_fit(both))  # CPython 3.13 does not count the first call of everything.
    order, nodes = _fragmented()
    first, found = counted(lambda: order.first_fit(both))
    again, _ = counted(lambda: order.first_fit(both))
    assert found is None
    assert again < first / 20
    nodes[0].refund_pairs(((0, 10),))
    order.refresh_node(nodes[0])
    assert order.first_fit(both) is nodes[0]


def _fragmented() -> tuple[NodeOrder, list[Node]]:
    order = NodeOrder(NodeScore(NodeSortPolicy.FAIR, {0: 1.0, 1: 1.0}))
    order.widen_amounts(2)
    nodes = [Node(f"n{number:04}", (), [10, 10]) for number in range(1000)]
    for number, node in enumerate(nodes):
        node.charge_pairs(((number % 2, 10),))
        order.add(node)
    return order, nodes
