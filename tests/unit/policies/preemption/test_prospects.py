"""Bounds of nodes kept from one attempt to the next: worked out in steps, and never older than the records."""

from __future__ import annotations

import pytest

from core.policies.preemption import guarantee
from core.policies.preemption.plan import PreemptionPlan
from core.policies.preemption.prospects import NODES_AT_ONCE, KnownProspects, Unprepared
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
    plan = guarantee.plan(world, ask, known=known, now_ns=NOW_NS)
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


def test_a_node_that_comes_back_under_its_name_is_another() -> None:
    world, known = full(3), KnownProspects()
    assert chosen(world, known) == "v0002"
    world.remove(world.allocations["v0002"])
    del world.nodes["n0002"]
    assert chosen(world, known) == "v0001"
    world.node("n0002", {"f": 1})
    world.run(TaskCase("v", "again", {"f": 1}, "n0002", tick=7))
    assert chosen(world, known) == "again"


def test_a_leaf_that_is_protected_no_more_is_seen() -> None:
    """Law 2 keeps the leaf back, until its guarantee falls: no node has changed, but its bound has."""
    world, known = full(2), KnownProspects()
    leaf = world.queues["v"]
    leaf.set_limits({0: 1}, {})
    world.queue(QueueCase("w"))
    world.node("n2", {"f": 1})
    world.run(TaskCase("w", "w", {"f": 1}, "n2", tick=0))
    world.mark(world.allocations["v0001"])
    assert chosen(world, known) == "w"
    leaf.set_limits({}, {})
    assert chosen(world, known) == "v0000"
