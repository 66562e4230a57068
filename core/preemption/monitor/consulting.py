"""Asks the shim about the places of a round: before notice is given to the victims of a place, and again before they
are taken (preemption.md E.6).

The round waits for the answers, and other work goes on meanwhile. A place that the shim refuses is left out of the
round, and its node is left out for its ask from then on.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Final

from kornel.core.model.callbacks import Inquiry
from kornel.core.model.nodes import Node
from kornel.core.preemption.monitor.plan import Place, Selection
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import inquiries, pausing

QUESTIONS_A_PIECE: Final = 256


class Consultation:
    """The questions about places of the round under way that are open, and the places that the shim has refused."""

    __slots__ = ("_asked", "_state", "open", "refused")

    def __init__(self, state: PartitionState) -> None:
        self._state: Final = state
        self._asked = 0
        self.open: Final[dict[int, Inquiry]] = {}
        """The open questions, in their order in this round."""
        self.refused: Final[list[Place]] = []

    def call_off(self) -> None:
        """Drops the open questions, because the round is over."""
        for inquiry in self.open.values():
            inquiries.forget_inquiry(self._state, inquiry)
        self.open.clear()

    def ask_about(self, place: Place, now_ns: int) -> None:
        """Asks whether the ask of *place* would run there once the victims on its node have left or, if the shim
        answers no such questions, whether it might run there at all."""
        state = self._state
        ask, node_id = place.ask, place.node.node_id
        here = tuple(victim.spec.key for victim in place.victims if victim.node is place.node)
        number = self._asked
        self._asked += 1
        drop = partial(_allow_place, self, number)
        if here and state.callbacks.preemption_predicates:
            note = partial(_note_victims, self, place, len(here) - 1, number)
            inquiry = inquiries.ask_preemption(state, ask, node_id, here, len(here) - 1, note, drop, now_ns)
        elif state.callbacks.predicates:
            decide = partial(_note_nodes, self, place, number)
            inquiry = inquiries.ask_predicates(
                state, ask, (node_id,), decide, drop, now_ns, number=state.callbacks.next_number(), allocate=False
            )
        else:
            return
        self.open[number] = inquiry

    def note_answer(self, number: int, place: Place, reason: str, now_ns: int) -> None:
        """Notes that the shim allows *place* or, for a *reason*, refuses it."""
        if self.open.pop(number, None) is not None and reason:
            self.refused.append(place)
            node_id = place.node.node_id
            pausing.leave_out(self._state, place.ask, (node_id,), {node_id: reason}, now_ns, logged=False)


def is_waiting(state: PartitionState) -> bool:
    """Tells whether the round under way waits for answers of the shim."""
    consultation = state.notices.consultation
    return consultation is not None and bool(consultation.open)


def consult_shim(state: PartitionState, selection: Selection) -> Generator[int, None, None]:
    """Asks the shim about the places of *selection* whose victims are to get notice or to leave in this round, and
    takes the refused ones out."""
    callbacks, notices = state.callbacks, state.notices
    if not (callbacks.predicates or callbacks.preemption_predicates):
        return
    consultation = notices.consultation = Consultation(state)
    now_ns = notices.now_ns
    questions = [place for place in selection.places if place.victims and _is_at_turn(state, place, now_ns)]
    for asked, place in enumerate(questions, 1):
        consultation.ask_about(place, notices.now_ns)
        # The generator goes on when all questions so far have their answers.
        if asked % QUESTIONS_A_PIECE == 0 or callbacks.full or asked == len(questions):
            yield QUESTIONS_A_PIECE
    notices.consultation = None
    selection.drop_places(list_affected(selection.places, consultation.refused))


def _is_at_turn(state: PartitionState, place: Place, now_ns: int) -> bool:
    """Tells whether some victim of *place* has no notice yet, or all of them are due."""
    entries = [state.notices.entries.get(victim.key) for victim in place.victims]
    return any(entry is None for entry in entries) or all(
        entry is not None and now_ns >= entry.deadline_ns for entry in entries
    )


def list_affected(places: Sequence[Place], refused: Sequence[Place]) -> list[Place]:
    """Returns *refused* and the later ones of *places* that may use what their victims would have left over."""
    touched: set[Node | None] = set()
    found: list[Place] = []
    for place in places:
        nodes = {place.node, *(victim.node for victim in place.victims)}
        if place in refused or not touched.isdisjoint(nodes):
            found.append(place)
            touched |= nodes
    return found


def _note_victims(
    consultation: Consultation, place: Place, start: int, number: int, last: int | None, now_ns: int
) -> None:
    """Notes the answer about *place*. If the shim wants further victims to leave, the place counts as refused."""
    passed = last is not None and 0 <= last <= start
    consultation.note_answer(number, place, "" if passed else inquiries.describe_refusal(last), now_ns)


def _note_nodes(consultation: Consultation, place: Place, number: int, refused: Mapping[str, str], now_ns: int) -> None:
    consultation.note_answer(number, place, refused.get(place.node.node_id, ""), now_ns)


def _allow_place(consultation: Consultation, number: int) -> None:
    """Stops waiting for an answer that will not come."""
    consultation.open.pop(number, None)
