"""What the engine drops is freed by reference counting: it leaves no reference cycles, which only a collector finds.

The server keeps the collector away from what has lived long (:mod:`kornel.core.service.machine.garbage`), so cycles
would pile up. For a long run: ``python -m tests.properties.test_no_garbage --searches 1000000``.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kornel.core.domain.commands import UnregisterManager
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search.prospects import KnownProspects, Unprepared
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.telling.explain import Named
from kornel.core.telling.reader import Reader
from tests.examples import mark_rest_long
from tests.properties.limited_shim import LimitedShim
from tests.properties.machine import driver
from tests.properties.machine.world import RM
from tests.properties.machine.world import World as Partition
from tests.properties.shim import PARTITION, Shim, random_history
from tests.properties.test_preemption_plan import random_case
from tests.unit.policies.preemption.world import NOW_NS, World

SEARCHES = 8_000
EPISODES, STEPS = 12, 500


@contextmanager
def _leaving_nothing() -> Iterator[None]:
    """Fails, and names the types, if what happens inside leaves anything that only the collector frees."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
        before = _count_tracked()
        gc.collect()
        # Not what the collector says: it counts no cycle that a generator's own end breaks.
        left = before - _count_tracked()
    finally:
        gc.enable()
    assert not left, f"unreachable and not freed: {left.most_common(12)}"


def _count_tracked() -> Counter[str]:
    """What the collector sees, by type. Tuples and dicts drop out of its sight where they hold nothing that could refer
    back, so their number says nothing; nor is there a cycle of these alone."""
    return Counter(type(thing).__qualname__ for thing in gc.get_objects() if type(thing) not in (tuple, dict))


def test_searches_leave_no_garbage() -> None:
    """Whatever comes of it, with whatever help, and whoever has a say."""
    clusters = [_full_cluster(seed) for seed in range(12)]
    with _leaving_nothing():
        found = _search(clusters, SEARCHES)
    assert found["plan"] > SEARCHES // 20
    assert found["refusal"] > SEARCHES // 20


@pytest.mark.parametrize("number", mark_rest_long(range(EPISODES)))
def test_whatever_a_shim_does_leaves_no_garbage(number: int) -> None:
    """Asks, predicates, gangs, preemption, nodes and queues that go, registrations: all is freed when it is dropped."""
    with _leaving_nothing():
        partition = driver.episode(f"garbage-{number}", STEPS, Partition())
        partition.send(UnregisterManager(RM))
        while partition.engine.cycle(partition.now_ns, 1_000).more:
            pass


@pytest.mark.parametrize("kind", ["plain", "gangs", "limits"])
def test_questions_leave_no_garbage(kind: str) -> None:
    """Nor the rankings that they keep for each other."""
    seed = 7
    shim = LimitedShim(seed) if kind == "limits" else Shim(seed, gangs=kind == "gangs")
    for operation in random_history(seed, 80):
        shim.perform(operation)
        shim.settle()
    reader = Reader(shim.engine, lambda: shim.now_ns)
    with _leaving_nothing():
        for _ in range(20):
            for name in [*shim.state.requests, *shim.state.applications]:
                reader[PARTITION].explain(Named(name))


def _refuse_some(ask: Allocation, node: Node, victims: tuple[Allocation, ...], start: int) -> int | None:
    return start if len(node.node_id) + len(victims) % 3 else None


def _full_cluster(seed: int) -> tuple[World, list[Allocation]]:
    """A cluster without much room, and asks."""
    case = random_case(random.Random(seed))
    world = World.of(case)
    return world, [world.ask(step.ask) for step in case.steps]


def _search(clusters: list[tuple[World, list[Allocation]]], searches: int) -> Counter[str]:
    """So many searches for victims in turns; nothing is done about what they find."""
    found: Counter[str] = Counter()
    known = [KnownProspects() for _ in clusters]
    while True:
        for (world, asks), prospects in zip(clusters, known, strict=True):
            for ask in asks:
                if found.total() >= searches:
                    return found
                number = found.total() % 4
                world.victim_order = "lost-work" if number == 3 else "default"
                predicate = _refuse_some if number == 2 else None
                try:
                    result = guarantee.plan_preemption(
                        world, ask, known=prospects if number else None, predicate=predicate, now_ns=NOW_NS
                    )
                except Unprepared:
                    found["unprepared"] += 1
                    continue
                found["plan" if isinstance(result, PreemptionPlan) else "refusal"] += 1


def main() -> None:
    """As many searches as asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.test_no_garbage", description=__doc__)
    parser.add_argument("--searches", type=int, default=1_000_000)
    options = parser.parse_args()
    clusters = [_full_cluster(seed) for seed in range(100)]
    with _leaving_nothing():
        found = _search(clusters, options.searches)
    print(f"{found.total():,} searches left no garbage: {dict(found)}")


if __name__ == "__main__":
    main()
