"""Which node is kept for an ask that has waited (scheduling.md 7.3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from kornel.core.model.nodes import Node
from kornel.core.partition.engine import Engine
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


def test_a_round_of_many_groups_begins_in_a_slice_of_its_own() -> None:
    """Sorting the groups and weighing all nodes for the first of them take milliseconds each; whoever waits for the
    engine waits for one of them."""
    engine, partition, budget = Engine(), "[rm]default", 50
    queues = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
    engine.apply(RegisterManager("rm", queues), 0)
    capacity = Resources({"vcore": 10_000})
    nodes = (NodeSpec(f"n{n}", NodeAction.CREATE, partition, capacity=capacity) for n in range(40))
    engine.apply(UpdateNodes("rm", tuple(nodes)), 0)
    groups = range(3 * budget)
    added = (ApplicationSpec(f"app-{n}", "root.a", partition, user="ann") for n in groups)
    engine.apply(UpdateApplications("rm", tuple(added)), 0)
    running = [AllocationSpec(f"run-{n}", "app-0", partition, capacity, node_id=f"n{n}") for n in range(40)]
    waiting = [AllocationSpec(f"wait-{n}", f"app-{n}", partition, Resources({"vcore": 5_000})) for n in groups]
    engine.apply(UpdateAllocations("rm", (*running, *waiting)), 0)
    while engine.cycle(0, budget).more:
        pass
    state = engine.partition(partition)
    assert state is not None
    due_ns = engine.next_wakeup_ns()
    while state.reserving.due_ns is None or due_ns is None or due_ns < state.reserving.due_ns:
        assert due_ns is not None
        engine.cycle(due_ns, budget)
        due_ns = engine.next_wakeup_ns()
    assert engine.cycle(due_ns, budget).more
    assert len(state.reserving.left) == len(groups)
    assert not state.reserving.candidates
    assert engine.cycle(due_ns, 1).more
    assert len(state.reserving.candidates) == 1
