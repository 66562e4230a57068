"""Units of gangs in domains, against a search that tries every node for every member: small clusters, all wishes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.domain.topology import TopologyLevel, TopologyRequest, Wish
from kornel.core.model.domains import Topology
from kornel.core.model.nodes import Node
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.policies.gang_domains import choose_nodes
from kornel.core.policies.gang_nodes import Candidates, Members, Shortfall
from kornel.core.policies.node_score import NodeScore
from tests.examples import scale_examples

LEVELS = (TopologyLevel("zone", "zone"), TopologyLevel("rack", "rack"))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Candidates, Topology, list[Node]]:
    topology, order = Topology(LEVELS), NodeOrder(NodeScore(NodeSortPolicy.FAIR, {0: 1.0}))
    order.widen_amounts(1)
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        zone, rack = draw(st.sampled_from("ab")), draw(st.sampled_from(["r1", "r2", ""]))
        node = Node(f"n{number}", (("rack", rack), ("zone", zone)), [draw(st.integers(0, 4))])
        topology.add_node(node, 1)
        order.add(node)
        nodes.append(node)
    return Candidates(order, {node.node_id: node for node in nodes}), topology, nodes


def rack_of(node: Node) -> tuple[str, ...] | None:
    attributes = dict(node.attributes)
    return (attributes["zone"], attributes["rack"]) if attributes["rack"] else None


def fits(nodes: Sequence[Node], sizes: Sequence[int]) -> bool:
    used: dict[Node, int] = {}
    for node, size in zip(nodes, sizes, strict=True):
        used[node] = used.get(node, 0) + size
    return all(amount <= node.free[0] for node, amount in used.items())


@settings(max_examples=scale_examples(300), deadline=None)
@given(clusters(), st.integers(1, 4), st.integers(1, 2), st.integers(0, 2))
def test_one_group_finds_a_rack_whenever_there_is_one(
    cluster: tuple[Candidates, Topology, list[Node]], count: int, size: int, beside: int
) -> None:
    """*beside*: members of another task group that say nothing."""
    candidates, topology, nodes = cluster
    wanted = ("g", TopologyRequest(Wish.REQUIRED, "rack"))
    gang = [Members(((0, size),), count, together=wanted)]
    gang += [Members(((0, 1),), beside)] if beside else []
    before = [node.free.copy() for node in nodes]
    found = choose_nodes(candidates, topology, gang)
    assert [node.free for node in nodes] == before
    possible = [
        chosen
        for chosen in product(nodes, repeat=count)
        if len({rack_of(node) for node in chosen}) == 1 and rack_of(chosen[0]) is not None
        if fits(chosen, [size] * count)
    ]
    if isinstance(found, Shortfall):
        assert not possible or beside
        assert found.placed < found.wanted
        return
    placed = [node for part in found for node in part]
    assert len(found[0]) == count
    assert fits(placed, [size] * count + [1] * beside)
    assert {rack_of(node) for node in found[0]} <= {rack_of(chosen[0]) for chosen in possible}
    assert len({rack_of(node) for node in found[0]}) == 1


@settings(max_examples=scale_examples(200), deadline=None)
@given(clusters(), st.integers(1, 5), st.sampled_from([Wish.PREFERRED, Wish.SPREAD]))
def test_a_wish_that_is_no_condition_keeps_nobody_waiting(
    cluster: tuple[Candidates, Topology, list[Node]], count: int, wish: Wish
) -> None:
    candidates, topology, nodes = cluster
    gang = [Members(((0, 1),), count, together=("g", TopologyRequest(wish, "rack")))]
    found = choose_nodes(candidates, topology, gang)
    if sum(node.free[0] for node in nodes) < count:
        assert isinstance(found, Shortfall)
        return
    assert not isinstance(found, Shortfall)
    assert fits(found[0], [1] * count)


@settings(max_examples=scale_examples(200), deadline=None)
@given(clusters(), st.lists(st.integers(1, 3), min_size=2, max_size=2))
def test_two_groups_do_not_get_the_same_room(
    cluster: tuple[Candidates, Topology, list[Node]], counts: list[int]
) -> None:
    candidates, topology, _ = cluster
    gang = [
        Members(((0, 1),), count, together=(name, TopologyRequest(Wish.REQUIRED, "rack")))
        for name, count in zip("gh", counts, strict=True)
    ]
    found = choose_nodes(candidates, topology, gang)
    if isinstance(found, Shortfall):
        assert not found.exhaustive
        return
    assert fits([*found[0], *found[1]], [1] * sum(counts))
    assert all(len({rack_of(node) for node in part}) == 1 for part in found)


@settings(max_examples=scale_examples(300), deadline=None)
@given(clusters(), st.lists(st.integers(1, 4), min_size=2, max_size=3))
def test_an_answer_that_claims_to_be_exhaustive_is(
    cluster: tuple[Candidates, Topology, list[Node]], sizes: list[int]
) -> None:
    """Members of one group that differ in size: room is counted for the largest of them, so a rack may be missed."""
    candidates, topology, nodes = cluster
    group = ("g", TopologyRequest(Wish.REQUIRED, "rack"))
    found = choose_nodes(candidates, topology, [Members(((0, size),), 1, together=group) for size in sizes])
    if not isinstance(found, Shortfall) or not found.exhaustive:
        return
    assert not any(
        fits(chosen, sizes)
        for chosen in product(nodes, repeat=len(sizes))
        if len({rack_of(node) for node in chosen}) == 1 and rack_of(chosen[0]) is not None
    )
