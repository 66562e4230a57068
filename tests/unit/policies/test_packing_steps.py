"""The work of one choice of nodes for a gang is bounded, however many searches it consists of."""

from __future__ import annotations

from typing import Final

import pytest

from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.domain.topology import TopologyLevel, TopologyRequest, Wish
from kornel.core.model.domains import Topology
from kornel.core.model.nodes import Node
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.policies.gang_domains import choose_nodes
from kornel.core.policies.gang_nodes import Candidates, Members, Shortfall
from kornel.core.policies.gang_packing import Packing
from kornel.core.policies.node_score import NodeScore

MOST_STEPS: Final = 5_000
MOST_DIVISIONS: Final = 64


def test_all_divisions_over_domains_share_the_steps_of_one_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-three members, each as large as a node, on sixty-two nodes in eight racks: there are sixty-four ways to
    give two groups their racks, and none of them helps."""
    topology, order = Topology((TopologyLevel("rack", "rack"),)), NodeOrder(NodeScore(NodeSortPolicy.FAIR, {0: 1.0}))
    order.widen_amounts(1)
    nodes: dict[str, Node] = {}
    for number in range(62):
        node = nodes[f"n{number}"] = Node(f"n{number}", (("rack", f"r{number // 8}"),), [4])
        topology.add_node(node, 1)
        order.add(node)
    rack = TopologyRequest(Wish.REQUIRED, "rack")
    gang = [Members(((0, 4),), 4, together=(name, rack)) for name in "ab"] + [Members(((0, 4),), 55)]
    tried = []
    place_next = Packing._place_next

    def count_step(packing: Packing, turn: int, start: int) -> bool:
        tried.append(turn)
        return place_next(packing, turn, start)

    monkeypatch.setattr(Packing, "_place_next", count_step)
    found = choose_nodes(Candidates(order, nodes), topology, gang)
    assert isinstance(found, Shortfall)
    assert found.placed == 62
    assert len(tried) <= MOST_STEPS + MOST_DIVISIONS
