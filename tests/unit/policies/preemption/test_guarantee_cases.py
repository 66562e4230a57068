"""The worked cases that no engine can be brought to, put to the planner on bare model records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.plan import PreemptionPlan
from tests import judged_plans as laws
from tests.preemption_notation import Case, parse
from tests.scenarios.preemption.test_worked_cases import NOT_THROUGH_THE_ENGINE
from tests.unit.policies.preemption.world import NOW_NS, World

CASES_FILE = Path(__file__).parents[3] / "scenarios" / "preemption" / "guarantee.cases"
CASES = [case for case in parse(CASES_FILE.read_text(encoding="utf-8")) if case.name in NOT_THROUGH_THE_ENGINE]


class RecordingPredicate:
    """Passes once all of *wanted* are gone; remembers what it was asked."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted
        self.calls: list[tuple[tuple[str, ...], int]] = []

    def __call__(self, ask: Allocation, node: Node, victims: tuple[Allocation, ...], start: int) -> int | None:
        keys = tuple(victim.key for victim in victims)
        self.calls.append((keys, start))
        for index in range(start, len(keys)):
            if self.wanted <= set(keys[: index + 1]):
                return index
        return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    """Node, victims or refusal are those of the worked case, and every plan is lawful."""
    world = World.of(case)
    for step in case.steps:
        ask = world.ask(step.ask)
        predicate = RecordingPredicate(case.predicate) if case.predicate else None
        result = guarantee.plan_preemption(world, ask, predicate=predicate, now_ns=NOW_NS)
        if step.call is not None:
            assert predicate is not None
            assert predicate.calls[0] == step.call
        if isinstance(result, PreemptionPlan):
            assert result.node.node_id == step.expected.node
            assert {victim.key for victim in result.victims} == set(step.expected.victims)
            assert laws.check(world, result) == ()
            world.apply(result)
        else:
            assert step.expected.node == "", f"{result.outcome}: {result.detail}"
            assert step.expected.reason in ("", result.outcome)
            assert result.detail
