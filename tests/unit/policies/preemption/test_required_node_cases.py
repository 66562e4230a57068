"""The worked cases of required-node preemption (preemption.md J.2), put to the planner on bare model records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.preemption import judging as laws
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.required_node import planner as required_node
from tests.preemption_notation import Case, parse
from tests.unit.policies.preemption.world import World

CASES_FILE = Path(__file__).parents[3] / "scenarios" / "preemption" / "required_node.cases"


@pytest.mark.parametrize("case", parse(CASES_FILE.read_text(encoding="utf-8")), ids=lambda case: case.name)
def test_case(case: Case) -> None:
    """Victims or refusal are those of the worked case, and every plan is lawful."""
    world = World.of(case)
    (step,) = case.steps
    result = required_node.plan_preemption(world, world.ask(step.ask), world.nodes["n1"])
    if isinstance(result, PreemptionPlan):
        assert {victim.key for victim in result.victims} == set(step.expected.victims)
        assert laws.check(world, result) == ()
    else:
        assert not step.expected.victims, result.detail
        assert result.outcome == step.expected.reason


def test_the_refusal_counts_who_is_protected_and_why() -> None:
    """J-R4: all ten are more important than the ask."""
    case = next(case for case in parse(CASES_FILE.read_text(encoding="utf-8")) if case.name == "J-R4")
    world = World.of(case)
    result = required_node.plan_preemption(world, world.ask(case.steps[0].ask), world.nodes["n1"])
    assert not isinstance(result, PreemptionPlan)
    assert result.detail == "n1 lacks f=5; protected: 10 of higher priority"
