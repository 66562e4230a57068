"""Nobody leaves where milder ones would do, whichever kind of preemption asks (preemption.md A, law 8).

The plain walk is written here once more from the words of the rule, on the plainest terms: sets of tasks, and what is
short or forbidden once they have gone. Plans must pass, and every other lawful set of victims must be judged by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.plan import Plan, PreemptionPlan
from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.required_node import planner as required_node
from tests import judged_plans
from tests.examples import scale_examples
from tests.oracles.preemption import Oracle
from tests.preemption_notation import Amounts, Case, QueueCase, TaskCase
from tests.properties.test_preemption_plan import random_case
from tests.unit.policies.preemption.world import NOW_NS, World

SEEDS = st.integers(0, 2**32)
LEAVES = ("p.a", "p.b", "p.x.c", "p.x.d")
WORLDS = settings(max_examples=scale_examples(600), deadline=None)

_T = TypeVar("_T")


def amounts(rng: random.Random, least: int, most: int) -> Amounts:
    """Of one type mostly, else of two."""
    kinds = rng.choice([["f"], ["f"], ["f", "g"], ["g"]])
    return {kind: rng.randint(least, most) for kind in kinds}


def tasks(rng: random.Random, count: int, leaves: tuple[str, ...]) -> Iterator[TaskCase]:
    for at in range(count):
        yield TaskCase(
            rng.choice(leaves),
            f"v{at:02}",
            amounts(rng, 1, 6),
            "n1",
            rng.randint(0, 3),
            rng.randint(0, 2),
            opted_out=rng.random() < 0.3,
            originator=rng.random() < 0.2,
            required_node=rng.random() < 0.1,
            leaving=rng.random() < 0.1,
        )


def protected(allocation: Allocation) -> bool:
    return bool(allocation.spec.required_node) or allocation.preempted or allocation.released


def crowded_node(rng: random.Random) -> tuple[Case, TaskCase]:
    running = tuple(tasks(rng, rng.randint(1, 8), ("a", "b")))
    used = {t: sum(task.amounts.get(t, 0) for task in running) for t in ("f", "g")}
    capacity = {t: used[t] + rng.randint(0, 4) for t in used}
    case = Case("random", (QueueCase("a"), QueueCase("b")), (("n1", capacity),), running)
    return case, TaskCase("b", "ask", amounts(rng, 2, 14), priority=rng.randint(0, 2), required_node=True)


def covers(world: World, ask: Allocation, victims: tuple[Allocation, ...]) -> bool:
    node = world.nodes["n1"]
    going = [*victims, *(a for a in node.allocations.values() if a.preempted)]
    return all(
        node.free[t] + sum(dict(victim.shape.pairs).get(t, 0) for victim in going) >= amount
        for t, amount in ask.shape.pairs
    )


def overfull_tree(rng: random.Random) -> tuple[Case, str]:
    """Guarantees anywhere, usage above the max of one queue."""
    running = tuple(tasks(rng, rng.randint(2, 14), LEAVES))
    enforced = rng.choice(["p", "p", "p", "p.x", *LEAVES])
    inside = [task for task in running if task.queue == enforced or task.queue.startswith(f"{enforced}.")]
    used = {t: sum(task.amounts.get(t, 0) for task in inside) for t in ("f", "g")}
    lowered = {t: rng.randint(0, amount) for t, amount in used.items() if rng.random() < 0.7}
    queues = tuple(
        QueueCase(
            path,
            guaranteed=amounts(rng, 1, 8) if rng.random() < 0.35 else {},
            maximum=lowered if path == enforced else {},
            preemption_policy=rng.choice([None, None, "fence", "disabled"]),
            priority_offset=rng.choice([0, 0, 5]),
        )
        for path in ("p", "p.a", "p.b", "p.x", "p.x.c", "p.x.d")
    )
    return Case("random", queues, (("n1", {"f": 1000, "g": 1000}),), running), enforced


def walk(
    pool: Sequence[_T],
    short: Callable[[Sequence[_T]], set[Any]],
    lawful: Callable[[Sequence[_T]], bool],
    serves: Callable[[_T, Any], bool],
) -> list[_T]:
    """The victims of the plain walk over *pool*, which is in order; empty: it fails. *short*: the needs that are unmet
    once some tasks have gone."""
    taken: list[_T] = []
    for task in pool:
        if short(taken) and any(serves(task, need) for need in short(taken)) and lawful([*taken, task]):
            taken.append(task)
    if short(taken):
        return []
    for task in reversed(taken[:]):
        if not short([other for other in taken if other is not task]):
            taken.remove(task)
    for task in taken:
        if not any(serves(task, need) for need in short([other for other in taken if other is not task])):
            return []
    return taken


def is_worse(victims: Sequence[Allocation], than: Sequence[Allocation], order: Callable[[Allocation], Any]) -> bool:
    return bool(than) and sorted(map(order, victims), reverse=True) > sorted(map(order, than), reverse=True)


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


def broken(world: World, plan: Plan) -> set[Law]:
    return {violation.law for violation in judged_plans.check(world, plan)}


@WORLDS
@given(SEEDS)
def test_for_a_guarantee(seed: int) -> None:
    """Every lawful set of victims on the node, none of whom can be left out, is judged by the walk over this node."""
    world = World.of(case := random_case(random.Random(seed)))
    ask = world.ask(case.steps[0].ask)
    oracle = Oracle(world, ask, NOW_NS)
    plan = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    if not isinstance(plan, PreemptionPlan) or not plan.victims:
        return
    assert broken(world, plan) == set()
    node = plan.node
    if all(oracle.available(node, t) >= amount for t, amount in oracle.demand.items()):
        return
    pool = sorted((a for a in node.allocations.values() if oracle.candidate(a)), key=oracle.order)
    mild = walk(
        pool,
        lambda gone: oracle.unmet(node, list(gone)),
        oracle.lawful,
        lambda task, need: oracle.lowers(task, need) and oracle.serves(task, need),
    )
    assert not is_worse(plan.victims, mild, oracle.order)
    for victims in sets_of_victims(world, oracle, node):
        rival = replace(plan, victims=tuple(victims))
        if not broken(world, rival) - {Law.MILDEST}:
            judged = Law.MILDEST in broken(world, rival)
            assert judged == is_worse(victims, mild, oracle.order), f"{victims}, {mild}"


@WORLDS
@given(SEEDS)
def test_for_an_ask_that_must_run_on_its_node(seed: int) -> None:
    """Priority and the node alone bind it, so the walk succeeds wherever anybody does."""
    rng = random.Random(seed)
    case, task = crowded_node(rng)
    world = World.of(case)
    ask, node = world.ask(task), world.nodes["n1"]
    if covers(world, ask, ()):
        return
    plan = required_node.plan_preemption(world, ask, node)

    def order(victim: Allocation) -> tuple[object, ...]:
        size = [dict(victim.shape.pairs).get(t, 0) for t, _ in ask.shape.pairs]
        willing = not victim.spec.allow_preempt_self
        return victim.spec.originator, willing, victim.priority, -victim.created_ns, size, victim.key

    going = [a for a in world.allocations.values() if a.preempted]

    def short(gone: Sequence[Allocation]) -> set[int]:
        freed = [dict(task.shape.pairs) for task in (*gone, *going)]
        return {t for t, amount in ask.shape.pairs if node.free[t] + sum(one.get(t, 0) for one in freed) < amount}

    pool = [a for a in node.allocations.values() if not protected(a) and a.priority <= ask.priority]
    mild = walk(sorted(pool, key=order), short, lambda _: True, lambda task, t: t in dict(task.shape.pairs))
    if not isinstance(plan, PreemptionPlan):
        assert not mild
        return
    assert broken(world, plan) == set()
    assert list(plan.victims) == mild
    for count in range(1, len(pool) + 1):
        for victims in combinations(pool, count):
            rival = replace(plan, victims=victims)
            if not broken(world, rival) - {Law.MILDEST}:
                assert (Law.MILDEST in broken(world, rival)) == is_worse(victims, mild, order)


@WORLDS
@given(SEEDS)
def test_for_a_lowered_max(seed: int) -> None:
    """In a single leaf the victims are no worse than those of the walk over it; nobody goes in vain anywhere."""
    rng = random.Random(seed)
    case, enforced = overfull_tree(rng)
    world = World.of(case)
    queue = world.queues[enforced]
    plan = quota.plan_enforcement(queue, 0)
    assert broken(world, plan) == set()
    if not queue.leaf or plan.unmet or not plan.victims:
        return

    def order(victim: Allocation) -> tuple[object, ...]:
        spec, pairs = victim.spec, victim.shape.pairs
        wanted = [amount / (plan.ceilings[t] or 1) for t, amount in pairs if t in plan.target]
        matching = -len(wanted) / len(pairs)
        return (
            spec.originator, spec.priority, not spec.allow_preempt_self, -victim.created_ns, matching,
            sorted(wanted, reverse=True), victim.key,
        )  # fmt: skip

    def short(gone: Sequence[Allocation]) -> set[int]:
        return {t for t, amount in plan.target.items() if sum(dict(v.shape.pairs).get(t, 0) for v in gone) < amount}

    def lawful(gone: Sequence[Allocation]) -> bool:
        return all(
            level.used[t] - level.preempting[t] - sum(dict(v.shape.pairs).get(t, 0) for v in gone) >= guaranteed
            for level in queue.lineage()
            for t, guaranteed in level.guaranteed.items()
            if any(t in dict(v.shape.pairs) for v in gone)
        )

    pool = [a for a in world.allocations.values() if a.queue is queue and not protected(a)]
    mild = walk(sorted(pool, key=order), short, lawful, lambda task, t: t in dict(task.shape.pairs))
    assert not is_worse(plan.victims, mild, order)
    for victims in combinations(pool, len(plan.victims)):
        rival = replace(plan, victims=victims, unmet={})
        if not broken(world, rival) - {Law.MILDEST}:
            assert (Law.MILDEST in broken(world, rival)) == (not short(victims) and is_worse(victims, mild, order))


def test_worlds_tell_worse_victims_apart() -> None:
    """Among the worlds there are those where other victims, lawful but for this, would be worse."""
    found = 0
    for seed in range(200):
        world = World.of(case := random_case(random.Random(seed)))
        ask = world.ask(case.steps[0].ask)
        plan = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
        if isinstance(plan, PreemptionPlan) and plan.victims:
            sets = sets_of_victims(world, Oracle(world, ask, NOW_NS), plan.node)
            found += any(broken(world, replace(plan, victims=tuple(victims))) == {Law.MILDEST} for victims in sets)
    assert found >= 5
