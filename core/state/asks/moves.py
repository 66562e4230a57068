"""The moves of asks: each function puts an ask in its next place, books the change, and wakes the asks that it helps.

The ledger only books amounts, and the waiting rooms only know what asks wait for. This module keeps both in step, and
no other module calls the functions of the ledger that belong to a move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.core.domain.ask_places import AskMove, AskPlace
from kornel.core.domain.commands import AllocationSpec
from kornel.core.model.allocations import Allocation, standing_of
from kornel.core.model.gang_units import unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.state.asks.limit_claims import end_saving_below
from kornel.core.state.books import ledger, replacement_books, user_accounting
from kornel.core.state.books.placeholder_books import keep_placeholder_from_use
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.places import move_ask, wait_in_line
from kornel.core.state.waiting.rooms import activate_group, forget_reservation
from kornel.core.state.waiting.waking import wake_for_node, wake_waiting

_PLACE: Final = AskMove.PLACE
"""Kept as a constant, because reading a member from its class costs as much as a call, and every ask is placed."""
_IN_LINE: Final = (AskPlace.WAITING, AskPlace.POOLED)


def add_ask(state: PartitionState, ask: Allocation) -> None:
    """Books a new *ask*, or one returned to pending, and puts it with its equals."""
    ledger.book_pending(ask)
    wait_in_line(state, ask)
    if ask.application.savers and ask.spec.topology is not None:
        state.changes += 1  # No domain may have room for all of its group any more: what they save is looked at again.


def drop_ask(state: PartitionState, ask: Allocation) -> None:
    """Takes a pending *ask*, which was withdrawn, out of its place and off the books."""
    group = ask.group
    move_ask(state, ask, AskMove.END)
    end_saving_below(state, ask)
    ledger.unbook_pending(state, ask)
    wake_waiting(state)
    if group is not None and group.is_unit and group.size:
        activate_group(group)  # There may now be too few members, or few enough for the available room.


def place_ask(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Charges a pending *ask* on *node* without any check, and ends its waiting."""
    move_ask(state, ask, _PLACE)
    ledger.book_placement(state, ask, node, now_ns)


