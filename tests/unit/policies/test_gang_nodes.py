"""Nodes for all members of a gang at once, compared with every way there is to put them on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.model.nodes import Node
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.policies.gang_nodes import Candidates, Members, Shortfall, choose_nodes
from kornel.core.policies.node_score import NodeScore

CAPACITY: Final = 12


def _candidates(free: Sequence[tuple[int, int]], policy: NodeSortPolicy = NodeSortPolicy.FAIR) -> Candidates:
    """Nodes n0, n1, ... of 12 and 12, with so much of either type left."""
    nodes = [Node(f"n{number}", (), [CAPACITY, CAPACITY]) for number in range(len(free))]
    order = NodeOrder(NodeScore(policy, {0: 1.0, 1: 1.0}))
    order.widen_amounts(2)
    for node, left in zip(nodes, free, strict=True):
        node.charge_pairs(((0, CAPACITY - left[0]), (1, CAPACITY - left[1])))
        order.add(node)
    return Candidates(order, {node.node_id: node for node in nodes})


def _wants(amounts: tuple[int, int], number: int, **more: object) -> Members:
    return Members(tuple((t, amount) for t, amount in enumerate(amounts) if amount), number, **more)  # type: ignore[arg-type]


def _some_way_exists(free: Sequence[tuple[int, int]], gang: Sequence[Members]) -> bool:
    """Tries every assignment of members to nodes."""
    members = [m for m in gang for _ in range(m.number)]
    for nodes in product(range(len(free)), repeat=len(members)):
        left = [list(amounts) for amounts in free]
        for member, at in zip(members, nodes, strict=True):
            for t, amount in member.pairs:
                left[at][t] -= amount
        allowed = all(
            m.required_node in ("", f"n{at}") and f"n{at}" not in m.refused
            for m, at in zip(members, nodes, strict=True)
        )
        if allowed and min(min(amounts) for amounts in left) >= 0:
            return True
    return False


def test_a_gang_goes_where_its_members_would_go_one_after_the_other() -> None:
    """The order of nodes follows what the members before them take: spread by fair, together by binpacking."""
    gang = [_wants((2, 0), 4)]
    fair = choose_nodes(_candidates([(12, 12), (12, 12)]), gang)
    assert not isinstance(fair, Shortfall)
    assert [node.node_id for node in fair[0]] == ["n0", "n1", "n0", "n1"]
    packed = choose_nodes(_candidates([(12, 12), (12, 12)], NodeSortPolicy.BINPACKING), gang)
    assert not isinstance(packed, Shortfall)
    assert [node.node_id for node in packed[0]] == ["n0"] * 4


def test_only_among_some_nodes() -> None:
    """Other nodes do not come into question, however much room they have."""
    candidates = _candidates([(4, 12), (12, 12)])
    first = candidates.by_id["n0"]
    found = choose_nodes(candidates._replace(among=[first]), [_wants((2, 0), 3)])
    assert found == Shortfall(2, 3, 0)
    found = choose_nodes(candidates._replace(among=[first]), [_wants((2, 0), 1), _wants((1, 0), 2)])
    assert found == ((first,), (first, first))


def test_a_closed_node_takes_only_members_that_must_run_there() -> None:
    """What is put on a node that takes nothing new does not open it to the others."""
    candidates = _candidates([(6, 6), (2, 2)])
    closed = candidates.by_id["n0"]
    closed.schedulable = False
    candidates.order.discard(closed)
    found = choose_nodes(candidates, [_wants((1, 1), 1, required_node="n0"), _wants((2, 2), 1)])
    assert not isinstance(found, Shortfall)
    assert [[node.node_id for node in nodes] for nodes in found] == [["n0"], ["n1"]]
    full = choose_nodes(candidates, [_wants((1, 1), 1, required_node="n0"), _wants((3, 3), 1)])
    assert isinstance(full, Shortfall)
    assert full.placed == 1


_AMOUNTS: Final = st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(any)
_NODES: Final = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=3)
_GANGS: Final = st.lists(
    st.builds(
        _wants,
        _AMOUNTS,
        st.integers(1, 3),
        required_node=st.sampled_from(["", "", "", "n0"]),
        refused=st.sampled_from([frozenset(), frozenset(), frozenset({"n1"})]),
    ),
    min_size=1,
    max_size=3,
).filter(lambda gang: sum(members.number for members in gang) <= 6)


@given(_NODES, _GANGS)
def test_a_choice_is_found_if_there_is_one(free: list[tuple[int, int]], gang: list[Members]) -> None:
    """Whatever is chosen fits, and where nothing is, no assignment fits. The answer is exhaustive."""
    found = choose_nodes(_candidates(free), gang)
    if isinstance(found, Shortfall):
        assert found.exhaustive
        assert found.placed < found.wanted
        assert not _some_way_exists(free, gang)
        return
    left = {f"n{number}": list(amounts) for number, amounts in enumerate(free)}
    for members, nodes in zip(gang, found, strict=True):
        assert len(nodes) == members.number
        for node in nodes:
            assert members.required_node in ("", node.node_id)
            assert node.node_id not in members.refused
            for t, amount in members.pairs:
                left[node.node_id][t] -= amount
    assert min(min(amounts) for amounts in left.values()) >= 0
