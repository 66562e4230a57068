"""Asks the shim about victims, with as many questions as a plan needs (preemption.md B.6).

A plan is made without waiting, but answers take time. So the planner is run again when the answers are there: a
:class:`Dialogue` remembers the answers about its ask, and the planner stops at a question that is still open. Up to ten
nodes are asked about at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.callbacks import Inquiry
from kornel.core.model.nodes import Node
from kornel.core.preemption.plan import AnswerPending
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import inquiries, pausing
from kornel.core.state.waiting.places import offer_attempt

MOST_ROUNDS: Final = 32
"""The most times that one attempt may ask the shim again before it is given up."""

_Question = tuple[str, tuple[str, ...], int]
"""The ID of a node, the keys of the victims in order, and the start index."""


class Dialogue:
    """A predicate for the planner. A call returns a known answer or raises :class:`AnswerPending`."""

    __slots__ = ("_answers", "_ask", "_now_ns", "_open", "_refused", "_state", "rounds")

    def __init__(self, state: PartitionState, ask: Allocation) -> None:
        self._state = state
        self._ask = ask
        self._answers: dict[_Question, int | None] = {}
        self._open: dict[_Question, Inquiry] = {}
        self._refused: dict[str, str] = {}
        """The nodes of which no question was answered with yes, each with the reason."""
        self._now_ns = 0
        self.rounds = 0

    @property
    def waits(self) -> bool:
        """Tells whether an answer is still to come."""
        return bool(self._open)

    def begin_round(self, now_ns: int) -> None:
        """Begins another run of the planner, at *now_ns*, with the answers received so far."""
        self._now_ns = now_ns
        self.rounds += 1

    def __call__(self, ask: Allocation, node: Node, victims: tuple[Allocation, ...], start: int) -> int | None:
        callbacks = self._state.callbacks
        if not (callbacks.preemption_predicates if victims else callbacks.predicates):
            return start
        question = (node.node_id, tuple([victim.spec.key for victim in victims]), start)
        if question in self._answers:
            return self._answers[question]
        if question not in self._open:
            self._open[question] = self._put(question)
        raise AnswerPending

    def _put(self, question: _Question) -> Inquiry:
        node_id, victims, start = question
        drop = partial(_drop_questions, self)
        if victims:
            decide_victims = partial(_decide_victims, self, question)
            return inquiries.ask_preemption(
                self._state, self._ask, node_id, victims, start, decide_victims, drop, self._now_ns
            )
        decide = partial(_decide_node, self, question)
        number = self._state.callbacks.next_number()
        # Where an ask must run, it is asked about without victims only if somebody would have to leave.
        allocate = not self._ask.spec.required_node
        return inquiries.ask_predicates(
            self._state, self._ask, (node_id,), decide, drop, self._now_ns, number=number, allocate=allocate
        )

    def note_answer(self, question: _Question, answer: int | None, reason: str = "") -> None:
        """Notes the shim's *answer* to *question*, ``None`` for a *reason*. After the last open answer, the ask may try
        again."""
        self._answers[question] = answer
        del self._open[question]
        # A plan that was approved is asked about once more without each victim; a no then is none to the node.
        node_id = question[0]
        if any(passed is not None for (other, _, _), passed in self._answers.items() if other == node_id):
            self._refused.pop(node_id, None)
        else:
            self._refused[node_id] = reason
        if not self._open:
            self._resume_planner()

    def leave_out_refused(self, now_ns: int, chosen: Node | None = None) -> None:
        """Leaves the nodes that the shim has refused out for the ask from now on, but for the one that was *chosen*: it
        was refused with other victims, and allowed with those of the plan."""
        if chosen is not None:
            self._refused.pop(chosen.node_id, None)
        pausing.leave_out(self._state, self._ask, tuple(self._refused), self._refused, now_ns, logged=False)

    def forget_refusals(self) -> None:
        """Forgets which nodes were refused, because another shim answers from now on, or none."""
        self._refused.clear()

    def drop_questions(self) -> None:
        """Stops waiting for answers that will never arrive. The ask tries again, and everything that was not answered
        is allowed."""
        self._open.clear()
        self._resume_planner()

    def _resume_planner(self) -> None:
        ask = self._ask
        if ask.dialogue is self:
            offer_attempt(self._state, ask)


def _decide_victims(dialogue: Dialogue, question: _Question, last: int | None, _now_ns: int) -> None:
    _, victims, start = question
    passed = last is not None and start <= last < len(victims)
    dialogue.note_answer(question, last if passed else None, inquiries.describe_refusal(last))


def _decide_node(dialogue: Dialogue, question: _Question, refused: Mapping[str, str], _now_ns: int) -> None:
    node_id, _, start = question
    dialogue.note_answer(question, None if node_id in refused else start, refused.get(node_id, ""))


def _drop_questions(dialogue: Dialogue) -> None:
    dialogue.drop_questions()
