"""What a cluster owner may rely on, in clusters too large to write down: how many leave, how soon who waits is served.

Small shapes of the same rules are in ``no_overkill.txt`` and ``held_amounts.txt``.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.examples import mark_rest_long
from tests.scenarios.preemption.busy_cluster import BusyCluster, full_of_work, keys

ONE: Final = {"f": 1}
MOST_S: Final = 2.0
"""Seconds in which room is made, beside what victims take to leave."""


def resources(**declared: int) -> dict[str, Any]:
    """The entry of a queue: ``guaranteed=5``, ``max=8``."""
    return {"resources": {name: {"f": amount} for name, amount in declared.items()}}


def overused(**settings: Any) -> BusyCluster:
    """1,000 cores of t, which is guaranteed 100: all of them of b, which is guaranteed 50; c has no guarantee."""
    queues = {"t": resources(guaranteed=100, max=1000), "t.b": resources(guaranteed=50), "t.c": {}}
    cluster = BusyCluster(queues, **settings)
    for at in range(10):
        cluster.node(f"n{at}", {"f": 200})
        cluster.run("t.b", keys(f"b{at}-", 100), ONE, f"n{at}")
    return cluster


def test_a_guarantee_is_reached_and_nobody_goes_for_more() -> None:
    """The first example of docs/preemption.md: 70 asks of a queue that is guaranteed 60 in a full cluster of 100."""
    cluster = BusyCluster({"batch": {}, "prod": resources(guaranteed=60)}, leave_s=3.0)
    for at in range(10):
        cluster.node(f"n{at}", {"f": 10})
        cluster.run("batch", keys(f"b{at}-", 10), ONE, f"n{at}")
    asked = cluster.ask("prod", keys("p", 70), ONE)
    cluster.pass_s(60)
    assert sorted(cluster.victims) == [key for at in range(4, 10) for key in keys(f"b{at}-", 10)], "the youngest"
    assert (cluster.used("prod"), len(cluster.unplaced(asked))) == (60, 10)


def test_eight_small_asks_do_not_kill_thousands() -> None:
    """c is not entitled by what t holds too much. ReplicaSets send again what they lost."""
    cluster = overused(recreates=True)
    for at in range(8):
        cluster.ask("t.c", [f"k{at}"], ONE)
        cluster.pass_s(30)
    assert len(cluster.victims) == 0


def test_eight_small_asks_under_a_guarantee_of_their_own_kill_eight() -> None:
    """c is owed the type that it declares; of the one that t alone declares it frees what it asks for, no more."""
    both = {"f": 1, "g": 1}
    queues = {
        "t": {"resources": {"guaranteed": {"g": 100}}},
        "t.b": {"resources": {"guaranteed": {"g": 50}}},
        "t.c": {"resources": {"guaranteed": {"f": 8}}},
    }
    cluster = BusyCluster(queues, recreates=True)
    cluster.node("n", {"f": 1000, "g": 1000})
    cluster.run("t.b", keys("b", 1000), both, "n")
    asks = [key for at in range(8) for key in cluster.ask("t.c", [f"k{at}"], both)]
    assert cluster.run_until_placed(asks, 60) is not None
    cluster.pass_s(300)
    assert (len(cluster.victims), cluster.freed("f"), cluster.freed("g")) == (8, 8, 8)


SHAPES: Final = [
    pytest.param(1, 5, 5, id="five asks on one node"),
    pytest.param(64, 1, 40, id="40 asks on 64 x 1"),
    pytest.param(4, 16, 40, id="40 asks on 4 x 16"),
    pytest.param(1, 64, 40, id="40 asks on 1 x 64"),
    pytest.param(10, 50, 500, id="500 asks on 10 x 50"),
]


@pytest.mark.parametrize("leave_s", mark_rest_long([0.0, 1.0, 5.0]))
@pytest.mark.parametrize(("nodes", "per_node", "count"), SHAPES)
def test_what_is_owed_is_there_in_two_seconds(nodes: int, per_node: int, count: int, leave_s: float) -> None:
    """However the room is spread over nodes: two seconds, and what the victims take to leave; one victim an ask."""
    cluster, asks = full_of_work(nodes, per_node, count, leave_s=leave_s)
    took_s = cluster.run_until_placed(asks, MOST_S + leave_s + 30)
    assert took_s is not None, f"{len(cluster.unplaced(asks))} of {count} are not placed after half a minute"
    assert took_s <= MOST_S + leave_s
    assert len(cluster.victims) == count


@pytest.mark.parametrize("leave_s", [0.0, 5.0])
def test_asks_of_many_sizes_share_nodes(leave_s: float) -> None:
    """Asks of 1 to 4 cores on nodes of 16: all are served in two seconds, and no more leaves than was asked for."""
    total = 4 * 16
    queues = {"v": {}, "a": resources(guaranteed=total)}
    cluster = BusyCluster(queues, leave_s=leave_s, cycle={"limit": 1.0})
    for at in range(4):
        cluster.node(f"n{at}", {"f": 16})
        cluster.run("v", keys(f"v{at}-", 16), ONE, f"n{at}")
    asks = []
    for size in (4, 3, 2, 1):
        asks += cluster.ask("a", keys(f"a{size}-", 4), {"f": size})
    took_s = cluster.run_until_placed(asks, 60)
    assert took_s is not None, f"not placed: {cluster.unplaced(asks)}"
    assert took_s <= MOST_S + leave_s
    assert cluster.freed() == 4 * (4 + 3 + 2 + 1)


def test_a_stream_of_small_asks_does_not_starve_a_large_one_that_preempted_before() -> None:
    """Each second another ask of 1 preempts on the same node: the ask of 4 before them waits for its own victims."""
    queues = {"v": {}, "a": resources(guaranteed=4), "b": resources(guaranteed=60)}
    cluster = BusyCluster(queues, leave_s=5, cycle={"limit": 1.0})
    cluster.node("n1", {"f": 64})
    cluster.run("v", keys("v", 64), ONE, "n1")
    large = cluster.ask("a", ["large"], {"f": 4})
    small = []
    for at in range(50):
        cluster.pass_s(1)
        small += cluster.ask("b", [f"b{at:02}"], ONE, priority=at % 3)
    cluster.pass_s(10)
    assert cluster.unplaced([*large, *small]) == []
    assert cluster.placed_s["large"] <= MOST_S + 5
    assert len(cluster.victims) == 54


def test_constant_change_does_not_make_a_hopeless_ask_search_all_the_time() -> None:
    """Tasks of a protected queue come and go ten times a second: the ask tries after 1, 2, 4, 8 and then every 15 s."""
    queues = {"w": resources(guaranteed=10), "a": resources(guaranteed=10)}
    cluster = BusyCluster(queues)
    cluster.node("n1", {"f": 10})
    cluster.run("w", keys("w", 10), ONE, "n1")
    cluster.ask("a", ["k"], {"f": 5})
    before = cluster.attempts
    for at in range(600):
        cluster.pass_s(0.1)
        cluster.end(f"w{at:04}")
        cluster.run("w", [f"w{at + 10:04}"], ONE, "n1")
    assert cluster.victims == []
    assert cluster.attempts - before <= 10


def test_recreated_victims_do_not_come_back_for_their_room() -> None:
    """ReplicaSets send again whoever left: once all is served, nobody has to leave any more."""
    queues = {"v": resources(guaranteed=20), "a": resources(guaranteed=40)}
    cluster = BusyCluster(queues, leave_s=1, recreates=True, cycle={"limit": 1.0})
    cluster.node("n1", {"f": 64})
    cluster.run("v", keys("v", 64), ONE, "n1")
    asks = cluster.ask("a", keys("a", 40), ONE)
    assert cluster.run_until_placed(asks, 900) is not None
    cluster.pass_s(900)
    assert len(cluster.victims) == 40


WHO: Final = [
    pytest.param("own", 1000, id="own queue, priority 1000"),
    pytest.param("own", 0, id="own queue, equal priority"),
    pytest.param("shared", 1000, id="shared queue, priority 1000"),
    pytest.param("shared", 0, id="shared queue, equal priority"),
]
NODES: Final = [pytest.param(1, 16, id="1 x 16"), pytest.param(2, 8, id="2 x 8")]


def first_in_line(queue: str, priority: int, nodes: int, per_node: int) -> BusyCluster:
    """A full cluster of 16 with a backlog of small tasks, and one ask of 6 cores before all of them.

    An application is as old as the oldest that it ever asked for: in fifo order the large one comes first by its age.
    """
    cluster = BusyCluster({"shared": {}, "own": {}})
    cluster.hear_of_scaling()
    for at in range(nodes):
        cluster.node(f"n{at}", {"f": per_node})
    for at in range(nodes):
        cluster.run("shared", keys(f"small{at}-", per_node), ONE, f"n{at}", application="small")
    about = {"application": "big", "priority": priority, "created_s": 0, "allow_preempt_other": False}
    cluster.ask(queue, ["big"], {"f": 6}, **about)
    cluster.ask("shared", keys("next", 400), ONE, application="small", allow_preempt_other=False)
    return cluster


@pytest.mark.parametrize(("nodes", "per_node"), NODES)
@pytest.mark.parametrize(("queue", "priority"), WHO)
def test_the_first_in_line_is_served(queue: str, priority: int, nodes: int, per_node: int) -> None:
    """Small tasks come and go, one a second, on every node in turns: what ends on the node that is kept adds up.

    Two seconds until the amount is held, and six endings there.
    """
    cluster = first_in_line(queue, priority, nodes, per_node)
    endings = _endings_until_placed(cluster, nodes, 300)
    assert endings is not None, "never placed in 300 endings"
    assert endings <= 3 + 6 * nodes
    assert cluster.victims == []


def _endings_until_placed(cluster: BusyCluster, nodes: int, most: int) -> int | None:
    """How many small tasks end, the oldest of one node after the other, until the large ask is placed."""
    for ending in range(most):
        cluster.pass_s(1)
        if "big" in cluster.placed_s:
            return ending
        node = cluster.state.nodes[f"n{ending % nodes}"]
        cluster.end(min(a.key for a in node.allocations.values() if a.spec.application_id == "small"))
    return None


def test_three_queues_owed_the_same_are_served_in_turns_as_victims_leave() -> None:
    """While victims take their time, what was claimed counts: none gets ahead of another by more than one ask.

    But for the one ask in all that holds room because it has waited: it is tried before everybody else.
    """
    names = ("a", "m", "z")
    queues = {"v": {}, **{name: resources(guaranteed=10) for name in names}}
    cluster = BusyCluster(queues, leave_s=2, cycle={"limit": 0.2, "batch": 1})
    for at in range(10):
        cluster.node(f"n{at}", {"f": 3})
        cluster.run("v", keys(f"v{at}-", 3), ONE, f"n{at}")
    asks = [key for name in names for key in cluster.ask(name, keys(name, 10), ONE)]
    while cluster.unplaced(asks):
        assert cluster.now_s < 120
        cluster.pass_s(0.5)
        promised = [cluster.used(name) + cluster.claimed(name) for name in names]
        assert max(promised) - min(promised) <= 2, promised
    assert len(cluster.victims) == 30
