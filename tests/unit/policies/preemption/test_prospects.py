"""Bounds of nodes kept from one attempt to the next: worked out in steps, and never older than the records."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search import prospects
from kornel.core.preemption.guarantee.search.node_bounds import ALONE, GLANCES, Bound, NodeJudge, NodeOffer
from kornel.core.preemption.guarantee.search.outlooks import Outlook
from kornel.core.preemption.guarantee.search.prospects import (
    NODES_AT_ONCE,
    SORTED_AT_A_GLANCE,
    KnownProspects,
    Unprepared,
)
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from tests.preemption_notation import QueueCase, TaskCase
from tests.properties.test_preemption_plan import random_case
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


A_STEP = NODES_AT_ONCE * GLANCES
"""As many nodes are looked at in one step for all questions."""


def test_many_nodes_take_several_steps() -> None:
    """Each look goes on where the last one ended; then it decides as if everything had been looked at at once."""
    world, known = full(2 * A_STEP + 1), KnownProspects()
    for _ in range(2):
        with pytest.raises(Unprepared):
            chosen(world, known)
        assert known.work_left() > 0
    assert chosen(world, known) == f"v{2 * A_STEP:04}"


def test_changes_between_the_steps_are_seen() -> None:
    """Of three steps, the first has judged a node when its victim leaves, another has gone before its turn, and a third
    is new."""
    world, known = full(2 * A_STEP + 1), KnownProspects()
    with pytest.raises(Unprepared):
        chosen(world, known)
    world.remove(world.allocations["v0000"])
    world.run(TaskCase("v", "young", {"f": 1}, "n0000", tick=2 * A_STEP + 7))
    last = f"n{2 * A_STEP:04}"
    world.remove(world.allocations[f"v{2 * A_STEP:04}"])
    del world.nodes[last]
    world.node("new", {"f": 1})
    world.run(TaskCase("v", "younger", {"f": 1}, "new", tick=2 * A_STEP + 8))
    with pytest.raises(Unprepared):
        chosen(world, known)
    assert chosen(world, known) == "younger"
    for key in ("younger", "young"):
        node = world.allocations[key].node
        assert node is not None
        world.remove(world.allocations[key])
        del world.nodes[node.node_id]
        assert chosen(world, known) == ("young" if key == "younger" else f"v{2 * A_STEP - 1:04}")


def test_one_victim_is_judged_as_several_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one ordinary victim is enough, the bound of a node is found in one pass; where none is, that pass says so.
    On random nodes it is the bound that the longer way finds."""
    seen: Counter[bool] = Counter()
    in_one_pass = NodeJudge.find_single

    def compare(self: NodeJudge, offer: NodeOffer) -> Bound | None:
        found, bound = in_one_pass(self, offer), self.find_several(offer)
        seen[found is not None] += 1
        if found is not None:
            assert bound is not None
            assert bound[0][:3] == found[0][:3] == ALONE
            assert bound <= found
        else:
            assert bound is None or bound[0][:3] != ALONE
        return found

    monkeypatch.setattr(NodeJudge, "find_single", compare)
    for seed in range(1_000):
        case, source = random_case(random.Random(seed)), random.Random(seed)
        world, known = World.of(case), KnownProspects()
        for allocation in world.allocations.values():
            allocation.spec = allocation.spec._replace(placeholder=source.random() < 0.2)
        for step in case.steps:
            plan = guarantee.plan_preemption(world, world.ask(step.ask), known=known, now_ns=NOW_NS)
            if isinstance(plan, PreemptionPlan):
                world.apply(plan)
    assert min(seen[True], seen[False]) > 100


def test_where_two_have_to_go_only_the_first_nodes_are_searched_for_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No single victim is enough on any node. Nodes with older or more important victims cannot be better than the
    first pair, so nobody looks for pairs there."""
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("a", guaranteed={"f": 9}))
    for at in range(20):
        world.node(f"n{at:02}", {"f": 2})
        for half in range(2):
            world.run(TaskCase("v", f"v{at:02}{half}", {"f": 1}, f"n{at:02}", tick=20 - at, priority=at % 2))
    seen: list[str] = []
    several = NodeJudge.find_several

    def note(self: NodeJudge, offer: NodeOffer) -> Bound | None:
        seen.append(offer.node.node_id)
        return several(self, offer)

    monkeypatch.setattr(NodeJudge, "find_several", note)
    ask = world.ask(TaskCase("a", "ask", {"f": 2}, tick=99))
    plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
    assert isinstance(plan, PreemptionPlan)
    assert plan.node.node_id == "n00"
    assert seen == ["n00", "n02"], "the best, and the next best for the record"


def test_of_many_sizes_each_looks_at_few_of_the_nodes_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that changes is looked at once for all sizes. A size judges it only if its victims could be the best."""
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("a", guaranteed={"f": 5_000}))
    for at in range(100):
        world.node(f"n{at:02}", {"f": 40})
        world.run(TaskCase("v", f"v{at:02}", {"f": 30}, f"n{at:02}", tick=at))
        world.run(TaskCase("v", f"w{at:02}", {"f": 10}, f"n{at:02}", tick=at))
    judged: Counter[str] = Counter()
    looked: Counter[int] = Counter()
    look_at, single = Outlook._look_at, NodeJudge.find_single

    def note_look(self: Outlook, slot: int) -> None:
        looked[slot] += 1
        look_at(self, slot)

    def note(self: NodeJudge, offer: NodeOffer) -> Bound | None:
        judged[offer.node.node_id] += 1
        return single(self, offer)

    monkeypatch.setattr(Outlook, "_look_at", note_look)
    monkeypatch.setattr(NodeJudge, "find_single", note)
    for number, size in enumerate(range(30, 19, -1)):
        ask = world.ask(TaskCase("a", f"ask{size}", {"f": size}, tick=900))
        plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
        assert isinstance(plan, PreemptionPlan)
        assert [victim.key for victim in plan.victims] == [f"v{99 - number:02}"]
        world.apply(plan)
    assert judged.total() <= 3 * 11
    assert looked.total() <= 100 + 2 * 11


