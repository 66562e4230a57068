"""Runs that enforce a max: plans that cannot be carried out. What happens meanwhile is in ``quota-runs.txt``."""

from __future__ import annotations

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.quota import drive
from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.quota.plan import QuotaPlan
from kornel.core.preemption.quota.run import run_of
from kornel.core.preemption.required_node import planner as required_node
from tests.scenarios.stage import Stage

DELAYED = "quota.preemption.delay=1"


@pytest.fixture
def stage() -> Stage:
    """Ten tasks of 10 under a max that has just come down to 50; the run begins with the next cycle."""
    made = Stage()
    made.play(["partition default quota=on", f"queue root.q max={{f=200}} {DELAYED}", "queue root.a guaranteed={f=20}"])
    made.play(["node n1 f=100", "app Q queue=root.q"])
    made.play([f"run k{number} app=Q node=n1 f=10" for number in range(10)])
    lower(made, 50)
    return made


def lower(stage: Stage, most: int) -> None:
    stage.play(["partition default quota=on", f"queue root.q max={{f={most}}} {DELAYED}"])
    stage.play(["queue root.a guaranteed={f=20}", "update-config"])


def begin(stage: Stage) -> None:
    """As far as who is to go has been worked out, and nobody has been told."""
    state = stage.state
    assert stage.play(["cycle once budget=1 at=1s"]) == ["no answer"]
    while (run := run_of(state)) is None or run.plan is None:
        assert stage.play(["cycle once budget=1"]) == ["no answer"]


def told(answers: list[str]) -> list[str]:
    return [line.split()[1] for line in answers if line.startswith("release") and "PREEMPTED" in line]


def test_nobody_preempts_for_a_guarantee_while_a_max_is_enforced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """H: the ask waits for the end of the run, and then claims what is leaving anyway."""
    stage.play(["ask k queue=root.a f=20 other=yes created=-100s"])
    begin(stage)
    assert stage.state.preemption_attempts == 1, "the run itself"
    monkeypatch.setattr(drive, "ENFORCEMENT_BUDGET", 0)
    assert stage.engine.preempt(10**9) == []
    answers = stage.play(["cycle", "cycle at=2s"])
    assert told(answers)[:5] == ["k0", "k1", "k2", "k3", "k4"]
    assert sum("enforce" in line for line in answers) == 1
    assert [line for line in answers if "for=k" in line] == ["reserve n1 for=k"]


def test_an_unlawful_batch_ends_the_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that breaks a law is our bug: nobody is told, it is counted and said."""
    state = stage.state

    def confirm(
        queue: object, ceilings: object, wanted: dict[int, int], victims: object, _: object, **_times: int
    ) -> QuotaPlan:
        everybody = tuple(state.requests[f"k{number}"] for number in range(10))
        return QuotaPlan(state.queues["root.q"], state.queues["root.q"].max, wanted, everybody, {}, Outcome.FULL)

    monkeypatch.setattr(quota, "confirm_batch", confirm)
    effects = stage.engine.cycle(10**9, 1000).effects
    assert [getattr(effect, "outcome", None) for effect in effects] == [Outcome.LAW_BROKEN]
    assert state.law_violations > 0
    assert not any(request.preempted for request in state.requests.values())
    assert state.enforcement.run is None
    assert not state.enforcement.armed


def test_a_victim_released_meanwhile_is_no_victim_of_a_required_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told; the next pass chooses again (C, races)."""
    stage = Stage()
    stage.play(["node n1 f=10", "node n2 f=10", "app A", "run v1 app=A node=n1 f=5", "run v2 app=A node=n1 f=5"])
    stage.play(["ask d app=A f=5 required=n1"])
    state = stage.state
    plan = required_node.plan_preemption

    def planned(view: PartitionView, ask: Allocation, node: Node) -> PreemptionPlan:
        made = plan(view, ask, node)
        assert isinstance(made, PreemptionPlan)
        made.victims[0].place = AskPlace.RELEASED
        return made

    monkeypatch.setattr(required_node, "plan_preemption", planned)
    assert stage.play(["cycle"]) == [f"refuse d {Outcome.VICTIM_RELEASED}"]
    assert not state.requests["d"].triggered
    monkeypatch.undo()
    stage.play(["foreign x node=n2 f=1", "resize n1 f=11"])
    assert told(stage.play(["cycle"])) == ["v2"]
