"""The worked cases for required nodes and lowered maxima (preemption.md J.2, J.3), played through the whole engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Effect, PreemptionDecided, Released
from kornel.core.state.books import audit
from kornel.shared.readable_amounts import format_quantities
from tests.preemption_notation import Case, parse
from tests.scenarios.preemption.test_worked_cases import NOW_NS, SECOND_NS, Stage, configuration

HERE: Final = Path(__file__).parent
REQUIRED: Final = parse(HERE.joinpath("required_node.cases").read_text(encoding="utf-8"))
QUOTA: Final = parse(HERE.joinpath("quota.cases").read_text(encoding="utf-8"))
TOO_LARGE: Final = frozenset({"J-R5", "J-R8-more"})
"""The node could never hold the ask, so it is not even kept."""
NOT_VALID: Final = frozenset({"J-Q25"})
"""No configuration that the loader takes: for the planner alone."""


@pytest.mark.parametrize("case", REQUIRED, ids=lambda case: case.name)
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_required_node(case: Case, restarts: bool) -> None:
    """Victims or refusal are those of the worked case; the node is kept either way; books and laws hold."""
    stage = Stage(case)
    stage.restarts = restarts
    (step,) = case.steps
    if case.name in TOO_LARGE:
        stage.tell(step.ask)
        assert not decided(stage, NOW_NS, 10)
        assert stage.state.preemption_attempts == 0
        return
    got = stage.decide(step.ask)
    assert got.victims == step.expected.victims
    assert got.reason == step.expected.reason
    assert list(stage.state.nodes["n1"].reservations) == [step.ask.key]
    assert audit.check(stage.state) == []
    assert stage.state.law_violations == 0


@pytest.mark.parametrize("case", [case for case in QUOTA if case.name not in NOT_VALID], ids=lambda case: case.name)
@pytest.mark.parametrize(("budget", "restarts"), [(1, False), (1000, False), (1000, True)])
def test_quota(case: Case, budget: int, restarts: bool) -> None:
    """Victims and outcome are those of the worked case when the max is lowered under running tasks."""
    assert case.enforced is not None
    before = {queue.path: queue.maximum for queue in case.before}
    changed = {case.enforced.queue: {}, **before}
    queues = tuple(replace(queue, maximum=changed.get(queue.path, queue.maximum)) for queue in case.queues)
    stage = Stage(replace(case, queues=queues), configure=lambda given: enforced(given, case))
    stage.restarts = restarts
    stage.engine.apply(UpdateConfiguration("rm", enforced(case, case)), NOW_NS)
    assert not decided(stage, NOW_NS, budget)
    effects = decided(stage, NOW_NS + SECOND_NS, budget)
    (decision,) = [effect for effect in effects if isinstance(effect, PreemptionDecided)]
    assert (decision.kind, decision.queue) == ("quota", f"root.{case.enforced.queue}")
    victims = [victim.key for victim in decision.victims]
    assert set(victims) == set(case.enforced.victims)
    assert victims == [effect.key for effect in effects if isinstance(effect, Released)]
    assert decision.outcome == case.enforced.outcome
    assert f"unmet {format_quantities(case.enforced.unmet)}" in decision.detail
    assert audit.check(stage.state) == []
    assert stage.state.law_violations == 0
    assert not decided(stage, NOW_NS + 100 * SECOND_NS, budget), "a run is not repeated"


def decided(stage: Stage, now_ns: int, budget: int) -> list[Effect]:
    """What the engine decides at *now_ns* in slices of *budget*."""
    stage.now_ns = now_ns
    return stage.cycle(budget)


def enforced(given: Case, case: Case) -> str:
    """The configuration of *given* that enforces what *case* says, after a second."""
    assert case.enforced is not None
    document: dict[str, Any] = yaml.safe_load(configuration(given))
    partition = document["partitions"][0]
    partition["preemption"] = {"quotapreemptionenabled": True}
    entry = partition["queues"][0]
    for name in case.enforced.queue.split("."):
        entry = next(child for child in entry["queues"] if child["name"] == name)
    entry.setdefault("properties", {}).update(
        {"quota.preemption.delay": "1", "quota.preemption.miss": str(case.enforced.miss)}
    )
    return yaml.safe_dump(document)
