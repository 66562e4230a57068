"""Small clusters, everything tried: a plan is found whenever a lawful one exists, and no victim of it goes in vain.

Up to 6 nodes and 12 allocations, so that every set of victims can be tried on every node.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.guarantee import laws as guarantee_laws
from kornel.core.preemption.guarantee import planner as guarantee
from kornel.core.preemption.guarantee.prospects import KnownProspects
from kornel.core.preemption.guarantee.solve import Solver
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.preemption.required_node import planner as required_node
from tests.examples import scale_examples
from tests.oracles.preemption import Oracle
from tests.preemption_notation import Case, TaskCase, parse
from tests.properties.test_preemption_plan import amounts, random_case, random_tasks
from tests.unit.policies.preemption.world import NOW_NS, World

MOST_NODES, MOST_TASKS = 6, 12
UNENTITLED = {"NO_GUARANTEE", "ASK_EXCEEDS_GUARANTEE", "NOT_UNDER_GUARANTEE", "FENCED_AT_LEAF", "NO_CANDIDATES"}

FIRST_COME_FAILS = """
case whoever comes first uses up what the guarantee leaves
queues   v{G=2} · a{G=9}
nodes    n1=7
running  v: v1 3@n1 t1, v2 2@n1 t2, v3 2@n1 t3
ask      a: 5
expect   n1
"""


def small_clusters() -> st.SearchStrategy[Case]:
    return st.integers(0, 2**32).map(lambda seed: small_case(random.Random(seed)))


def small_case(rng: random.Random) -> Case:
    """As the clusters the planner is tried on elsewhere, with more nodes of which each holds few."""
    nodes = tuple((f"n{at}", amounts(rng, 2, 6)) for at in range(rng.randint(1, MOST_NODES)))
    return replace(random_case(rng), nodes=nodes, running=tuple(islice(random_tasks(rng, nodes), MOST_TASKS)))


def smallest(world: World, ask: Allocation) -> int | None:
    """The least number of victims that lawfully make room for *ask* on some node; ``None``: no number does."""
    oracle = Oracle(world, ask, NOW_NS)
    outcome = oracle.plan()
    if isinstance(outcome, str) and outcome in UNENTITLED:
        return None
    if any(oracle.room_is_leaving(node) for node in world.nodes.values()):
        return 0
    candidates = [a for a in world.allocations.values() if a.node is not None and oracle.candidate(a)]
    for count in range(1, len(candidates) + 1):
        for node in world.nodes.values():
            if not oracle.usable(node) or not oracle.unmet(node, []):
                continue
            roomy = all(oracle.available(node, t) >= amount for t, amount in ask.shape.pairs)
            pool = [a for a in candidates if roomy or a.node is node]
            for victims in combinations(pool, count):
                enough = not oracle.unmet(node, list(victims)) and oracle.lawful(victims)
                if enough and oracle.justified(node, victims):
                    return count
    return None


@settings(max_examples=scale_examples(300), deadline=None)
@given(small_clusters())
def test_a_plan_is_found_whenever_there_is_one(case: Case) -> None:
    world, known = World.of(case), KnownProspects()
    for step in case.steps:
        ask = world.ask(step.ask)
        least = smallest(world, ask)
        plan = guarantee.plan_preemption(world, ask, known=known, now_ns=NOW_NS)
        assert isinstance(plan, PreemptionPlan) == (least is not None)
        if isinstance(plan, PreemptionPlan) and least is not None:
            assert len(plan.victims) >= least
            assert guarantee_laws.check_exhaustive(world, plan) == ()
            assert nobody_to_spare(world, plan)
            world.apply(plan)


def nobody_to_spare(world: World, plan: PreemptionPlan) -> bool:
    """Whether each victim is needed."""
    oracle = Oracle(world, plan.ask, NOW_NS)
    return all(oracle.unmet(plan.node, [other for other in plan.victims if other is not v]) for v in plan.victims)


def test_where_first_come_fails_an_exact_search_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two youngest leave too little of the guarantee for a third; the two of the right sizes do."""
    (case,) = parse(FIRST_COME_FAILS)
    world = World.of(case)
    ask = world.ask(case.steps[0].ask)
    plan = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(plan, PreemptionPlan)
    assert len(plan.victims) == smallest(world, ask) == 2
    monkeypatch.setattr(Solver, "solve_exactly", lambda solver, needs, pool: None)
    without = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(without, Refusal)
    assert without.outcome is Outcome.NO_NODE


@settings(max_examples=scale_examples(200), deadline=None)
@given(st.integers(0, 2**32))
def test_required_node_finds_a_plan_whenever_there_is_one(seed: int) -> None:
    """Priority and the node alone bind it: whoever may go makes room together, or nobody goes; nobody in vain."""
    rng = random.Random(seed)
    case = small_case(rng)
    world = World.of(case)
    node_id = rng.choice([node for node, _ in case.nodes])
    task = TaskCase(
        case.steps[0].ask.queue, "ds", amounts(rng, 1, 6), node_id, 9, rng.randint(0, 2), required_node=True
    )
    ask = world.ask(task)
    node = world.nodes[node_id]
    if required_node.room_is_coming(world, node, ask) or not node.could_hold(ask.shape.pairs):
        return
    here = list(node.allocations.values())
    candidates = [a for a in here if not (a.spec.required_node or a.preempted) and a.priority <= ask.priority]

    def enough(victims: list[Allocation]) -> bool:
        going = [*victims, *(a for a in here if a.preempted)]
        freed = [sum(dict(v.shape.pairs).get(t, 0) for v in going) for t, _ in ask.shape.pairs]
        return all(node.free[t] + more >= amount for (t, amount), more in zip(ask.shape.pairs, freed, strict=True))

    plan = required_node.plan_preemption(world, ask, node)
    assert isinstance(plan, PreemptionPlan) == enough(candidates)
    if isinstance(plan, PreemptionPlan):
        assert set(plan.victims) <= set(candidates)
        assert enough(list(plan.victims))
        assert not any(enough([other for other in plan.victims if other is not v]) for v in plan.victims)
