"""Which node is kept for an ask that has waited (scheduling.md 7.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kornel.core.engine.engine import Engine
from kornel.core.engine.scheduling.reserved import serve
from kornel.core.engine.scheduling.reserving import PAUSE_NS
from kornel.core.model.nodes import Node
from kornel.core.model.orders.keyed_heap import SORTED_AT_ONCE
from kornel.core.state.asks.reservations import reserve_node
from kornel.core.state.options import EngineOptions
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records import missing_shares
from kornel.core.state.records.missing_shares import MissingShares, missing_share
from tests.driven_core import DrivenCore
from tests.scenarios.stage import Stage

AMOUNTS = st.tuples(st.integers(1, 12), st.integers(1, 12))


@given(
    st.lists(st.tuples(AMOUNTS, st.tuples(st.integers(0, 15), st.integers(0, 15))), max_size=12),
    st.lists(AMOUNTS, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 4)), max_size=12),
    st.integers(1, 3),
)
def test_the_node_that_lacks_least_comes_first(
    made: list[tuple[tuple[int, int], tuple[int, int]]],
    shapes: list[tuple[int, int]],
    changes: list[tuple[int, int, int]],
    most: int,
) -> None:
    """Of those that could hold the ask if they were empty; of equals, the one that came first. Also overfull ones, and
    whatever was kept from before nodes changed, went or came."""
    nodes: dict[str, Node] = {}
    for capacity, used in made:
        _add_node(nodes, len(nodes), capacity, used)
    shares = MissingShares()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(missing_shares, "MOST_BYTES", most * 8 * 12)
        for change, at, amount in [*changes, (0, 0, 0)]:
            for amounts in shapes:
                pairs = tuple(enumerate(amounts))
                able = [node for node in nodes.values() if node.could_hold(pairs)]
                expected = sorted(able, key=lambda node: missing_share(node, pairs))
                assert list(shares.order_nodes(nodes, nodes.values(), pairs)) == expected
            name = f"n{at}"
            if change == 0 and name in nodes:
                nodes[name].charge_pairs(((0, amount),))
            elif change == 1:
                nodes.pop(name, None)
            elif change == 2 and name not in nodes:
                _add_node(nodes, at, (at + 1, at + 1), (amount, 0))


def _add_node(nodes: dict[str, Node], number: int, capacity: tuple[int, int], used: tuple[int, int]) -> None:
    node = nodes[f"n{number}"] = Node(f"n{number}", (), list(capacity))
    node.charge_pairs(tuple(enumerate(used)))


def test_a_round_of_many_groups_begins_at_the_first_of_them() -> None:
    """Those who wait have been sorted before, but for a few, and weighing all nodes for the first of them is a step of
    its own; whoever waits for the engine waits for one of these."""
    engine, state, due_ns = _wait_for_round(150)
    assert len(state.in_line) == 150
    assert len(state.in_line.marked) < SORTED_AT_ONCE
    assert engine.cycle(due_ns, 1).more
    assert state.reserving.line is not None
    assert not state.reserving.candidates
    assert engine.cycle(due_ns, 1).more
    assert len(state.reserving.candidates) == 1


def test_the_next_round_is_put_off_by_those_who_were_looked_at() -> None:
    """However many wait, a round that saves room for the first of them is soon followed by the next."""
    engine, state, due_ns = _wait_for_round(1_200)
    while engine.cycle(due_ns, 50).more:
        pass
    assert state.reserving.saved
    assert state.reserving.not_before_ns == due_ns + PAUSE_NS


def _wait_for_round(groups: int) -> tuple[Engine, PartitionState, int]:
    """Returns an engine in whose full partition so many groups wait for room, with the time of the first round."""
    core = DrivenCore("partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]")
    engine, state, budget = core.engine, core.state, 50
    for n in range(groups):
        core.application(f"app-{n}", "root.a")
    for n in range(40):
        core.node(f"n{n}", {"vcore": 10_000})
        core.submit("app-0", [f"run-{n}"], {"vcore": 10_000}, node_id=f"n{n}")
    for n in range(groups):
        core.submit(f"app-{n}", [f"wait-{n}"], {"vcore": 5_000})
    core.cycle(budget)
    due_ns = engine.next_wakeup_ns()
    while state.reserving.due_ns is None or due_ns is None or due_ns < state.reserving.due_ns:
        assert due_ns is not None
        engine.cycle(due_ns, budget)
        due_ns = engine.next_wakeup_ns()
    return engine, state, due_ns


def test_a_gang_of_mixed_priorities_waits_for_its_turn_by_its_least_important_member() -> None:
    """Also if its most important member has a claim of its own, for which somebody has left: a try that waits for the
    turn of somebody else is no decision, or the slice would not end."""
    stage = Stage()
    stage.play(["queue root.g", "queue root.b", "node n1 vcore=4", "ask s1 queue=root.b vcore=4", "cycle"])
    stage.play(["app g queue=root.g gang={vcore=4} style=Hard timeout=1h"])
    stage.play(["ask g1 app=g p=10 placeholder group=w vcore=2"])
    stage.play(["ask g2 app=g placeholder group=w vcore=2", "cycles until=5s every=1s"])
    state = stage.state
    first, node = state.requests["g1"], state.nodes["n1"]
    (hold,) = state.gangs.holds.values()
    assert hold.by_age
    reserve_node(state, first, node, stage.now_ns)
    state.gangs.broken.clear()
    stage.play(["ask k1 app=o queue=root.g p=5 vcore=4"])
    assert serve(state, stage.now_ns) == 0
    assert first.reservation in state.reserved_ready


def test_a_holder_that_swaps_waits_for_its_turn_and_is_tried_again() -> None:
    """Of equal asks, the one that has waited longest is placed where the other one saved, also if a more important ask
    had to be tried before."""
    stage = Stage()
    stage.engine = Engine(EngineOptions(reservation_percent=100))
    stage.play(["queue root.a application.sort.policy=fifo", "node n1 vcore=2", "node n2 vcore=2"])
    stage.play([*(f"ask r{number} app=R queue=root.a vcore=1" for number in range(1, 5)), "cycle"])
    stage.play(["ask a1 app=A queue=root.a vcore=1", "ask a2 app=A queue=root.a vcore=1", "cycles until=4s every=1s"])
    reserved = ["show request a1 reserved", "show request a2 reserved"]
    assert stage.play(reserved) == ["request a1 reserved=n1", "request a2 reserved=n2"]
    answers = stage.play(["ask big app=B queue=root.a p=1 vcore=2", "release r2 app=R", "cycle", *reserved])
    assert answers[-3:] == ["allocate a1 on n2", "request a1 reserved=-", "request a2 reserved=n1"]


@pytest.mark.parametrize(
    ("cores", "shim", "says"),
    [
        # What the less important one saves on n3 is lent to the swapped one at once, not only in the next slice.
        (1, [], ["allocate a on n2", "allocate c on n3", "request b reserved=n3"]),
        # n2 has room for both, and what is saved elsewhere is lent only where no other room serves.
        (2, [], ["allocate a on n2", "allocate c on n2", "app B Running", "allocate b on n3", "request b reserved=-"]),
        (2, ["attach predicates"], ["may a run on n2", "may c run on n2", "may b run on n3", "request b reserved=n3"]),
    ],
)
def test_whoever_swaps_is_served_before_a_less_important_holder(cores: int, shim: list[str], says: list[str]) -> None:
    stage = Stage()
    stage.engine = Engine(EngineOptions(reservation_percent=100))
    stage.play(["queue root.a application.sort.policy=fifo", "node n1 vcore=1", f"node n2 vcore={cores}"])
    stage.play(["node n3 vcore=1", "ask r1 app=R queue=root.a vcore=1", f"ask r2 app=R queue=root.a vcore={cores}"])
    stage.play(["ask r3 app=R queue=root.a vcore=1", "cycle", "ask a app=A queue=root.a p=1 vcore=1"])
    stage.play(["ask c app=A queue=root.a p=1 vcore=1", "ask b app=B queue=root.a vcore=1", "cycles until=4s every=1s"])
    reserved = [f"show request {key} reserved" for key in ("a", "c", "b")]
    assert stage.play(reserved) == ["request a reserved=n1", "request c reserved=n2", "request b reserved=n3"]
    answers = stage.play([*shim, "release r2 app=R", "+ release r3 app=R", "cycle", reserved[-1]])
    assert answers[-len(says) :] == says
