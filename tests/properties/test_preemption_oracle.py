"""Small clusters, everything tried: a plan is lawful, no victim of it goes in vain, and none is worse than in a walk.

Up to 6 nodes and 12 allocations, so that every set of victims can be tried on every node.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, islice

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee import laws as guarantee_laws
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search.prospects import KnownProspects
from kornel.core.preemption.plan import PreemptionPlan
from tests.examples import scale_examples
from tests.oracles.preemption import Oracle
from tests.preemption_notation import Case, Expected, QueueCase, Step, TaskCase, parse
from tests.properties.test_preemption_plan import amounts, random_case, random_tasks, shown
from tests.unit.policies.preemption.world import NOW_NS, World

MOST_NODES, MOST_TASKS = 6, 12
FIRST_COME_FAILS = """
case whoever comes first uses up what the guarantee leaves
queues   v{G=1} · a{G=4}
nodes    n1=5
running  v: one 1@n1 t2, four 4@n1 t1
ask      a: 4
expect   n1
"""


def small_clusters() -> st.SearchStrategy[Case]:
    return st.integers(0, 2**32).map(lambda seed: small_case(random.Random(seed)))


def small_case(rng: random.Random) -> Case:
    """As the clusters the planner is tried on elsewhere, with more nodes of which each holds few."""
    nodes = tuple((f"n{at}", amounts(rng, 2, 6)) for at in range(rng.randint(1, MOST_NODES)))
    return replace(random_case(rng), nodes=nodes, running=tuple(islice(random_tasks(rng, nodes), MOST_TASKS)))


def sets_of_victims(world: World, oracle: Oracle, node: Node) -> list[list[Allocation]]:
    """All sets of victims that would lawfully make room on *node*."""
    if not oracle.usable(node) or not oracle.unmet(node, []):
        return []
    candidates = [a for a in world.allocations.values() if a.node is not None and oracle.candidate(a)]
    roomy = all(oracle.available(node, t) >= amount for t, amount in oracle.demand.items())
    pool = [a for a in candidates if roomy or a.node is node]
    return [
        list(victims)
        for count in range(1, len(pool) + 1)
        for victims in combinations(pool, count)
        if not oracle.unmet(node, list(victims)) and oracle.lawful(victims) and oracle.justified(node, victims)
    ]


@settings(max_examples=scale_examples(300), deadline=None)
@given(small_clusters())
def test_a_plan_is_lawful_and_no_worse_than_the_plain_walk(case: Case) -> None:
    """Only lawful victims go, none in vain, and of no worse class than those of the plain walk over all classes."""
    world, known = World.of(case), KnownProspects()
    for step in case.steps:
        ask = world.ask(step.ask)
        oracle = Oracle(world, ask, NOW_NS)
        plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
        if not isinstance(plan, PreemptionPlan):
            continue
        if plan.victims:
            assert set(plan.victims) in [set(victims) for victims in sets_of_victims(world, oracle, plan.node)]
            assert guarantee_laws.check(world, plan) == ()
            assert nobody_to_spare(world, plan)
            assert worst_first(oracle, plan.victims) <= plain_walk(world, oracle, plan.node)
        world.apply(plan)


def plain_walk(world: World, oracle: Oracle, node: Node) -> list[tuple[int, bool, bool, int, int, int, str]]:
    """The victims of the walk over all classes on *node*, worst first; of all orders the worst where it fails."""
    candidates = [a for a in world.allocations.values() if a.node is not None and oracle.candidate(a)]
    roomy = all(oracle.available(node, t) >= amount for t, amount in oracle.demand.items())
    pool = sorted((a for a in candidates if roomy or a.node is node), key=oracle.order)
    found, _ = oracle.walk(node, pool)
    return worst_first(oracle, found) if found else [(1, True, True, 0, 0, 0, "")]


def worst_first(oracle: Oracle, victims: Sequence[Allocation]) -> list[tuple[int, bool, bool, int, int, int, str]]:
    """Lists compare by their first difference; one that is the beginning of the other is the better one."""
    return sorted([(0, *oracle.order(victim)) for victim in victims], reverse=True)


def nobody_to_spare(world: World, plan: PreemptionPlan) -> bool:
    """Whether each victim is needed."""
    oracle = Oracle(world, plan.ask, NOW_NS)
    return all(oracle.unmet(plan.node, [other for other in plan.victims if other is not v]) for v in plan.victims)


@settings(max_examples=scale_examples(600), deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_kept_for_long_changes_nothing(seed: int) -> None:
    """Tasks end, and others take their room, so that leaves fall to their guarantees and rise above them again; equal
    asks come back, and what is of no use any more is dropped meanwhile."""
    dice = random.Random(seed)
    case = dice.choice((small_case, squeezed_case))(dice)
    world, known, names = World.of(case), KnownProspects(), case.types()
    leaves = [path for path, queue in world.queues.items() if queue.leaf]
    for turn in range(12):
        ask = world.ask(replace(dice.choice(case.steps).ask, key=f"ask{turn}"))
        plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
        assert shown(plan) == shown(guarantee.plan_preemption(world, ask, now_ns=NOW_NS))
        if isinstance(plan, PreemptionPlan) and plan.victims:
            world.apply(plan)
            for victim in plan.victims:
                world.remove(victim)
            world.start(ask)
            if dice.random() < 0.7:
                world.remove(ask)
        if world.allocations:
            ended = dice.choice(list(world.allocations.values()))
            assert ended.node is not None
            where, size = ended.node.node_id, {names[t]: amount for t, amount in ended.shape.pairs}
            world.remove(ended)
            world.run(TaskCase(dice.choice(leaves), f"w{turn}", size, where, required_node=dice.random() < 0.5))
        if dice.random() < 0.5:
            known.keep_only({leaf for leaf in world.queues.values() if leaf.applications})


def squeezed_case(rng: random.Random) -> Case:
    """Full nodes and few leaves, most of which hold about what they are guaranteed of the only type."""
    nodes = tuple((f"n{at}", {"f": rng.randint(1, 4)}) for at in range(rng.randint(3, 8)))
    guaranteed = {leaf: {"f": rng.randint(1, 4)} if rng.random() < 0.6 else {} for leaf in "vwx"}
    running: list[TaskCase] = []
    for node, size in nodes:
        free = size["f"]
        while free:
            amount = min(free, rng.choice((1, 1, 2)))
            free -= amount
            leaf, tick, opted_out = rng.choice("vwx"), rng.randint(0, 5), rng.random() < 0.2
            running.append(TaskCase(leaf, f"v{len(running)}", {"f": amount}, node, tick, opted_out=opted_out))
    steps = tuple(Step(TaskCase("a", "ask", {"f": amount}, tick=9, priority=1), Expected()) for amount in (2, 3))
    queues = (QueueCase("a", guaranteed={"f": 9}), *(QueueCase(leaf, guaranteed=guaranteed[leaf]) for leaf in "vwx"))
    return Case("squeezed", queues, nodes, tuple(running), steps=steps)


def test_a_failed_walk_begins_again_with_whom_a_guarantee_kept() -> None:
    """The first leaves too little of the guarantee for the others; the other two do."""
    (case,) = parse(FIRST_COME_FAILS)
    world = World.of(case)
    ask = world.ask(case.steps[0].ask)
    plan = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.key for victim in plan.victims] == ["four"]
