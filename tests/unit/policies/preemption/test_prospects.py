"""Bounds of nodes kept from one attempt to the next: worked out in steps, and never older than the records."""

from __future__ import annotations

import pytest

from kornel.core.preemption.guarantee import planner as guarantee
from kornel.core.preemption.guarantee.prospects import GLANCES, NODES_AT_ONCE, KnownProspects, Prospects, Unprepared
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from tests.preemption_notation import QueueCase, TaskCase
from tests.unit.policies.preemption.world import NOW_NS, World


def full(nodes: int) -> World:
    world = World(["f"])
    world.queue(QueueCase("v"))
    world.queue(QueueCase("a", guaranteed={"f": nodes}))
    for at in range(nodes):
        world.node(f"n{at:04}", {"f": 1})
        world.run(TaskCase("v", f"v{at:04}", {"f": 1}, f"n{at:04}", tick=at))
    return world


def chosen(world: World, known: KnownProspects) -> str:
    ask = world.ask(TaskCase("a", "ask", {"f": 1}, tick=9))
    plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
    assert isinstance(plan, PreemptionPlan)
    return plan.victims[0].key


def test_many_nodes_take_several_steps() -> None:
    """Each look goes on where the last one ended; then it decides as if everything had been looked at at once."""
    world, known = full(2 * NODES_AT_ONCE + 1), KnownProspects()
    for _ in range(2):
        with pytest.raises(Unprepared):
            chosen(world, known)
        assert known.behind
    assert chosen(world, known) == f"v{2 * NODES_AT_ONCE:04}"
    assert not known.behind


def test_nodes_that_cannot_give_enough_take_a_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells victims apart where all of them together are too few, so many such nodes fit into one step."""
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("kept", guaranteed={"f": 5_000}))
    world.queue(QueueCase("a", guaranteed={"f": 9}))
    for at in range(NODES_AT_ONCE * GLANCES):
        world.node(f"n{at:04}", {"f": 4})
        world.run(TaskCase("v", f"v{at:04}", {"f": 2}, f"n{at:04}", tick=at))
        world.run(TaskCase("kept", f"k{at:04}", {"f": 2}, f"n{at:04}", tick=at))
    with monkeypatch.context() as patched:
        patched.delattr(Prospects, "_victims_on")
        refusal = guarantee.plan_preemption(
            world, world.ask(TaskCase("a", "ask", {"f": 3})), known=known, now_ns=NOW_NS
        )
    assert isinstance(refusal, Refusal)
    assert refusal.detail == f"nodes: need left {NODES_AT_ONCE * GLANCES}; kept back: law 2 {NODES_AT_ONCE * GLANCES}"


def test_what_a_glance_ruled_out_is_seen_once_another_leaf_gives() -> None:
    """No node has changed, but the leaf that shares it with the victims is guaranteed nothing any more."""
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("kept", guaranteed={"f": 2}))
    world.queue(QueueCase("a", guaranteed={"f": 9}))
    world.node("n", {"f": 4})
    world.run(TaskCase("v", "v", {"f": 2}, "n", tick=1))
    world.run(TaskCase("kept", "k", {"f": 2}, "n", tick=2))
    ask = world.ask(TaskCase("a", "ask", {"f": 3}))
    assert isinstance(guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS), Refusal)
    world.queues["kept"].set_limits({}, {})
    plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.key for victim in plan.victims] == ["k", "v"]


def test_a_node_that_comes_back_under_its_name_is_another() -> None:
    world, known = full(3), KnownProspects()
    assert chosen(world, known) == "v0002"
    world.remove(world.allocations["v0002"])
    del world.nodes["n0002"]
    assert chosen(world, known) == "v0001"
    world.node("n0002", {"f": 1})
    world.run(TaskCase("v", "again", {"f": 1}, "n0002", tick=7))
    assert chosen(world, known) == "again"


def test_an_attempt_passes_by_nodes_whose_best_victims_are_leaving() -> None:
    """Counted among those that may go, they would have every attempt look at all nodes that others preempted on."""
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("a", guaranteed={"f": 20}))
    for at in range(20):
        world.node(f"n{at:02}", {"f": 2})
        for each in range(2):
            world.run(TaskCase("v", f"v{each}-{at:02}", {"f": 1}, f"n{at:02}", tick=100 * each + at))
    for at in range(20):
        ask = world.ask(TaskCase("a", f"ask{at}", {"f": 1}, tick=9))
        plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
        assert isinstance(plan, PreemptionPlan)
        assert plan.victims[0].key == f"v1-{19 - at:02}"
        assert plan.weighed.startswith("2 of 20 nodes looked at") or at == 19
        world.apply(plan)


def test_a_leaf_that_is_protected_no_more_is_seen() -> None:
    """Law 2 keeps the leaf back, until its guarantee falls: no node has changed, but its bound has."""
    world, known = full(2), KnownProspects()
    leaf = world.queues["v"]
    leaf.set_limits({0: 1}, {})
    world.queue(QueueCase("w"))
    world.node("n2", {"f": 1})
    world.run(TaskCase("w", "w", {"f": 1}, "n2", tick=0))
    world.mark(world.allocations["v0001"])
    first = world.ask(TaskCase("a", "first", {"f": 1}))
    first.triggered = True
    world.reserve(first, world.nodes["n0001"], NOW_NS)
    assert chosen(world, known) == "w"
    leaf.set_limits({}, {})
    assert chosen(world, known) == "v0000"
