"""Questions of the core are answered rightly, wrongly, late or never (protocol.md 13)."""

from __future__ import annotations

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    DetachCallbacks,
    PredicatesAnswer,
    PreemptionPredicatesAnswer,
)
from kornel.core.domain.effects import PredicatesAsked, PreemptionPredicatesAsked
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import rule
from tests.properties.machine.world import RM, SECOND, World


@rule(2)
def attach(world: World, dice: Dice) -> None:
    predicates, preemption, states, events = (not dice.one_in(3) for _ in range(4))
    timeout_ns = dice.pick((SECOND, 5 * SECOND, SECOND // 100))
    world.send(AttachCallbacks(RM, predicates, preemption, states, events, timeout_ns))


@rule(1)
def detach(world: World, _: Dice) -> None:
    world.send(DetachCallbacks(RM))


@rule(20)
def answer(world: World, dice: Dice) -> None:
    """Some of the open questions, in any order; those never picked are never answered."""
    questions = list(world.contract.questions.items())
    predicates: list[PredicatesAnswer] = []
    preemption: list[PreemptionPredicatesAnswer] = []
    for _ in range(1 + dice.below(4)):
        if not questions:
            break
        number, asked = questions.pop(dice.below(len(questions)))
        if isinstance(asked, PredicatesAsked):
            refused = tuple((node, "taint") for node in asked.node_ids if dice.one_in(3))
            predicates.append(PredicatesAnswer(number, refused))
        elif isinstance(asked, PreemptionPredicatesAsked):
            last = asked.start_index + dice.below(3)
            preemption.append(PreemptionPredicatesAnswer(number, not dice.one_in(3), last))
    world.send(AnswerCallbacks(RM, tuple(predicates), tuple(preemption)))


@rule(2)
def answer_wrongly(world: World, dice: Dice) -> None:
    """Unknown questions, unknown nodes, indexes out of range, and answers of the other kind."""
    number = dice.pick((*world.contract.questions, 0, 10**9))
    last = dice.pick((-1, 10**6, -7))
    world.send(
        AnswerCallbacks(
            RM,
            (PredicatesAnswer(number, (("nowhere", "unknown"), ("", ""))),) if dice.one_in(2) else (),
            (PreemptionPredicatesAnswer(number, success=not dice.one_in(2), last=last),) if dice.one_in(2) else (),
        )
    )
