"""Preemption within a queue, against every set of tasks of small worlds (preemption.md M)."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from tests.oracles.within import Task, World
from tests.scenarios.stage import Stage

WORLDS = 400
NODES = ("n1", "n2")
USERS = {"hot": "ann", "b": "ann"}
"""The users of applications; eve has the others."""


def make_world(rng: random.Random, *, limited: bool = False) -> World:
    """Returns a world of at most six tasks on one or two nodes, all of which are full or nearly so. *limited*: a limit
    of the user of the ask is full or nearly so, too, and nodes may have room."""
    nodes = dict.fromkeys(NODES[: rng.randint(1, 2)], 0)
    tasks = tuple(
        Task(
            name=f"t{number}",
            application=rng.choice(("hot", "b", "c", "c")),
            size=rng.randint(1, 4),
            priority=rng.randint(0, 4),
            node=rng.choice(list(nodes)),
            here=rng.random() < 0.8,
            opted_out=rng.random() < 0.2,
        )
        for number in range(rng.randint(1, 6))
    )
    tasks = tuple(replace(task, user=USERS.get(task.application, "eve")) for task in tasks)
    for node in nodes:
        load = sum(task.size for task in tasks if task.node == node)
        nodes[node] = max(1, load + rng.choice((0, 0, 1, 5)))
    held = [sum(task.size for task in tasks if task.here or level) for level in range(2)]
    guaranteed = [rng.choice((0, 0, rng.randint(1, 8))) for _ in held]
    guaranteed[1] = max(guaranteed) if guaranteed[1] else 0
    most = [rng.choice((None, None, max(1, amount + rng.randint(-1, 2)))) for amount in held]
    shares = [(owed, None if least is None else max(least, owed)) for owed, least in zip(guaranteed, most, strict=True)]
    if shares[1][1] is not None:  # A guarantee or max below may not exceed that of its parent.
        shares[0] = (min(shares[0][0], shares[1][1]), shares[0][1] and min(shares[0][1], shares[1][1]))
    size, limit = rng.randint(1, 4), None
    if limited:
        level = rng.randint(0, 1)
        mine = sum(task.size for task in tasks if task.user == "ann" and (task.here or level))
        limit = level, min(max(1, mine + rng.randint(-1, size)), shares[level][1] or 99)
        if rng.random() < 0.5:  # Nodes have room, so that the limit alone keeps the ask back.
            nodes = {node: most + 5 for node, most in nodes.items()}
    return World(nodes, tasks, (shares[0], shares[1]), size, rng.randint(0, 6), rng.randint(1, 3), limit=limit)


def lines_of(world: World) -> list[str]:
    """Returns *world* in the notation of scenarios. Only what preempts within the queue is listed."""

    def amounts(level: int) -> str:
        owed, most = world.shares[level]
        return (f" guaranteed={{f={owed}}}" if owed else "") + (f" max={{f={most}}}" if most is not None else "")

    limits: list[str] = []
    if world.limit is not None:
        limits = [f"limit root.p{('.a', '')[world.limit[0]]} users=ann max={{f={world.limit[1]}}}"]
    within = f"preemption.within=priority preemption.within.gap={world.gap} preemption.delay=1s"
    lines = [
        'partition policies="[within]"',
        f"queue root.p{amounts(1)}",
        f"queue root.p.a {within}{amounts(0)}",
        "queue root.p.z",
        *limits,
        *(f"node {node} f={size}" for node, size in world.nodes.items()),
    ]
    applications = {(task.application, task.here): task.user for task in world.tasks} | {("hot", True): "ann"}
    for (name, here), user in applications.items():
        lines.append(f"app {name if here else f'z{name}'} queue=root.p.{'a' if here else 'z'} user={user}")
    for number, task in enumerate(world.tasks):
        queue, name = ("root.p.a", task.application) if task.here else ("root.p.z", f"z{task.application}")
        lines.append(
            f"run {task.name} queue={queue} app={name} node={task.node} f={task.size} p={task.priority}"
            f" created={number + 1}s{' self=no' if task.opted_out else ''}"
        )
    return [*lines, f"ask k queue=root.p.a app=hot f={world.size} p={world.priority} other=yes"]


def play(world: World) -> tuple[str, frozenset[str]] | None:
    """Returns what the core does for the ask of *world*: the node, and who leaves; ``None``: nobody does."""
    stage = Stage()
    stage.play(lines_of(world))
    answers = stage.play(["cycle at=40s"])
    gone = frozenset(found[1] for line in answers if (found := re.match(r"release (\S+) PREEMPTED", line)))
    node = next((found[1] for line in answers if (found := re.match(r"reserve (\S+) for=k", line))), "")
    assert stage.state.law_violations == 0, answers
    return (node, gone) if gone else None


def has_room(world: World) -> bool:
    """Whether the ask can be placed as it is."""
    return any(not world.lacks(node, ()) for node in world.nodes) and all(
        most is None or world.held(level) + world.size <= most for level, (_, most) in enumerate(world.shares)
    )


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("worlds", [WORLDS, pytest.param(10_000, marks=pytest.mark.long)])
def test_every_plan_is_one_of_all_lawful_ones(worlds: int, limited: bool) -> None:
    """It also finds one nearly always where there is one: victims all run on the node if that lacks room."""
    rng, served, missed = random.Random(worlds), 0, 0
    for _ in range(worlds):
        world = make_world(rng, limited=limited)
        if has_room(world):
            continue
        found, plans = play(world), world.plans()
        if found is None:
            missed += bool(plans)
            continue
        served += 1
        assert found in plans, (world, found, plans)
    assert served > worlds / 20
    assert missed * 100 <= served, f"{missed} missed of {served + missed}"
