"""A plan for a gang has a number, which everything that is told of it names: decisions, events, messages, explain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kornel.core.domain.effects import Effect, EventRecorded, PreemptionDecided, Released
from kornel.core.domain.reasons import Outcome
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.encoding.kornel_v1 import encode_decision
from kornel.core.telling.explain import Named
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"
TWO_GANGS = (
    *(f"queue root.{name} guaranteed={{vcore=4000}} preemption.delay=1s" for name in "ab"),
    "queue root.v",
    "attach events",
    *(f"node n{n} vcore=2000 memory=10" for n in range(1, 6)),
    *(f"run v{n} queue=root.v node=n{n} vcore=2000 memory=0" for n in range(1, 6)),
    *(f"app {name} queue=root.{name} gang={{vcore=4000}} timeout=600s style=Hard" for name in "ab"),
    *(f"ask {name}{n} app={name} placeholder group=g vcore=2000 memory=0 other=yes" for name in "ab" for n in (1, 2)),
)


class Listener(Stage):
    """A stage that keeps the effects themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Effect] = []

    def _describe(self, decided: Sequence[Effect]) -> list[str]:
        self.heard += decided
        return super()._describe(decided)

    def decisions(self) -> list[PreemptionDecided]:
        """The decisions since the last call."""
        found = [effect for effect in self.heard if isinstance(effect, PreemptionDecided)]
        self.heard.clear()
        return found


@pytest.fixture
def stage() -> Listener:
    made = Listener()
    made.play([*TWO_GANGS, "cycle at=2s"])
    return made


def place_of(stage: Listener, key: str) -> str:
    state = stage.state
    reservation = state.requests[key].reservation
    assert reservation is not None
    return reservation.node.node_id


def plans_of(decisions: list[PreemptionDecided]) -> dict[str, tuple[str, int]]:
    return {each.key: (str(each.outcome), each.gang_plan) for each in decisions}


def test_each_plan_has_the_next_number_and_all_its_decisions_name_it(stage: Listener) -> None:
    heard = list(stage.heard)
    decided = stage.decisions()
    assert plans_of(decided) == {
        "a1": ("TRIGGERED", 1),
        "a2": ("TRIGGERED", 1),
        "b1": ("TRIGGERED", 2),
        "b2": ("TRIGGERED", 2),
    }
    assert decided[0].detail == "plan 1: 2 members of a gang get places"
    assert encode_decision(decided[2], id=7, next_event_id=8).gang_plan == 2
    told = [effect.message for effect in heard if isinstance(effect, Released)]
    assert told[0] == "preempted for ask a1, one of a gang, of application a (plan 1)"
    events = [e.message for e in heard if isinstance(e, EventRecorded) and e.message.startswith("Preempted")]
    assert events[-1] == "Preempted for request b2 of application b in queue root.b (plan 2 for a gang)"


def test_a_plan_keeps_its_number_when_it_gets_other_places_and_when_it_is_called_off(stage: Listener) -> None:
    stage.decisions()
    stage.play([f"decommission {place_of(stage, 'b1')}", "cycle at=3s"])
    (mended,) = stage.decisions()
    assert (mended.key, mended.outcome, mended.gang_plan) == ("b1", Outcome.TRIGGERED, 2)
    assert mended.detail == "plan 2: 1 member of a gang get other places"
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named("b1"))
    assert isinstance(report, AskReport)
    assert report.preemption is not None
    assert report.preemption.detail == (
        "2 victims are still to leave, for 2 members of its gang that hold their places by plan 2"
    )
    nodes = [place_of(stage, key) for key in ("b1", "b2")]
    stage.play([*(f"decommission {node}" for node in nodes), "cycle at=4s"])
    (ended,) = [each for each in stage.decisions() if each.outcome is Outcome.UNIT_CALLED_OFF]
    assert ended.gang_plan == 2
    removed = "; ".join(f"node {node} was removed" for node in nodes)
    assert ended.detail.startswith(f"plan 2: {removed}; no other place for ")


def test_a_decision_for_a_single_ask_has_none() -> None:
    stage = Listener()
    stage.play(
        [
            "queue root.a guaranteed={vcore=4000} preemption.delay=1s", "queue root.v", "node n1 vcore=2000 memory=10",
            "run v1 queue=root.v node=n1 vcore=2000 memory=0", "ask k queue=root.a vcore=2000 memory=0 other=yes",
            "cycle at=2s",
        ]
    )  # fmt: skip
    (decided,) = stage.decisions()
    assert (decided.outcome, decided.gang_plan) == (Outcome.TRIGGERED, 0)
    assert not encode_decision(decided, id=1, next_event_id=1).HasField("gang_plan")
