"""The monitor asks the shim before it gives notice, and again before it takes anybody (preemption.md E.6; issue 30, row
12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    PredicatesAnswer,
    PreemptionPredicatesAnswer,
    UpdateConfiguration,
)
from kornel.core.domain.effects import Effect, PredicatesAsked, PreemptionPredicatesAsked
from tests.examples import mark_rest_long
from tests.scenarios.preemption.monitor_stage import (
    AT_ONCE,
    ONE,
    Stage,
    guaranteed,
    killed,
    notices,
    patient,
    placed,
    withdrawn,
)

NODES: Final = tuple(f"n{number}" for number in range(4))
Judge = Callable[[str, float], bool]
"""Tells whether an ask may run on a node at a time."""


class Answering(Stage):
    """A stage whose shim answers at once what *may_run* says, or nothing while that is ``None``."""

    may_run: Judge | None = None
    asked: int = 0

    def run_to(self, now_s: float, budget: int = 250) -> list[Effect]:
        found = super().run_to(now_s, budget)
        new: Sequence[Effect] = found
        while self.may_run is not None and (answers := self._answer(new)) is not None:
            new = [*self.apply(answers), *super().run_to(now_s, budget)]
            found += new
        return found

    def _answer(self, effects: Sequence[Effect]) -> AnswerCallbacks | None:
        nodes, victims = [], []
        assert self.may_run is not None
        for effect in effects:
            if isinstance(effect, PredicatesAsked):
                refused = tuple((node, "no") for node in effect.node_ids if not self.may_run(node, self.now_s))
                nodes.append(PredicatesAnswer(effect.question, refused))
            elif isinstance(effect, PreemptionPredicatesAsked):
                passed = self.may_run(effect.node_id, self.now_s)
                victims.append(PreemptionPredicatesAnswer(effect.question, passed, effect.start_index))
        self.asked += len(nodes) + len(victims)
        return AnswerCallbacks("rm", tuple(nodes), tuple(victims)) if nodes or victims else None


def two_queues(may_run: Judge | None, **subscribed: bool) -> Answering:
    """a holds four nodes of 5, and is owed half of them; b waits for the other half."""
    stage = Answering(patient(guaranteed(a=10, b=10)), **AT_ONCE)
    for name in NODES:
        stage.node(name, {"f": 5})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for name in NODES:
        stage.submit("app-a", [f"{name}-{number}" for number in range(5)], ONE, node_id=name)
    stage.may_run = may_run
    stage.apply(AttachCallbacks("rm", preemption_notices=True, **subscribed))
    stage.submit("app-b", [f"b{number}" for number in range(10)], ONE)
    return stage


def play(stage: Answering, seconds: int) -> list[Effect]:
    """What comes of *seconds*, victims leaving at once."""
    found: list[Effect] = []
    for second in range(1, seconds + 1):
        effects = stage.run_to(second)
        stage.confirm(effects)
        found += effects
    return found


SUBSCRIPTIONS: Final[list[dict[str, bool]]] = [
    {"predicates": True, "preemption_predicates": True},
    {"predicates": True},
    {"preemption_predicates": True},
]


@pytest.mark.parametrize("subscribed", mark_rest_long(SUBSCRIPTIONS))
def test_nobody_goes_for_asks_that_the_shim_refuses_everywhere(subscribed: dict[str, bool]) -> None:
    stage = two_queues(lambda _node, _now: False, **subscribed)
    found = play(stage, 1_200)
    assert killed(found) == placed(found) == notices(found) == []
    # Each ask is asked about once on each node in ten minutes, not in each round.
    assert stage.asked <= 10 * len(NODES) * 3


@pytest.mark.parametrize("subscribed", SUBSCRIPTIONS)
def test_those_of_the_node_that_the_shim_allows_go(subscribed: dict[str, bool]) -> None:
    stage = two_queues(lambda node, _now: node == "n3", **subscribed)
    found = play(stage, 120)
    assert sorted(killed(found)) == [f"n3-{number}" for number in range(5)]
    assert len(placed(found)) == 5
    assert all(key.startswith("n3") for notice in notices(found) for key in notice.at_risk)


@pytest.mark.parametrize("subscribed", mark_rest_long(SUBSCRIPTIONS))
def test_a_no_at_the_kill_withdraws_the_notices(subscribed: dict[str, bool]) -> None:
    """Notice at 5 s, due at 15 s, when the shim has changed its mind."""
    stage = two_queues(lambda _node, now: now < 15, **subscribed)
    found = play(stage, 14)
    told = [key for notice in notices(found) for key in notice.at_risk]
    assert len(told) == 10
    found = play(stage, 600)
    assert sorted(withdrawn(found)) == sorted(told)
    assert killed(found) == []


@pytest.mark.parametrize("subscribed", mark_rest_long(SUBSCRIPTIONS))
def test_nobody_goes_while_the_shim_does_not_answer(subscribed: dict[str, bool]) -> None:
    stage = two_queues(None, **subscribed)
    assert killed(play(stage, 120)) == []
    stage.may_run = lambda _node, _now: True
    found: list[Effect] = []
    for second in range(121, 300):
        effects = stage.run_to(second)
        stage.confirm(effects)
        found += effects
    assert len(killed(found)) == 10


@pytest.mark.parametrize("change", ["detach", "off", "other"])
def test_a_round_that_waits_for_the_shim_ends_with_the_shim_or_the_settings(change: str) -> None:
    stage = two_queues(None, preemption_predicates=True)
    stage.run_to(5.5)
    if change == "detach":
        stage.apply(AttachCallbacks("rm", preemption_notices=True))
    else:
        settings: dict[str, Any] = {"enabled": False} if change == "off" else {**AT_ONCE, "dead_zone": 0}
        stage.apply(UpdateConfiguration("rm", stage.configuration(**settings)))
    stage.may_run = lambda _node, _now: True
    found: list[Effect] = []
    for second in range(6, 60):
        effects = stage.run_to(second)
        stage.confirm(effects)
        found += effects
    assert len(killed(found)) == (0 if change == "off" else 10)
    assert stage.state.notices.consultation is None