def test_nodes_that_cannot_give_enough_take_a_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells victims apart where all of them together are too few, so many such nodes fit into one step."""
    nodes = A_STEP - A_STEP // SORTED_AT_A_GLANCE
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("kept", guaranteed={"f": 5_000}))
    world.queue(QueueCase("a", guaranteed={"f": 9}))
    for at in range(nodes):
        world.node(f"n{at:04}", {"f": 4})
        world.run(TaskCase("v", f"v{at:04}", {"f": 2}, f"n{at:04}", tick=at))
        world.run(TaskCase("kept", f"k{at:04}", {"f": 2}, f"n{at:04}", tick=at))
    with monkeypatch.context() as patched:
        patched.delattr(NodeJudge, "_victims_of")
        refusal = guarantee.plan_preemption(
            world, world.ask(TaskCase("a", "ask", {"f": 3})), known=known, now_ns=NOW_NS
        )
    assert isinstance(refusal, Refusal)
    assert refusal.detail == f"nodes: need left {nodes}; kept back: law 2 {nodes}"


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


def test_a_node_whose_bound_is_raised_hides_no_other() -> None:
    """The youngest task on one node is too small, so the node is looked at for its sake before another, and stands
    behind that one from then on."""
    world, known = World(["f"]), KnownProspects()
    world.queue(QueueCase("v"))
    world.queue(QueueCase("a", guaranteed={"f": 9}))
    world.node("n0", {"f": 3})
    world.node("n1", {"f": 2})
    world.run(TaskCase("v", "small", {"f": 1}, "n0", tick=5))
    world.run(TaskCase("v", "old", {"f": 2}, "n0", tick=2, opted_out=True))
    world.run(TaskCase("v", "young", {"f": 2}, "n1", tick=4, opted_out=True))
    plan = guarantee.plan_preemption(world, world.ask(TaskCase("a", "ask", {"f": 2})), known=known, now_ns=NOW_NS)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.key for victim in plan.victims] == ["young"]


def test_what_is_kept_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound, the question that was asked least recently is forgotten first, and one that is being worked on only
    after all that have their answers."""
    world, known = full(A_STEP - A_STEP // 10), KnownProspects()
    world.queues["a"].set_limits({0: 10 * A_STEP}, {})
    sizes = [world.ask(TaskCase("a", f"ask{at}", {"f": 1}, tick=9, priority=at)) for at in range(5)]

    def asked(at: int) -> None:
        guarantee.plan_preemption(world, sizes[at], known=known, now_ns=NOW_NS)

    def priorities() -> list[int]:
        return [question[3] for question in known._by_question]

    def allow(questions: float) -> None:
        newest = list(known._by_question.values())[-1]
        shared = sum(outlook.bytes_held for outlook in known._outlooks.values())
        monkeypatch.setattr(prospects, "MOST_BYTES", int(shared + questions * newest.bytes_held))

    asked(0)
    allow(3.5)
    for at in (1, 2, 0):
        asked(at)
    assert priorities() == [1, 2, 0]
    asked(3)
    assert priorities() == [2, 0, 3]
    for at in range(2 * A_STEP):
        world.node(f"m{at:04}", {"f": 1})
        world.run(TaskCase("v", f"w{at:04}", {"f": 1}, f"m{at:04}", tick=at))
    with pytest.raises(Unprepared):
        asked(2)
    monkeypatch.setattr(prospects, "NODES_AT_ONCE", 10 * NODES_AT_ONCE)
    asked(3)
    assert priorities() == [0, 2, 3]
    allow(2)
    asked(4)
    assert priorities() == [2, 4]
    assert [question.is_behind for question in known._by_question.values()] == [True, False]
    allow(0.5)
    asked(1)
    assert priorities() == [1], "the newest question is never forgotten, so that it gets its answer"
