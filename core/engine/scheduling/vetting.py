"""Asks the shim, if it answers predicates, whether an ask may run on the node chosen for it (protocol.md 13,
Predicates).

Until the shim answers, the ask is *held* on that node: no other ask can get the room, and all other decisions are made
as if the ask ran there already. If the shim refuses the node, others are tried at once; if it refuses all nodes with
room, the ask pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskMove
from kornel.core.engine.gangs import pools
from kornel.core.engine.scheduling import placement
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.policies.application_order import ask_turn_key
from kornel.core.state.asks import finding, moves, questions
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.books import device_books
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission, dependence, inquiries, pausing
from kornel.core.state.waiting.inquiries import NO_ANSWER
from kornel.core.state.waiting.places import move_ask, wait_in_line
from kornel.core.state.waiting.rooms import end_turn, park_for_turn

FIRST_NODES: Final = 8
MORE_NODES: Final = 64
"""The number of nodes offered in a later question. The first question offers few, because the first node is usually
accepted."""
DEPENDENT_NODES: Final = 256
"""The most nodes offered in a question whose answer other asks wait for; every further question would cost them a round
trip."""

ApplyAnswer = Callable[[PartitionState, Allocation, Mapping[str, str], int], None]
"""A function that applies the shim's answer: it gets the ask, the refused nodes with reasons, and the time."""

SERVED: Final = frozenset({AppState.NEW, AppState.ACCEPTED, AppState.RUNNING, AppState.COMPLETING, AppState.RESUMING})
"""The states in which an application may be given allocations."""