def place_unasked(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Charges *allocation*, which never waited, on *node* without any check, because the shim says that it runs there:
    since its creation, if the shim gives that, or since now."""
    move_ask(state, allocation, _PLACE)
    ledger.book_allocation(state, allocation, node, min(allocation.created_ns, now_ns))
    wake_waiting(state)


def hold_ask(state: PartitionState, ask: Allocation, node: Node) -> None:
    """Charges *ask* on *node* while the shim is asked whether it may run there."""
    move_ask(state, ask, AskMove.HOLD)
    ledger.book_hold(state, ask, node)
    if ask.reservation is not None and ask.victims:
        # It has taken free room, so what its victims will free counts for others, and more may be open than before.
        wake_for_node(state, ask.reservation.node)


def end_hold(state: PartitionState, ask: Allocation) -> None:
    """Makes *ask* pending again after the shim refused the node on which it was held; the caller says where it
    waits."""
    ledger.unbook_hold(state, ask)
    move_ask(state, ask, AskMove.DISAGREE)
    wake_waiting(state)


def confirm_hold(state: PartitionState, ask: Allocation, now_ns: int) -> Node:
    """Turns the hold of *ask*, to which the shim has agreed, into a placement. Returns the node."""
    node = ledger.settle_hold(state, ask, now_ns)
    move_ask(state, ask, _PLACE)
    return node


def free_allocation(state: PartitionState, allocation: Allocation) -> None:
    """Removes *allocation*, which has ended, from the accounts, and wakes the asks and applications that wait for its
    room."""
    # The books come first: they book victims and placeholders in other ways, and tell them apart by their place.
    ledger.unbook_allocation(state, allocation)
    move_ask(state, allocation, AskMove.END)
    wake_waiting(state)


def return_allocation(state: PartitionState, allocation: Allocation) -> None:
    """Frees the room of *allocation*, which the shim could not start. The caller decides where it waits."""
    move_ask(state, allocation, AskMove.RETURN)
    ledger.unbook_allocation(state, allocation)
    wake_waiting(state)


def mark_victims(state: PartitionState, leaving: Mapping[Allocation, Allocation | None]) -> None:
    """Marks the allocations *leaving* as victims, each with its preemptor, and wakes the asks that their exit helps."""
    for victim in leaving:
        move_ask(state, victim, AskMove.PREEMPT)
    ledger.book_victims(state, leaving)
    wake_waiting(state)


def end_claim(state: PartitionState, ask: Allocation) -> None:
    """Ends the claims that *ask* has on the queues of its path if it has preempted, so that others may use the room."""
    if ask.triggered:
        ledger.unbook_claim(state, ask)
        ask.rearm_ns = 0
        wake_waiting(state)


def resize_request(state: PartitionState, request: Allocation, shape: Shape) -> None:
    """Changes the size of *request* in place, without any check (scheduling.md 14)."""
    if request.shape is shape:
        return
    if request.node is not None:
        ledger.allocation_reshaped(state, request, shape)
        wake_waiting(state)
        return
    end_saving_below(state, request)
    waits, reserved = request.place in _IN_LINE, request.reservation
    # It leaves its group, and the room of its reservation, before the size changes: both are found by the old shape.
    if waits:
        move_ask(state, request, AskMove.STEP_OUT)
    if reserved is not None:
        forget_reservation(state, reserved)
    ledger.ask_reshaped(state, request, shape)
    wake_waiting(state)
    if request.dialogue is not None:  # The dialogue was about victims for the former size.
        request.dialogue = None
        request.attempt_due = True
    if waits:
        wait_in_line(state, request)
    # The reservation holds another amount now, for which there may be room at once.
    if reserved is not None:
        state.reserved_ready[reserved] = None
        if state.gangs.hold_of(request) is not None:
            state.gangs.broken[unit_of(request)] = None  # What was announced for the gang may be short now.


def amend_allocation(state: PartitionState, allocation: Allocation, spec: AllocationSpec) -> None:
    """Gives *allocation* another *spec*, without any check; its size and what it wants of devices stay the same."""
    user_accounting.amend_spec(state, allocation, spec)
    allocation.standing = standing_of(spec)
    wake_waiting(state)


def regroup_ask(state: PartitionState, ask: Allocation) -> None:
    """Moves *ask* to where it has to wait now that its task group has opened or closed."""
    if ask.place in _IN_LINE:
        move_ask(state, ask, AskMove.STEP_OUT)
    wait_in_line(state, ask)


def regroup_originators(state: PartitionState, leaf: Queue) -> None:
    """Puts the originators that wait in *leaf* apart from other asks, or with their equals again, because another limit
    of originators applies there."""
    for application in leaf.applications.values():
        for ask in [ask for ask in application.asks.values() if ask.spec.originator]:
            group = ask.group
            if group is not None and not group.is_unit and group.key != ask.group_key:
                end_saving_below(state, ask)
                regroup_ask(state, ask)


def release_placeholder(state: PartitionState, placeholder: Allocation) -> None:
    """Keeps *placeholder*, whose release was asked for, from being replaced; it stays booked until the shim
    confirms."""
    move_ask(state, placeholder, AskMove.RELEASE)
    keep_placeholder_from_use(placeholder)


def start_replacement(state: PartitionState, ask: Allocation, placeholder: Allocation, node: Node, now_ns: int) -> None:
    """Links *ask* to *placeholder*, whose place it takes on *node* once the placeholder is gone; it no longer waits."""
    end_saving_below(state, ask)
    move_ask(state, ask, AskMove.REPLACE)
    move_ask(state, placeholder, AskMove.RELEASE)
    replacement_books.book_replacement(state, ask, placeholder, node, now_ns)
    wake_waiting(state)


def undo_replacement(state: PartitionState, ask: Allocation) -> None:
    """Makes *ask* pending again, with its equals; the placeholder that it was to replace is still being released."""
    # The accounts are changed first, because the ask knows its placeholder only while it is in its old place.
    replacement_books.undo_replacement(state, ask)
    move_ask(state, ask, AskMove.UNDO)
    wake_waiting(state)
    wait_in_line(state, ask)


def confirm_replacement(state: PartitionState, placeholder: Allocation) -> Allocation:
    """Gives the place of *placeholder* to the ask that was linked to it. Returns that ask, which is an allocation
    now."""
    ask = replacement_books.confirm_replacement(state, placeholder)
    move_ask(state, placeholder, AskMove.END)
    move_ask(state, ask, _PLACE)
    wake_waiting(state)
    return ask
