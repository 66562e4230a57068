"""Reservations: holds room on a node for an ask, gives it back, and offers it to others afterwards (preemption.md
B.7)."""

from __future__ import annotations

from kornel.core.domain.ask_places import AskMove, AskPlace
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.gang_units import unit_of
from kornel.core.model.nodes import Node
from kornel.core.policies.claim_order import comes_before
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission
from kornel.core.state.waiting.places import move_ask, offer_to_others, wait_in_line
from kornel.core.state.waiting.rooms import forget_reservation, note_saver, note_saver_no_more, park_without_node
from kornel.core.state.waiting.waking import offer_claim, wake_for_node


def reserve_node(
    state: PartitionState,
    ask: Allocation,
    node: Node,
    made_ns: int,
    *,
    by_age: bool = False,
    at_once: bool = True,
    least: Allocation | None = None,
    before: Reservation | None = None,
) -> Reservation:
    """Hold what *ask* needs on *node*; no other ask is placed on that room (preemption.md A.1 no. 15).

    The next cycle tries the ask. Without *at_once*, the ask waits instead if it is known already that no node has room
    for it. *least*: the least important member of the gang that saves the room together with its other places.
    *before*: the firm claim on the node just before which this one stands; ``None``: it stands behind all firm ones.
    """
    if ask.reservation is not None:
        former = ask.reservation
        unbook_reservation(state, former)
        offer_room(state, former.node)
    move_ask(state, ask, AskMove.RESERVE)
    reservation = Reservation(ask, node, made_ns, by_age=by_age, least=least)
    if by_age:
        ledger.book_saving(ask)
        note_saver(ask)
        state.reserving.aged += least is None
    if reservation.comes_last:
        state.reserving.saved[reservation] = None
    ask.reservation = reservation
    behind: list[Reservation] = []
    if reservation.comes_last:
        waiter, equals = reservation.waiter, [c for c in node.reservations.values() if c.rank == reservation.rank]
        younger = {c for c in equals if c.made_ns > made_ns and not comes_before(c.waiter, waiter)}
        behind = [c for c in equals if c in younger or comes_before(waiter, c.waiter)]
    elif before is not None:
        firm = [claim for claim in node.reservations.values() if claim.rank == before.rank]
        behind = firm[firm.index(before) :]
    if node.reserve(reservation, behind):
        state.node_order.room_changed(node)
    device_books.keep_saved(node)
    state.reservations[ask.key] = reservation
    if at_once or not ask.shape.no_room:
        state.reserved_ready[reservation] = None
    else:
        park_without_node(state, reservation, ask.shape)
    if state.waiting_for_domain:
        offer_to_others(state, ask)
    if state.recording:
        state.events.node_reserved(ask, node)
    if not by_age:  # What is saved counts in no limit: others may start meanwhile.
        admission.note_allocating(state, ask.application)
    if ask.triggered and not ask.spec.required_node:
        offer_claim(state, ask)
    return reservation


def end_reservation(state: PartitionState, reservation: Reservation, *, requeue: bool = False) -> None:
    """Ends *reservation* and gives its room back. With *requeue*, the ask waits with its equals again, unless it is
    held on a node."""
    unbook_reservation(state, reservation)
    offer_room(state, reservation.node)
    if requeue and reservation.ask.place is AskPlace.NOWHERE:
        wait_in_line(state, reservation.ask)
    admission.note_allocating_no_more(state, reservation.ask.application)


def unbook_reservation(state: PartitionState, reservation: Reservation) -> None:
    """Takes *reservation* off the books. The caller has to offer the room to others by :func:`offer_room`."""
    ask = reservation.ask
    forget_reservation(state, reservation)
    state.reserving.saved.pop(reservation, None)
    hold = state.gangs.hold_of(ask) if state.gangs.holds else None
    if hold is not None:
        state.gangs.broken[unit_of(ask)] = None
        hold.lost = (*hold.lost, (ask, reservation.node.node_id))
    if reservation.by_age:
        ledger.unbook_saving(ask)
        note_saver_no_more(ask)
        state.reserving.aged -= reservation.least is None
        state.reserving.call_round()
    ask.reservation = None
    if ask.place is AskPlace.RESERVED:
        move_ask(state, ask, AskMove.GIVE_BACK)
    if reservation.node.unreserve(reservation):
        state.node_order.room_changed(reservation.node)
    device_books.keep_no_more(reservation.node, ask)
    state.changes += 1
    del state.reservations[ask.key]
    if state.waiting_for_domain:
        offer_to_others(state, ask)
    if state.recording:
        state.events.node_unreserved(ask, reservation.node)


def offer_room(state: PartitionState, node: Node) -> None:
    """Wake asks that can use the room on *node* that is held no longer, unless the node is gone."""
    if state.nodes.get(node.node_id) is node:
        wake_for_node(state, node)