def place_vetted(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Places *ask* on *node*, at once or when the shim agrees."""
    if not state.callbacks.predicates:
        placement.bind(state, ask, node, now_ns)
        if ask.spec.task_group:
            pools.member_placed(state, ask, now_ns)
        return
    if ask.dependent:
        if dependence.is_line_full(state.callbacks) and not dependence.take_place(state.callbacks, ask):
            waiter = ask.reservation or ask.group
            assert waiter is not None, "an ask that found a node waits in line or by its reservation"
            park_for_turn(state, waiter)
            return
        moves.hold_ask(state, ask, node)
        admission.note_allocating(state, ask.application)
        _line_up(state, ask, now_ns)
        return
    node_ids = _offered_nodes(state, ask, node, MORE_NODES if ask.refused else FIRST_NODES)
    moves.hold_ask(state, ask, node)
    admission.note_allocating(state, ask.application)
    ask_about_nodes(state, ask, node_ids, _apply_answer, now_ns)


def ask_about_nodes(
    state: PartitionState, ask: Allocation, node_ids: tuple[str, ...], apply: ApplyAnswer, now_ns: int
) -> None:
    """Asks the shim on which of the nodes *ask* may run. *apply* gets the answer, unless the question has been
    dropped."""
    # The functions get the number of the question and not the question itself, which refers to them: see is_open.
    number = state.callbacks.next_number()
    decide = partial(_decide_placement, state, ask, number, apply)
    drop = partial(_drop_question, state, ask, number)
    ask.inquiry = inquiries.ask_predicates(state, ask, node_ids, decide, drop, now_ns, number=number, allocate=True)


def _decide_placement(
    state: PartitionState, ask: Allocation, number: int, apply: ApplyAnswer, refused: Mapping[str, str], now_ns: int
) -> None:
    if inquiries.is_open(ask, number):
        apply(state, ask, refused, now_ns)


def _drop_question(state: PartitionState, ask: Allocation, number: int) -> None:
    if inquiries.is_open(ask, number):
        questions.cancel_question(state, ask)


def _line_up(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Puts a question about *ask*, which is held, in the line of questions whose answers depend on other placements.
    One that was left without an answer keeps nobody back there."""
    if not any(refusal.reason == NO_ANSWER for refusal in (ask.refused or {}).values()):
        ask.queue.turns.setdefault(ask, ask_turn_key(ask))
    number = state.callbacks.next_number()
    offer = partial(_offer_in_turn, state, ask)
    decide = partial(_decide_placement, state, ask, number, _apply_answer)
    drop = partial(_drop_question, state, ask, number)
    inquiries.line_up(state, ask, offer, decide, drop, now_ns, number=number, allocate=True)


def _offer_in_turn(state: PartitionState, ask: Allocation) -> tuple[str, ...]:
    """Returns the nodes to ask about for *ask*, whose turn has come; none if it may no longer run where it is held."""
    node = ask.held_on
    assert node is not None, "an ask in line is held"
    if not is_still_sound(state, ask, node):
        return ()
    # The next ask usually has the same constraints and sees the same nodes first, so about as many will be refused for
    # it.
    likely = FIRST_NODES + 2 * state.callbacks.dependent_depth
    return _offered_nodes(state, ask, node, DEPENDENT_NODES if ask.refused else min(likely, DEPENDENT_NODES))


def forgive_all(state: PartitionState) -> None:
    """Drops all refusals, because from now on another shim answers, or none."""
    for ask in state.requests.values():
        if ask.dialogue is not None:
            ask.dialogue.forget_refusals()
        if ask.refused is not None and ask.pending:
            pausing.forgive_refusals(state, ask)


def refused_everywhere(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Makes *ask*, which the shim refused on every node with room, wait for another node or until one of these is not
    left out any more."""
    if state.recording:
        state.events.refused_everywhere(ask)
    move_ask(state, ask, AskMove.REFUSE)
    pausing.allow_nodes(state, ask, now_ns)


def _offered_nodes(state: PartitionState, ask: Allocation, node: Node, most: int) -> tuple[str, ...]:
    """Returns the IDs of the chosen node and of the next suitable ones, up to *most* in all."""
    if ask.spec.required_node or ask.reservation is not None:
        return (node.node_id,)
    others = (other.node_id for other in finding.acceptable_nodes(state, ask) if other is not node)
    return (node.node_id, *islice(others, most - 1))


def _apply_answer(state: PartitionState, ask: Allocation, refused: Mapping[str, str], now_ns: int) -> None:
    """Applies the shim's answer to the question about *ask*, which is held on the first node of the question."""
    inquiry, node = ask.inquiry, ask.held_on
    assert inquiry is not None, "the caller has checked"
    assert node is not None, "a question about a placement is open only while the ask is held"
    ask.inquiry = None
    node_ids = inquiry.node_ids
    # Refusals are kept whether or not the ask is placed, so that the shim is not asked about these nodes again.
    pausing.leave_out(state, ask, node_ids, refused, now_ns, moves=inquiry.moves)
    if ask.dependent:
        node_ids = tuple([node_id for node_id in node_ids if node_id not in refused][:1])
        if node_ids and not dependence.may_act_upon(state.callbacks, inquiry):
            _line_up(state, ask, now_ns)
            return
        state.callbacks.dependent_depth = inquiry.node_ids.index(node_ids[0]) if node_ids else len(inquiry.node_ids)
        if node_ids != (node.node_id,):
            # Only the first node that passed counts, because the shim assumes that the ask runs there.
            refused = {**refused, node.node_id: ""}
    if node.node_id not in refused and is_still_sound(state, ask, node):
        settle_hold(state, ask, now_ns)
        _note_placement(state, ask, now_ns)
        return
    moves.end_hold(state, ask)
    if ask.application.state in SERVED:
        # The same answer allowed these nodes, so the ask is placed on one of them without another question.
        for other in _passed_nodes(state, ask, node_ids, refused):
            if other is node:
                continue
            if ask.reservation is None:
                wait_in_line(state, ask)
            placement.bind(state, ask, other, now_ns)
            _note_placement(state, ask, now_ns)
            return
        if ask.dependent and _ask_further(state, ask, refused, now_ns):
            return
    end_turn(ask.queue, ask)
    questions.wait_again(state, ask)


def _ask_further(state: PartitionState, ask: Allocation, refused: Mapping[str, str], now_ns: int) -> bool:
    """Holds *ask*, whose turn lasts until all nodes with room are judged, on another one, and lines it up again.
    Returns whether there is one."""
    if ask.reservation is not None or NO_ANSWER in refused.values():
        return False
    found = finding.find_node(state, ask)
    if isinstance(found, NotPlaced) and dependence.make_way(state.callbacks, ask):
        found = finding.find_node(state, ask)
    if isinstance(found, NotPlaced):
        return False
    wait_in_line(state, ask)
    moves.hold_ask(state, ask, found)
    _line_up(state, ask, now_ns)
    return True


def _note_placement(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    if ask.spec.task_group:
        pools.member_placed(state, ask, now_ns)
    if ask.dependent:
        end_turn(ask.queue, ask)
        dependence.note_placement(state, ask, now_ns)


def settle_hold(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Places *ask* where it is held, because the shim agrees, and ends its reservation and its claim."""
    if ask.reservation is not None:
        end_reservation(state, ask.reservation)
    moves.end_claim(state, ask)
    placement.announce_placement(state, ask, moves.confirm_hold(state, ask, now_ns), now_ns)


def is_still_sound(state: PartitionState, ask: Allocation, node: Node) -> bool:
    """Tells whether, apart from the shim's answer, *ask* may still be placed on *node*, on which it is held."""
    if state.nodes.get(node.node_id) is not node or ask.application.state not in SERVED:
        return False
    if not node.schedulable and not ask.spec.required_node:
        return False
    pairs = ask.shape.pairs
    # The ask is charged on the node already, so it fits if no free amount is negative.
    if any(node.free[t] < 0 for t, _ in pairs):
        return False
    if ask.shape.devices is not None and not device_books.are_usable(node, ask):
        return False
    # The amounts used include those of the ask already.
    own = {t: -amount for t, amount in pairs}
    quotas = [queue for queue in ask.queue.lineage() if queue.ceilings and queue not in ask.swaps_in]
    if any(queue.used[t] > queue.max[t] for queue in quotas for t, _ in pairs if t in queue.max):
        return False
    return all(account.has_room(pairs, own) for account in ask.accounts)


def _passed_nodes(
    state: PartitionState, ask: Allocation, node_ids: tuple[str, ...], refused: Mapping[str, str]
) -> list[Node]:
    """Returns those of the nodes asked about that the shim allowed and that still have room."""
    if finding.kept_back(state, ask) is not None:
        return []
    nodes = (state.nodes.get(node_id) for node_id in node_ids if node_id not in refused)
    return [node for node in nodes if node is not None and node in state.node_order and node.has_room_for(ask.shape)]
