"""Places of the periodic monitor in random clusters: every victim lets an ask run, nobody who is owed one is left out.

What could still be served is worked out by trying all sets of tasks of a node, from the laws alone. Rules:
preemption.md A, E.5.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.effects import Allocated, PreemptionNotice, Released
from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.priorities import adjustment_of
from tests.examples import scale_examples
from tests.properties.test_monitor import LEAVES, PARENTS
from tests.scenarios.preemption.monitor_stage import Stage

QUIET_S = 60


def random_queues(rng: random.Random, total: int, types: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Guarantees of some leaves, and of some levels above what they declare, or none there."""
    owed = {leaf: {t: rng.randint(0, total // 3) for t in types} for leaf in LEAVES}
    left = dict.fromkeys(types, total)
    queues: dict[str, dict[str, Any]] = {}
    for amounts in owed.values():
        for t in types:
            amounts[t] = min(amounts[t], left[t]) if rng.random() < 0.7 else 0
            left[t] -= amounts[t]
    for path in (*PARENTS, *LEAVES):
        amounts = owed.get(path) or {}
        if path in PARENTS and rng.random() < 0.7:
            below = [owed[leaf] for leaf in LEAVES if leaf.startswith(f"{path}.")]
            amounts = {t: sum(one[t] for one in below) for t in types}
        properties = {}
        if rng.random() < 0.1:
            properties["preemption.policy"] = rng.choice(["fence", "disabled"])
        if rng.random() < 0.1:
            properties["priority.offset"] = str(rng.choice([-1, 1]))
        guaranteed = {t: amount for t, amount in amounts.items() if amount}
        queues[path] = {"resources": {"guaranteed": guaranteed} if guaranteed else {}, "properties": properties}
    return queues


def random_stage(rng: random.Random, types: tuple[str, ...]) -> Stage:
    """A few leaves hold what there is, then all of them want something."""
    nodes = {f"n{at}": {t: rng.randint(3, 9) for t in types} for at in range(rng.randint(1, 4))}
    total = min(sum(capacity[t] for capacity in nodes.values()) for t in types)
    options = {
        "per_round": rng.choice([0.1, 0.3, 1]),
        "natural_factor": rng.choice([0.2, 1]),
        "dead_zone": rng.choice([0, 0.1]),
    }
    stage = Stage(random_queues(rng, total, types), **options)
    stage.attach()
    for name, capacity in nodes.items():
        stage.node(name, capacity)
    for leaf in LEAVES:
        stage.application(f"app-{leaf}", leaf)
    number = 0
    hogs = rng.sample(LEAVES, rng.randint(1, 3))
    for phase, leaves in enumerate((hogs, LEAVES)):
        for _ in range(rng.randint(8, 20) if phase == 0 else rng.randint(3, 12)):
            number += 1
            size = {t: rng.randint(1, 4) for t in types if t == "f" or rng.random() < 0.6}
            stage.submit(
                f"app-{rng.choice(leaves)}",
                [f"k{number}"],
                size,
                priority=rng.choice([0, 0, 0, 1]),
                allow_preempt_self=rng.random() < 0.9,
                originator=rng.random() < 0.1,
                allow_preempt_other=rng.random() < 0.9,
            )
        stage.run_to(stage.now_s)
    if len(nodes) > 1 and rng.random() < 0.3:
        stage.drain("n0")
    return stage


def play(stage: Stage) -> int:
    """Until nothing has happened for a while. Victims leave at once, and all that they were taken for must run then."""
    killed = 0
    silent = 0
    while silent < QUIET_S:
        effects = stage.run_to(stage.now_s + 5)
        victims = [effect for effect in effects if isinstance(effect, Released)]
        silent = silent + 5 if not any(isinstance(effect, PreemptionNotice | Released) for effect in effects) else 0
        if not victims:
            continue
        killed += len(victims)
        waiting = {ask for ask in stage.state.requests.values() if ask.triggered}
        named = {stage.state.requests[victim.key].preemptor for victim in victims}
        assert None not in named
        assert named <= waiting
        stage.confirm(effects)
        placed = {effect.spec.key for effect in stage.run_to(stage.now_s) if isinstance(effect, Allocated)}
        assert {ask.key for ask in waiting} <= placed
        assert killed < 500, "no end"
    return killed


def net(queue: Queue, t: int) -> int:
    return queue.used[t] - queue.preempting[t]


def may_take(ask: Allocation, victim: Allocation) -> bool:
    """Laws 3, 6 and 7, and who is no victim at all."""
    if victim.queue is ask.queue or victim.queue.properties.preemption_policy is PreemptionPolicyKind.DISABLED:
        return False
    path = victim.queue.lineage()
    common = next(queue for queue in ask.queue.lineage() if queue in path)
    for queue in ask.queue.lineage():
        if queue is common:
            break
        if queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return False
    theirs = adjustment_of(victim.queue, common).of(victim.priority)
    return theirs <= adjustment_of(ask.queue, common).of(ask.priority)


def lawful(ask: Allocation, gone: tuple[Allocation, ...], t: int, dead_zone: float) -> bool:
    """Law 2 on every level, and no leaf within its guarantee and the zone above it loses anything."""
    amount = ask.shape.pairs[0][1]
    leaving: dict[Queue, int] = {}
    for victim in gone:
        for queue in victim.queue.lineage():
            leaving[queue] = leaving.get(queue, 0) + victim.shape.pairs[0][1]
    for queue, less in leaving.items():
        owed = queue.guaranteed.get(t, 0)
        if queue.leaf and net(queue, t) <= owed * (1 + dead_zone):
            return False
        left, least = net(queue, t) - less, owed
        if queue in ask.queue.lineage():
            left, least = left + amount, min(owed, net(queue, t))
        if left < least:
            return False
    return True


def could_be_served(stage: Stage, ask: Allocation, node: Node, t: int, dead_zone: float) -> tuple[Allocation, ...]:
    """Ordinary tasks of *node* that could lawfully make room for *ask*; none: there are none."""
    amount = ask.shape.pairs[0][1]
    there = [one for one in node.allocations.values() if may_take(ask, one) and not one.spec.originator]
    for count in range(1, min(len(there), 4) + 1):
        for gone in combinations(there, count):
            if node.free[t] + sum(one.shape.pairs[0][1] for one in gone) >= amount and lawful(ask, gone, t, dead_zone):
                return gone
    return ()


def protected_above(leaf: Queue, stage: Stage) -> bool:
    """Whether the planner counts a guarantee for a level on the path that its queue does not declare."""
    return any(not queue.guaranteed for queue in leaf.lineage()[:-1])


@settings(max_examples=scale_examples(120), deadline=None)
@given(st.integers(0, 2**32))
def test_it_goes_quiet_and_nobody_who_is_owed_a_place_is_left_waiting(seed: int) -> None:
    rng = random.Random(seed)
    stage = random_stage(rng, ("f",))
    play(stage)
    state = stage.state
    t = state.types.index_of("f")
    dead_zone = float(state.notices.settings.dead_zone)
    for ask in list(state.requests.values()):
        leaf = ask.queue
        owed = leaf.guaranteed.get(t, 0)
        if not ask.pending or not ask.spec.allow_preempt_other or not net(leaf, t) < owed:
            continue
        if ask.shape.pairs[0][1] > owed:
            continue
        for node in state.nodes.values():
            if node.schedulable and node.could_hold(ask.shape.pairs):
                gone = could_be_served(stage, ask, node, t, dead_zone)
                derived = any(protected_above(victim.queue, stage) for victim in gone)
                assert not gone or derived, (ask, node, gone)


@settings(max_examples=scale_examples(80), deadline=None)
@given(st.integers(0, 2**32))
def test_every_victim_of_several_types_lets_its_ask_run(seed: int) -> None:
    rng = random.Random(seed)
    play(random_stage(rng, ("f", "g")))
