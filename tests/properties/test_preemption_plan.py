"""Random small clusters: the planner against itself without what it keeps, the laws, and shuffled input.

That its victims are needed, and that it misses no lawful plan, is judged in :mod:`tests.properties.preemption_rules`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search.prospects import KnownProspects
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.state.records.victim_index import VictimIndex
from tests import judged_plans as laws
from tests.examples import scale_examples
from tests.preemption_notation import Amounts, Case, Expected, QueueCase, ReservationCase, Step, TaskCase
from tests.unit.policies.preemption.world import NOW_NS, World

PATHS = ("p", "q", "p.a", "p.b", "p.x", "p.x.c", "p.x.d", "q.e", "q.f")
LEAVES = ("p.a", "p.b", "p.x.c", "p.x.d", "q.e", "q.f")


def clusters() -> st.SearchStrategy[Case]:
    """Clusters by seed: what makes preemption possible at all has to be likely, and drawing must cost little."""
    return st.integers(0, 2**32).map(lambda seed: random_case(random.Random(seed)))


def random_case(rng: random.Random) -> Case:
    """Up to three nodes below a small tree with guarantees, and a few asks.

    Three flavours: full nodes; nodes with room to spare, where the max of a queue is what lacks; guarantees shared by
    siblings, where the asking queue has none of its own.
    """
    flavour = rng.choice(["full", "full", "roomy", "shared"])
    nodes = tuple(
        (f"n{at}", amounts(rng, 12, 16) if flavour == "roomy" else amounts(rng, 4, 9))
        for at in range(rng.randint(1, 3))
    )
    steps = tuple(
        Step(TaskCase(rng.choice(LEAVES), f"ask{at}", amounts(rng, 1, 4), tick=9, priority=1), Expected())
        for at in range(rng.randint(1, 3))
    )
    return Case(
        "random",
        tuple(random_queue(rng, path, {step.ask.queue for step in steps}, flavour) for path in PATHS),
        nodes,
        tuple(random_tasks(rng, nodes)),
        tuple(random_reservations(rng)),
        steps,
        strict=rng.random() < 0.2,
    )


def amounts(rng: random.Random, least: int, most: int) -> Amounts:
    if rng.random() < 0.6:
        return {"f": rng.randint(least, most)}
    return {"f": rng.randint(least, most), "g": rng.randint(least, most)}


def random_queue(rng: random.Random, path: str, asking: set[str], flavour: str) -> QueueCase:
    leaf = path in LEAVES
    likely = 0.6 if any(queue == path or queue.startswith(f"{path}.") for queue in asking) else 0.4
    least, most, max_likely = 2, 7, 0.25
    if flavour == "shared":
        likely = 0.9 if not leaf else 0.1 if path in asking else 0.7
        least, most = (1, 2) if leaf else (4, 7)
    elif flavour == "roomy" and not leaf:
        max_likely = 0.7
    return QueueCase(
        path,
        guaranteed=amounts(rng, least, most) if rng.random() < likely else {},
        maximum=amounts(rng, 5, 14) if rng.random() < max_likely else {},
        preemption_policy=rng.choice([None] * 12 + ["fence", "disabled", "default"]),
        priority_fence=rng.random() < 0.1,
        priority_offset=rng.choice([0, 0, 0, 0, 1, -1]),
    )


def random_tasks(rng: random.Random, nodes: tuple[tuple[str, Amounts], ...]) -> Iterator[TaskCase]:
    """About as many tasks as fit."""
    free = {node: dict(capacity) for node, capacity in nodes}
    for at in range(max(9, 4 * len(nodes))):
        size = amounts(rng, 1, 4)
        fitting = [n for n in free if all(free[n].get(t, 0) >= amount for t, amount in size.items())]
        if not fitting:
            continue
        node = rng.choice(fitting)
        for t, amount in size.items():
            free[node][t] -= amount
        yield TaskCase(
            rng.choice(LEAVES),
            f"v{at}",
            size,
            node,
            rng.randint(0, max(5, len(nodes))),
            rng.choice([0, 0, 0, 0, 1, 2]),
            opted_out=rng.random() < 0.25,
            originator=rng.random() < 0.25,
            required_node=rng.random() < 0.05,
        )


def random_reservations(rng: random.Random) -> Iterator[ReservationCase]:
    if rng.random() < 0.25:
        holder = TaskCase("q.f", "holder", {"f": 1}, triggered=rng.random() < 0.3)
        yield ReservationCase("n0", rng.choice([59, 61]), holder)


def shown(result: PreemptionPlan | Refusal) -> tuple[str, list[str]] | str:
    if isinstance(result, Refusal):
        return result.outcome
    return (result.node.node_id, [victim.key for victim in result.victims])


@settings(max_examples=scale_examples(600), deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_kept_changes_nothing(seed: int) -> None:
    """Tasks end, and others take their room, so that leaves fall to their guarantees and rise above them again; so they
    do as guarantees change. Nodes come back under their names, and equal asks come back. What is of no use any more is
    dropped meanwhile."""
    dice = random.Random(seed)
    case = dice.choice((random_case, small_case, squeezed_case))(dice)
    world, index, known, names = World.of(case), VictimIndex(), KnownProspects(), case.types()
    leaves = [path for path, queue in world.queues.items() if queue.leaf]
    for turn in range(12):
        ask = world.ask(replace(dice.choice(case.steps).ask, key=f"ask{turn}"))
        plan = guarantee.plan_preemption(world, ask, index=index, known=known, now_ns=NOW_NS)
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
        if dice.random() < 0.2:
            leaf = world.queues[dice.choice(leaves)]
            leaf.set_limits({0: dice.randint(1, 4)} if dice.random() < 0.5 else {}, dict(leaf.max))
        node = dice.choice(list(world.nodes.values()))
        if dice.random() < 0.2 and not node.reservations:
            for allocation in list(node.allocations.values()):
                world.remove(allocation)
            del world.nodes[node.node_id]
            capacity = {names[t]: amount for t, amount in enumerate(node.capacity) if amount}
            world.node(node.node_id, capacity)
            world.run(TaskCase(dice.choice(leaves), f"x{turn}", {names[0]: 1}, node.node_id, tick=turn))
        if dice.random() < 0.5:
            kept = {leaf for leaf in world.queues.values() if leaf.applications}
            known.keep_only(kept)
            index.keep_only(kept)


def small_case(rng: random.Random) -> Case:
    """As other clusters here, with more nodes of which each holds few."""
    nodes = tuple((f"n{at}", amounts(rng, 2, 6)) for at in range(rng.randint(1, 6)))
    return replace(random_case(rng), nodes=nodes, running=tuple(islice(random_tasks(rng, nodes), 12)))


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


@settings(max_examples=scale_examples(150), deadline=None)
@given(clusters())
def test_a_plan_is_lawful_and_looking_changes_nothing(case: Case) -> None:
    world = World.of(case)
    for step in case.steps:
        ask = world.ask(step.ask)
        before = fingerprint(world)
        result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
        assert fingerprint(world) == before
        if isinstance(result, PreemptionPlan):
            assert laws.check(world, result) == ()
            assert fingerprint(world) == before
            world.apply(result)


def fingerprint(world: World) -> list[object]:
    """Everything a decision could have changed."""
    found: list[object] = [list(world.queues), list(world.nodes)]
    for queue in [world.root, *world.queues.values()]:
        found += [list(queue.used), list(queue.preempting), list(queue.claimed), list(queue.children)]
    for node in world.nodes.values():
        found += [list(node.free), list(node.allocations), list(node.reservations)]
    found += [(a.preempted, a.released, a.triggered, a.node) for a in world.allocations.values()]
    return found


@settings(max_examples=scale_examples(300), deadline=None)
@given(clusters(), st.sets(st.integers(0, 8), max_size=3))
def test_predicate_is_content_and_nobody_goes_for_nothing(case: Case, wanted: set[int]) -> None:
    """The final victims satisfy the predicate, are lawful, and none of an extended set could have stayed."""
    world = World.of(case)
    ask = world.ask(case.steps[0].ask)
    wanted_keys = {f"v{at}" for at in wanted}

    def gone_enough(node: Node, keys: set[str]) -> bool:
        return wanted_keys & node.allocations.keys() <= keys

    def predicate(_: Allocation, node: Node, victims: tuple[Allocation, ...], start: int) -> int | None:
        keys = [victim.key for victim in victims]
        return (
            next((i for i in range(start, len(keys)) if gone_enough(node, set(keys[: i + 1]))), None)
            if (victims)
            else (0 if gone_enough(node, set()) else None)
        )

    result = guarantee.plan_preemption(world, ask, predicate=predicate, now_ns=NOW_NS)
    if isinstance(result, Refusal):
        return
    assert laws.check(world, result) == ()
    here = {victim.key for victim in result.victims if victim.node is result.node}
    assert gone_enough(result.node, here)
    if result.extended:
        for victim in result.victims:
            if victim.node is not result.node or victim.key in wanted_keys:
                continue
            rest = replace(result, victims=tuple(v for v in result.victims if v is not victim))
            assert laws.check(world, rest)
