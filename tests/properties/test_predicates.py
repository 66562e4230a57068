"""A shim that has the last word: asked and agreeing it changes nothing, and whatever it says nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    AttachCallbacks,
    DetachCallbacks,
    PredicatesAnswer,
    PreemptionPredicatesAnswer,
)
from kornel.core.domain.effects import Allocated, Effect, PredicatesAsked, PreemptionPredicatesAsked
from kornel.core.engine.engine import Engine
from kornel.core.model.allocations import Allocation
from kornel.core.state.options import EngineOptions
from kornel.core.state.partition_state import PartitionState
from tests.examples import scale_examples
from tests.properties.shim import RM, SECOND, WIDTH, Operation, Shim, check_books, check_nothing_left, random_history

HISTORY = st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=80)


class AgreeingShim(Shim):
    """Says yes to everything, as soon as a slice is over. ``placed`` is what it was told, in order."""

    def __init__(self, variant: int, *, attached: bool, preemption: bool = False) -> None:
        self.placed: list[tuple[str, str]] = []
        self.questions: list[PredicatesAsked | PreemptionPredicatesAsked] = []
        self._plain = not preemption
        # What is reserved is freed a moment later when the shim is asked: that may well change what follows.
        engine = Engine(EngineOptions(reservation_delay_ns=None)) if self._plain else Engine()
        super().__init__(variant, preemption=preemption, engine=engine)
        if attached:
            self._send(AttachCallbacks(RM, predicates=True, preemption_predicates=True))

    def _hear(self, cause: str, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PredicatesAsked | PreemptionPredicatesAsked):
                self.questions.append(effect)
            elif isinstance(effect, Allocated):
                self.placed.append((effect.spec.key, effect.node_id))
        super()._hear(cause, effects)

    def _spec(self, key: str, application_id: str, numbers: list[int], node_id: str = "") -> AllocationSpec:
        spec = super()._spec(key, application_id, numbers, node_id)
        return spec._replace(required_node="") if self._plain else spec

    def settle(self) -> None:
        super().settle()
        while self.questions:
            self.answer()
            super().settle()

    def answer(self) -> None:
        asked, self.questions = self.questions, []
        for question in asked:
            if isinstance(question, PredicatesAsked):
                self._send(AnswerCallbacks(RM, (PredicatesAnswer(question.question),)))
            else:
                yes = PreemptionPredicatesAnswer(question.question, success=True, last=question.start_index)
                self._send(AnswerCallbacks(RM, preemption_predicates=(yes,)))


class MoodyShim(AgreeingShim):
    """Agrees, refuses, waits too long, answers twice, attaches and detaches."""

    def __init__(self, variant: int, seed: int) -> None:
        self._dice = random.Random(seed)
        super().__init__(variant, attached=True, preemption=True)

    def settle(self) -> None:
        Shim.settle(self)
        if self._dice.random() < 0.7:
            self.answer()
            Shim.settle(self)

    def answer(self) -> None:
        dice = self._dice
        if dice.random() < 0.03:
            self._send(DetachCallbacks(RM))
        if dice.random() < 0.2:
            on = dice.random() < 0.9
            self._send(AttachCallbacks(RM, predicates=on, preemption_predicates=dice.random() < 0.7, timeout_ns=SECOND))
        asked, self.questions = self.questions, []
        dice.shuffle(asked)
        for question in asked:
            for _ in range(dice.choice((0, 1, 1, 1, 1, 2))):
                if isinstance(question, PredicatesAsked):
                    refused = tuple((n, "no") for n in (*question.node_ids, "nowhere") if dice.random() < 0.4)
                    self._send(AnswerCallbacks(RM, (PredicatesAnswer(question.question, refused),)))
                else:
                    last = dice.randrange(-1, len(question.victims) + 1)
                    answer = PreemptionPredicatesAnswer(question.question, success=dice.random() < 0.7, last=last)
                    self._send(AnswerCallbacks(RM, preemption_predicates=(answer,)))


@settings(max_examples=scale_examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 23), HISTORY)
def test_a_shim_that_agrees_changes_no_decision(variant: int, history: list[Operation]) -> None:
    """Without preemption the same asks are placed on the same nodes in the same order as when nobody is asked."""
    alone, asked = (AgreeingShim(variant, attached=attached) for attached in (False, True))
    for operation in history:
        for shim in (alone, asked):
            shim.perform(operation)
            shim.settle()
            check_books(shim)
        assert asked.placed == alone.placed


@pytest.mark.long
def test_nothing_is_lost_whatever_the_shim_says() -> None:
    """Books stay sound; once everybody agrees again, nothing waits that has room."""
    for seed in range(30):
        shim = MoodyShim(seed, seed)
        for operation in random_history(seed + 500, 150):
            shim.perform(operation)
            shim.settle()
            check_books(shim)
        assert shim.state.law_violations == 0
        shim._send(DetachCallbacks(RM))
        Shim.settle(shim)
        check_books(shim)
        check_nothing_left(shim)
        assert not shim.state.held_count
        assert all(refusal.of_start for ask in _list_refused(shim.state) for refusal in (ask.refused or {}).values())


def _list_refused(state: PartitionState) -> list[Allocation]:
    """Returns the asks that wait because of nodes left out for them. A task that could not be started may be left out
    for a while whoever answers."""
    return [ask for rooms in state.refused.values() for room in rooms.values() for ask in room]
