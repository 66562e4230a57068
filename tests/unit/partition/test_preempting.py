"""What the partition does with a plan that cannot be carried out, however it came about (preemption.md B.7)."""

from __future__ import annotations

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.state.partition_state import PartitionState
from tests.scenarios.stage import Stage

ARRANGED = [
    "queue root.v",
    "queue root.a guaranteed={f=10}",
    "node n1 f=10",
    "run v1 queue=root.v node=n1 f=5",
    "run v2 queue=root.v node=n1 f=5",
    "ask k queue=root.a f=10 other=yes",
]


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.play(ARRANGED)
    return made


def plan_of(state: PartitionState, *victims: str, ask: str = "k") -> PreemptionPlan:
    requests = state.requests
    return PreemptionPlan(
        "guarantee", requests[ask], state.nodes["n1"], tuple(requests[key] for key in victims), state.root
    )


def test_j_b51_a_victim_released_meanwhile_ends_the_attempt(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is marked, nothing is sent, and the ask has not triggered (VICTIM_RELEASED)."""
    state = stage.state

    def plan(view: PartitionState, _ask: Allocation, **_: object) -> PreemptionPlan:
        view.requests["v1"].place = AskPlace.RELEASED
        return plan_of(view, "v1", "v2")

    monkeypatch.setattr(guarantee, "plan_preemption", plan)
    assert stage.play(["cycle at=30s"]) == [f"refuse k {Outcome.VICTIM_RELEASED}"]
    assert not state.requests["v2"].preempted
    assert not state.requests["k"].triggered
    assert state.preemptions == 0


def test_an_unlawful_plan_is_refused_and_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that breaks a law changes nothing; it is recorded as our bug (LAW_BROKEN)."""
    stage.play(["run own queue=root.a node=n1 f=1 p=9"])
    state = stage.state
    monkeypatch.setattr(guarantee, "plan_preemption", lambda view, ask, **_: plan_of(view, "own"))
    stage.engine.cycle(30 * 10**9, 100)
    assert state.requests["k"].outcome is Outcome.LAW_BROKEN
    assert state.law_violations > 0
    assert not state.requests["own"].preempted
    assert state.preemptions == 0
    assert not state.reservations


def test_a_failed_attempt_is_told_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outcome again is not another decision record, and nothing is searched again while nothing changes."""
    state = stage.state
    refusal = Refusal(Outcome.NO_NODE, "nothing")
    monkeypatch.setattr(guarantee, "plan_preemption", lambda view, ask, **_: refusal)
    assert stage.play(["cycle at=30s"]) == ["refuse k NO_NODE"]
    assert stage.play(["cycles until=60s every=1s"]) == ["no answer"]
    assert state.preemption_attempts == 1
    stage.play(["node n9 f=1", "cycles until=90s every=1s"])  # It is too small for the ask, whoever left.
    assert state.preemption_attempts == 1
    stage.play(["run v3 queue=root.v node=n1 f=1", "cycles until=100s every=1s"])
    assert state.preemption_attempts == 2
