"""The laws of preemption by hand judge plans that no planner would make (preemption.md N)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kornel.core.domain.commands import PreemptByHand, PreemptTarget, Waivable
from kornel.core.domain.reasons import Outcome
from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import sum_amounts
from kornel.core.preemption.quota.by_hand import laws
from kornel.core.preemption.quota.by_hand.plan import HandPlan
from kornel.core.preemption.quota.plan import QuotaPlan
from tests.scenarios.language import RM
from tests.scenarios.stage import Stage

SCENE = (
    "queue root.p parent",
    "queue root.p.a guaranteed={f=2} preemption.min-runtime=10m",
    "queue root.b",
    "node n1 f=100",
    "app g queue=root.b style=Hard",
    "at=1s run old queue=root.p.a node=n1 f=2",
    "run other queue=root.b node=n1 f=2",
    "run bound queue=root.b node=n1 f=2 required=n1",
    "run m1 app=g node=n1 f=1 group=w",
    "run m2 app=g node=n1 f=1 group=w",
    "at=1000s run young queue=root.p.a node=n1 f=2",
)


def plan_for(stage: Stage, target: PreemptTarget, name: str, keys: Sequence[str]) -> HandPlan:
    """The plan that asks the tasks with these *keys* to leave, and no others, as far as its numbers go."""
    state = stage.state
    victims = tuple(state.requests[key] for key in keys)
    wanted = sum_amounts(victims)
    root = state.root
    ceilings = {t: root.used[t] - amount for t, amount in wanted.items()}
    order = PreemptByHand(RM, state.name, target, name)
    return HandPlan(order, frozenset(), QuotaPlan(root, ceilings, wanted, victims, {}, Outcome.FULL))


@pytest.mark.parametrize(
    ("target", "name", "keys", "law", "waives"),
    [
        (PreemptTarget.APPLICATION, "p.a", ["old", "young"], Law.RUN_TIME, Waivable.RUN_TIME),
        (PreemptTarget.APPLICATION, "p.a", ["old", "young"], Law.GUARANTEE_KEPT, Waivable.GUARANTEE),
        (PreemptTarget.ALLOCATION, "m1", ["m1"], Law.GANG_WHOLE, Waivable.GANG),
        (PreemptTarget.ALLOCATION, "bound", ["bound"], Law.ELIGIBLE, Waivable.REQUIRED_NODE),
        (PreemptTarget.ALLOCATION, "old", ["other"], Law.ELIGIBLE, None),
        (PreemptTarget.APPLICATION, "b", ["old"], Law.ELIGIBLE, None),
        (PreemptTarget.NODE, "n1", ["other"], Law.ELIGIBLE, None),
    ],
)
def test_a_broken_law_is_named(
    target: PreemptTarget, name: str, keys: list[str], law: Law, waives: Waivable | None
) -> None:
    """And by no other waiver than its own is it kept quiet; the node n1 takes new work."""
    stage = Stage()
    stage.play(SCENE)
    plan = plan_for(stage, target, name, keys)
    assert law in {found.law for found in laws.check(stage.state, plan)}
    others = replace(plan, waived=frozenset(Waivable) - {waives})
    assert {found.law for found in laws.check(stage.state, others)} == {law}
    if waives is not None:
        only = replace(plan, waived=frozenset({waives}))
        assert law not in {found.law for found in laws.check(stage.state, only)}


def test_need_is_a_law_of_amounts() -> None:
    """Two of 2 for an amount of 2 is one too many, unless need is waived."""
    stage = Stage()
    stage.play(SCENE)
    plan = plan_for(stage, PreemptTarget.QUEUE, "root.b", ["other", "bound"])
    (t,) = plan.enforced.target
    target, ceilings = {t: 2}, {t: stage.state.root.used[t] - 2}
    plan = replace(
        plan,
        waived=frozenset({Waivable.REQUIRED_NODE}),
        enforced=replace(plan.enforced, target=target, ceilings=ceilings),
    )
    assert {Law.MINIMAL} <= {found.law for found in laws.check(stage.state, plan)}
    assert not laws.check(stage.state, replace(plan, waived=plan.waived | {Waivable.NEED}))
