"""Random small clusters: the planner against the obvious version, against the laws, and against shuffled input."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core import laws
from core.model.allocations import Allocation
from core.model.nodes import Node
from core.policies.preemption import guarantee
from core.policies.preemption.plan import PreemptionPlan, Refusal
from tests.oracles.preemption import Oracle
from tests.preemption_notation import Amounts, Case, QueueCase, ReservationCase, Step, TaskCase
from tests.preemption_notation import Expected as NothingYet
from tests.unit.policies.preemption.world import NOW_NS, World

PATHS = ("p", "q", "p.a", "p.b", "p.x", "p.x.c", "p.x.d", "q.e", "q.f")
LEAVES = ("p.a", "p.b", "p.x.c", "p.x.d", "q.e", "q.f")

thorough = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


def amounts(most: int) -> st.SearchStrategy[Amounts]:
    return st.one_of(
        st.builds(lambda f: {"f": f}, st.integers(1, most)),
        st.builds(lambda f, g: {"f": f, "g": g}, st.integers(1, most), st.integers(1, most)),
    )


def maybe(strategy: st.SearchStrategy[Amounts], others: int = 1) -> st.SearchStrategy[Amounts]:
    """Mostly nothing declared: one time in ``others + 1`` something."""
    return st.one_of(*([st.just({})] * others), strategy)


def queues() -> st.SearchStrategy[tuple[QueueCase, ...]]:
    def one(path: str) -> st.SearchStrategy[QueueCase]:
        return st.builds(
            QueueCase,
            st.just(path),
            guaranteed=maybe(amounts(6)),
            maximum=maybe(amounts(14), 3),
            preemption_policy=st.sampled_from([None, None, None, None, None, "fence", "disabled", "default"]),
            priority_fence=st.sampled_from([False, False, False, True]),
            priority_offset=st.sampled_from([0, 0, 0, 1, -1]),
        )

    return st.tuples(*(one(path) for path in PATHS))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster of up to three nodes, filled as far as they go, and a few asks."""
    capacities = draw(st.lists(amounts(10), min_size=1, max_size=3))
    nodes = tuple((f"n{at}", capacity) for at, capacity in enumerate(capacities))
    running = []
    for at in range(draw(st.integers(1, 9))):
        node = draw(st.sampled_from(nodes))[0]
        running.append(
            TaskCase(
                draw(st.sampled_from(LEAVES)),
                f"v{at}",
                draw(amounts(4)),
                node,
                draw(st.integers(0, 5)),
                draw(st.sampled_from([0, 0, 0, 1, 2])),
                opted_out=draw(st.sampled_from([False, False, False, True])),
                originator=draw(st.sampled_from([False, False, False, True])),
                required_node=draw(st.sampled_from([False] * 12 + [True])),
            )
        )
    reservations = []
    if draw(st.sampled_from([False, False, False, True])):
        holder = TaskCase("q.f", "holder", {"f": 1}, triggered=draw(st.booleans()))
        reservations.append(ReservationCase(nodes[0][0], draw(st.sampled_from([59, 61])), holder))
    steps = tuple(
        Step(TaskCase(draw(st.sampled_from(LEAVES)), f"ask{at}", draw(amounts(5)), tick=9, priority=1), NothingYet())
        for at in range(draw(st.integers(1, 3)))
    )
    return Case(
        "random", draw(queues()), nodes, tuple(running), tuple(reservations), steps, strict=draw(st.booleans())
    )


def shown(result: PreemptionPlan | Refusal) -> tuple[str, list[str]] | str:
    if isinstance(result, Refusal):
        return result.outcome
    return (result.node.node_id, [victim.key for victim in result.victims])


@thorough
@given(cases())
def test_same_as_obvious_version(case: Case) -> None:
    """Node, victims and their order, or the outcome, are those of the version without short cuts."""
    world = World.of(case)
    for step in case.steps:
        ask = world.ask(step.ask)
        result = guarantee.plan(world, ask, now_ns=NOW_NS)
        assert shown(result) == Oracle(world, ask, NOW_NS).plan()
        if isinstance(result, PreemptionPlan):
            world.apply(result)


@thorough
@given(cases())
def test_lawful_and_minimal(case: Case) -> None:
    """Every plan passes every law, the exhaustive ones included, and looking changes nothing."""
    world = World.of(case)
    for step in case.steps:
        ask = world.ask(step.ask)
        before = fingerprint(world)
        result = guarantee.plan(world, ask, now_ns=NOW_NS)
        assert fingerprint(world) == before
        if isinstance(result, PreemptionPlan):
            assert laws.check_exhaustive(world, result) == ()
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


@thorough
@given(cases(), st.integers())
def test_arrival_order_does_not_matter(case: Case, seed: int) -> None:
    """The same cluster, entered in another order, gives the same decisions."""
    shuffler = random.Random(seed)
    other = replace(
        case,
        queues=tuple(shuffler.sample(case.queues, len(case.queues))),
        nodes=tuple(shuffler.sample(case.nodes, len(case.nodes))),
        running=tuple(shuffler.sample(case.running, len(case.running))),
    )
    # Parents before children, or World would make up the parents.
    other = replace(other, queues=tuple(sorted(other.queues, key=lambda queue: queue.path.count("."))))
    first, second = World.of(case), World.of(other)
    for step in case.steps:
        results = []
        for world in (first, second):
            ask = world.ask(step.ask)
            result = guarantee.plan(world, ask, now_ns=NOW_NS)
            results.append(shown(result))
            if isinstance(result, PreemptionPlan):
                world.apply(result)
        assert results[0] == results[1]


@thorough
@given(cases(), st.sets(st.integers(0, 8), max_size=3))
def test_predicate_is_content_and_nobody_goes_for_nothing(case: Case, wanted: set[int]) -> None:
    """The final victims satisfy the predicate, are lawful, and none of an extended set could have stayed."""
    world = World.of(case)
    ask = world.ask(case.steps[0].ask)
    wanted_keys = {f"v{at}" for at in wanted}

    def gone_enough(node: Node, keys: set[str]) -> bool:
        return wanted_keys & node.allocations.keys() <= keys

    def predicate(_: Allocation, node: Node, victims: tuple[Allocation, ...], start: int) -> int | None:
        keys = [victim.key for victim in victims]
        return next((i for i in range(start, len(keys)) if gone_enough(node, set(keys[: i + 1]))), None) if (
            victims
        ) else (0 if gone_enough(node, set()) else None)

    result = guarantee.plan(world, ask, predicate=predicate, now_ns=NOW_NS)
    assume(isinstance(result, PreemptionPlan))
    assert isinstance(result, PreemptionPlan)
    assert laws.check(world, result) == ()
    here = {victim.key for victim in result.victims if victim.node is result.node}
    assert gone_enough(result.node, here)
    if result.extended:
        for victim in result.victims:
            if victim.node is not result.node or victim.key in wanted_keys:
                continue
            rest = replace(result, victims=tuple(v for v in result.victims if v is not victim))
            assert laws.check(world, rest)
