"""Asks the shim about all members of a gang at once, after nodes were chosen for them (protocol.md 13, Predicates).

Until the shim answers, all members are held on the chosen nodes. Once it has answered about each of them, all are
placed, or none is held any more. Members that were refused on their nodes get other nodes that the shim allowed in the
same answers, if that completes the gang; otherwise the gang is tried again without the refused nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from kornel.core.engine.gangs.gang_places import Places, begin_gang, choose_places, exceeded_limit, place_gang
from kornel.core.engine.scheduling import vetting
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.model.nodes import Node
from kornel.core.state.asks import finding, moves, questions
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import Vetting
from kornel.core.state.waiting import admission, pausing
from kornel.core.state.waiting.gathering import covers_minimum
from kornel.core.state.waiting.rooms import look_again

OTHER_NODES: Final = 7
"""The number of nodes about which the shim is asked for each member besides the chosen one."""


def ask_about_gang(state: PartitionState, unit_id: UnitId, places: Places, now_ns: int) -> None:
    """Holds the members of a gang where they are to run, and asks the shim about all of them."""
    others = {ask: _other_nodes(state, ask, node) if ask.reservation is None else () for ask, node in places.nodes}
    state.gangs.vetting[unit_id] = Vetting(dict(places.nodes))
    places.name_devices()
    for ask, node in places.nodes:
        moves.hold_ask(state, ask, node)
    admission.note_allocating(state, unit_id.application)
    for ask, node in places.nodes:
        vetting.ask_about_nodes(state, ask, (node.node_id, *others[ask]), _note_answer, now_ns)


def _other_nodes(state: PartitionState, ask: Allocation, chosen: Node) -> tuple[str, ...]:
    if ask.spec.required_node:
        return ()
    others = (node.node_id for node in finding.acceptable_nodes(state, ask) if node is not chosen)
    return tuple(islice(others, OTHER_NODES))


def _note_answer(state: PartitionState, ask: Allocation, refused: Mapping[str, str], now_ns: int) -> None:
    """Keeps the shim's answer about *ask*, and goes on with the gang once it has answered about every member."""
    inquiry, asked = ask.inquiry, state.gangs.vetting[unit_of(ask)]
    assert inquiry is not None, "the caller has checked"
    ask.inquiry = None
    pausing.leave_out(state, ask, inquiry.node_ids, refused, now_ns, moves=inquiry.moves)
    asked.passed[ask] = frozenset(inquiry.node_ids) - refused.keys()
    del asked.unanswered[ask]
    if not asked.unanswered:
        _conclude(state, unit_of(ask), asked, now_ns)


def _conclude(state: PartitionState, unit_id: UnitId, asked: Vetting, now_ns: int) -> None:
    """Places all members where they are held, if the shim agrees and nothing has changed that forbids it."""
    whole = covers_minimum(unit_id, asked.nodes.keys())
    sound = whole and all(
        node.node_id in asked.passed[ask] and vetting.is_still_sound(state, ask, node)
        for ask, node in asked.nodes.items()
    )
    if sound:
        del state.gangs.vetting[unit_id]
        state.gangs.holds.pop(unit_id, None)
        state.gangs.broken.pop(unit_id, None)
        for ask in asked.nodes:
            vetting.settle_hold(state, ask, now_ns)
        begin_gang(state, unit_id.application, now_ns)
        return
    questions.call_off_vetting(state, unit_id)
    if unit_id in state.gangs.holds:
        _give_back_refused(state, asked)
        return
    places = _places_that_passed(state, unit_id.application, asked) if whole else None
    if places is not None:
        place_gang(state, unit_id.application, places, now_ns)


def _give_back_refused(state: PartitionState, asked: Vetting) -> None:
    """Ends the reservations of members that the shim refused on the nodes held for them; the reservations of the others
    are tried again."""
    for ask, node in asked.nodes.items():
        if ask.reservation is None:
            continue
        if node.node_id in asked.passed[ask]:
            look_again(state, ask.reservation)
        else:
            moves.end_claim(state, ask)
            end_reservation(state, ask.reservation, requeue=True)


def _places_that_passed(state: PartitionState, application: Application, asked: Vetting) -> Places | None:
    """Returns other nodes for the members of a gang, if the shim allowed all of them in its answers."""
    members = list(asked.nodes)
    served = application.state in vetting.SERVED and all(ask.group is not None and ask.group.is_unit for ask in members)
    if not served or exceeded_limit(state, application, members) is not None:
        return None
    ids = frozenset().union(*asked.passed.values())
    nodes = [node for node in map(state.nodes.get, ids) if node is not None and node in state.node_order]
    nodes.sort(key=lambda node: (node.score, node.node_id))
    places = choose_places(state, members, nodes)
    if places is None or any(node.node_id not in asked.passed[ask] for ask, node in places.nodes):
        return None
    return places
