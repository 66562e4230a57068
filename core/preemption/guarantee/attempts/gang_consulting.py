"""Asks the shim about a gang that is to preempt: about all members at once, before any victim leaves (preemption.md
B.11)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.callbacks import Inquiry
from kornel.core.model.gang_units import UnitId
from kornel.core.preemption.consulting import MOST_ROUNDS
from kornel.core.preemption.plan import GangPlan, Refusal
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import inquiries, pausing
from kornel.core.state.waiting.places import offer_attempt
from kornel.shared.readable_amounts import format_count, name_some

_Question = tuple[str, str, tuple[str, ...]]
"""The key of a member, the ID of a node, and the keys of the victims on that node."""


class GangDialogue:
    """The answers of the shim so far about the members of the gang *unit_id*."""

    __slots__ = ("_open", "_passed", "_rounds", "_state", "_unit_id")

    def __init__(self, state: PartitionState, unit_id: UnitId) -> None:
        self._state: Final = state
        self._unit_id: Final = unit_id
        self._passed: dict[_Question, bool] = {}
        self._open: dict[_Question, Inquiry] = {}
        self._rounds = 0

    @property
    def waits(self) -> bool:
        """Tells whether an answer is still to come."""
        return bool(self._open)

    def describe_refused(self) -> str:
        """Returns whom the shim has refused where, for the reader of an explanation; an empty text: nobody."""
        nodes: dict[str, list[str]] = {}
        for (key, node_id, _), passed in self._passed.items():
            if not passed and node_id not in nodes.setdefault(key, []):
                nodes[key].append(node_id)
        if not nodes:
            return ""
        key, there = next(iter(nodes.items()))
        others = f", and {format_count(len(nodes) - 1, 'other member')}" if len(nodes) > 1 else ""
        return f"the shim refuses {key} on {name_some(there)}{others}"

    def ask_about(self, plan: GangPlan, now_ns: int) -> Refusal | bool | None:
        """Asks about all members of *plan* at once, except those that the shim has approved already.

        Returns ``None`` if the shim has approved all of them, a refusal if there was no agreement in the permitted
        number of rounds, and True while answers are awaited or another plan is needed.
        """
        callbacks = self._state.callbacks
        questions: list[tuple[Allocation, _Question]] = []
        for place in plan.places:
            here = [victim for victim in plan.victims if victim.node is place.node]
            if callbacks.preemption_predicates if here else callbacks.predicates:
                keys = tuple(victim.spec.key for victim in here)
                questions.append((place.ask, (place.ask.key, place.node.node_id, keys)))
        if all(self._passed.get(question, False) for _, question in questions):
            return None
        if self._rounds >= MOST_ROUNDS:
            return Refusal(Outcome.PREDICATE_REFUSED, f"no agreement with the predicate in {MOST_ROUNDS} rounds")
        self._rounds += 1
        for ask, question in questions:
            if question not in self._passed:
                self._open[question] = self._put(ask, question, now_ns)
        return True

    def _put(self, ask: Allocation, question: _Question, now_ns: int) -> Inquiry:
        _, node_id, victims = question
        state, drop = self._state, partial(_allow_open_questions, self)
        if victims:
            note = partial(_note_last_victim, self, question)
            return inquiries.ask_preemption(state, ask, node_id, victims, len(victims) - 1, note, drop, now_ns)
        note_nodes = partial(_note_refused_nodes, self, question)
        number = state.callbacks.next_number()
        return inquiries.ask_predicates(state, ask, (node_id,), note_nodes, drop, now_ns, number=number, allocate=False)

    def note_answer(self, question: _Question, now_ns: int, *, reason: str = "") -> None:
        """Note whether the shim has approved the member of *question*, or refused it for a *reason*. After the last
        answer, the attempt continues."""
        key, node_id, _ = question
        self._passed[question] = not reason
        ask = self._state.requests.get(key)
        if reason and ask is not None:
            pausing.leave_out(self._state, ask, (node_id,), {node_id: reason}, now_ns, logged=False)
        self._open.pop(question, None)
        if not self._open:
            self._resume_attempt()

    def allow_open_questions(self) -> None:
        """Stop waiting for answers that will never arrive: the remaining questions count as approved."""
        for question in self._open:
            self._passed[question] = True
        if self._open:
            self._open.clear()
            self._resume_attempt()

    def _resume_attempt(self) -> None:
        """Make the attempt continue in the next slice."""
        unit_id = self._unit_id
        hold = self._state.gangs.holds.get(unit_id)
        if hold is not None and hold.by_age:
            offer_attempt(self._state, next(iter(hold.members)))
            return
        if hold is not None:
            self._state.gangs.broken[unit_id] = None
            return
        unit = unit_id.find_unit()
        if unit is not None and unit.size:
            offer_attempt(self._state, unit.first_ask())


def _note_last_victim(dialogue: GangDialogue, question: _Question, last: int | None, now_ns: int) -> None:
    """Notes the answer to *question*. If the shim wants further victims to leave, the member counts as refused."""
    passed = last is not None and 0 <= last < len(question[2])
    dialogue.note_answer(question, now_ns, reason="" if passed else inquiries.describe_refusal(last))


def _note_refused_nodes(dialogue: GangDialogue, question: _Question, refused: Mapping[str, str], now_ns: int) -> None:
    dialogue.note_answer(question, now_ns, reason=refused.get(question[1], ""))


def _allow_open_questions(dialogue: GangDialogue) -> None:
    dialogue.allow_open_questions()
