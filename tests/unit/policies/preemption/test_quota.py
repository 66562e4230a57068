"""Enforcing a max, on bare model records: the worked cases of preemption.md J.3, and how parts are spread (D.8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.quota.shares import find_attainable, find_excess, leaf_shares
from tests import judged_plans as laws
from tests.examples import scale_examples
from tests.preemption_notation import Case, QueueCase, TaskCase, parse
from tests.scenarios.preemption.test_enforcement_cases import NOT_VALID
from tests.unit.policies.preemption.world import World

CASES_FILE = Path(__file__).parents[3] / "scenarios" / "preemption" / "quota.cases"
CASES = [
    case
    for case in parse(CASES_FILE.read_text(encoding="utf-8"))
    if case.name in NOT_VALID or (case.enforced is not None and case.enforced.shares is not None)
]
"""Those of which the engine shows less: how parts are spread, and what no configuration can say."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    """Target, parts, victims and outcome are those of the worked case, and the plan is lawful."""
    world = World.of(case)
    expected = case.enforced
    assert expected is not None
    queue = world.queues[expected.queue]
    result = quota.plan_enforcement(queue, expected.miss)
    names = world.types.to_resources
    if expected.target is not None:
        assert dict(names(result.target)) == expected.target
    if expected.shares is not None:
        shares = leaf_shares(queue, find_attainable(queue, find_excess(queue, queue.max)))
        assert {leaf.path.removeprefix("root."): dict(names(share)) for leaf, share in shares.items() if share} == (
            expected.shares
        )
    assert {victim.key for victim in result.victims} == set(expected.victims)
    assert (result.outcome, dict(names(result.unmet))) == (expected.outcome, expected.unmet)
    assert laws.check(world, result) == ()


TREE = ("p", "p.l1", "p.l1.l11", "p.l1.l11.l111", "p.l1.l12", "p.l2", "p.l2.l21", "p.l2.l21.l211", "p.l2.l22", "p.l3")
USED = {"p.l1.l11.l111": 30, "p.l1.l12": 20, "p.l2.l21.l211": 50, "p.l2.l22": 30, "p.l4": 10}


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [(100, (18, 9, 46, 27)), (200, (20, 10, 50, 30)), (50, (9, 5, 23, 13))],
)
def test_j_q24_parts_of_a_deep_tree(wanted: int, parts: tuple[int, ...]) -> None:
    """No leaf bears more than it holds above its guarantee; idle leaves and those at their guarantee bear nothing."""
    guaranteed = {path: {"f": 10} for path in ("p.l1", "p.l1.l11", "p.l1.l11.l111", "p.l1.l12", "p.l4")}
    world = World(["f"])
    world.node("n1", {"f": 1000})
    for path in (*TREE, "p.l4"):
        world.queue(QueueCase(path, guaranteed=guaranteed.get(path, {})))
    for path, used in USED.items():
        world.run(TaskCase(path, path, {"f": used}, "n1"))
    found = leaf_shares(world.queues["p"], {0: wanted})
    assert {leaf.path.removeprefix("root."): share[0] for leaf, share in found.items()} == dict(
        zip(("p.l1.l11.l111", "p.l1.l12", "p.l2.l21.l211", "p.l2.l22"), parts, strict=True)
    )


@settings(max_examples=scale_examples(200), deadline=None)
@given(st.integers(2, 5), st.integers(2, 6), st.integers(1, 9), st.integers(0, 200), st.booleans())
def test_equal_leaves_lose_alike(leaves: int, each: int, size: int, most: int, aged: bool) -> None:
    """Tasks of one size and rank, as many in each leaf: none loses two more than another, whatever the ages."""
    running = tuple(
        TaskCase(f"p.q{leaf}", f"v{leaf}{at}", {"f": size}, "n1", tick=leaf if aged else 0)
        for leaf in range(leaves)
        for at in range(each)
    )
    queues = (QueueCase("p", maximum={"f": most}), *(QueueCase(f"p.q{leaf}") for leaf in range(leaves)))
    world = World.of(Case("alike", queues, (("n1", {"f": 1000}),), running))
    plan = quota.plan_enforcement(world.queues["p"], 0)
    lost = [sum(victim.queue.name == f"q{leaf}" for victim in plan.victims) for leaf in range(leaves)]
    assert max(lost) - min(lost) <= 1


def test_nothing_to_do_within_the_max_only() -> None:
    """Usage at the max: no target. Usage above it that an ancestor is guaranteed: a target, and nobody goes."""
    world = World(["f"])
    world.node("n1", {"f": 100})
    world.queue(QueueCase("p", guaranteed={"f": 8}))
    leaf = world.queue(QueueCase("p.v", maximum={"f": 8}))
    world.run(TaskCase("p.v", "v1", {"f": 8}, "n1"))
    assert quota.plan_enforcement(leaf, 0).outcome == "NOTHING_TO_DO"
    leaf.set_limits({}, {0: 5})
    plan = quota.plan_enforcement(leaf, 0)
    assert (plan.outcome, plan.target, plan.victims, plan.unmet) == ("NONE", {0: 3}, (), {0: 3})
    (protection,) = plan.protected
    assert (protection.reason, protection.queue, protection.guaranteed, protection.held, protection.amount) == (
        "guarantee", world.queues["p"], 8, 8, 8
    )  # fmt: skip


def test_confirm_leaves_out_who_left_meanwhile_and_who_need_not_go_any_more() -> None:
    """Tasks that ended by themselves since the plan was made count as freed."""
    world = World(["f"])
    world.node("n1", {"f": 100})
    leaf = world.queue(QueueCase("v", maximum={"f": 4}))
    tasks = [world.run(TaskCase("v", f"v{at}", {"f": 2}, "n1")) for at in range(6)]
    made = quota.plan_enforcement(leaf, 0)
    assert list(made.victims) == tasks[:4]
    world.remove(tasks[0])
    world.remove(tasks[5])
    part = quota.confirm_batch(leaf, made.ceilings, dict(made.target), made.victims)
    assert list(part.victims) == tasks[1:3]
    assert laws.check(world, part) == ()
