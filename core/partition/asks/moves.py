"""Each move of an ask as a whole: to its next place, on or off the books, and then others are woken.

The ledger books and wakes nobody, the waiting rooms know no amounts but those they wait for. Here both are kept in
step, so that nobody else calls the functions of the ledger that go with a move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.core.domain.ask_places import AskMove, AskPlace
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.partition.books import ledger
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.places import move_ask, wait_in_line
from kornel.core.partition.waiting.rooms import activate_group, forget_reservation
from kornel.core.partition.waiting.waking import wake_waiting

_PLACE: Final = AskMove.PLACE
"""Names a member once: reading it from its class costs as much as a call, and every ask is placed."""
_IN_LINE: Final = (AskPlace.WAITING, AskPlace.POOLED)


def add_ask(state: PartitionState, ask: Allocation) -> None:
    """Books a new *ask*, or one returned to pending, and puts it with its equals."""
    ledger.book_pending(ask)
    wait_in_line(state, ask)


def drop_ask(state: PartitionState, ask: Allocation) -> None:
    """Takes a pending *ask* out of where it waits and off the books: it was withdrawn."""
    group = ask.group
    move_ask(state, ask, AskMove.END)
    ledger.unbook_pending(ask)
    if group is not None and group.is_unit and group.size:
        activate_group(group)  # Those that are left may be too few by now, or few enough for the room there is.


def place_ask(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Charges a pending *ask* on *node*, unchecked; it waits no more."""
    move_ask(state, ask, _PLACE)
    ledger.book_placement(state, ask, node, now_ns)


def place_unasked(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Charges *allocation*, which never waited, on *node*, unchecked: the shim says that it runs there."""
    move_ask(state, allocation, _PLACE)
    ledger.book_allocation(state, allocation, node, now_ns)


def hold_ask(state: PartitionState, ask: Allocation, node: Node) -> None:
    """Charges *ask* on *node* while the shim is asked whether it may run there."""
    move_ask(state, ask, AskMove.HOLD)
    ledger.book_hold(state, ask, node)


def end_hold(state: PartitionState, ask: Allocation) -> None:
    """Has *ask*, which the shim does not want where it is held, pending again; it waits nowhere yet."""
    ledger.unbook_hold(state, ask)
    move_ask(state, ask, AskMove.DISAGREE)
    wake_waiting(state)


def confirm_hold(state: PartitionState, ask: Allocation, now_ns: int) -> Node:
    """Has *ask* run where it is held, since the shim agrees. Returns the node."""
    node = ledger.settle_hold(state, ask, now_ns)
    move_ask(state, ask, _PLACE)
    return node


def free_allocation(state: PartitionState, allocation: Allocation) -> None:
    """Takes *allocation*, which has ended, off the books, and wakes whoever waits for what it held."""
    # Off the books first: what a victim or a placeholder held is booked otherwise, and its place says which it is.
    ledger.unbook_allocation(state, allocation)
    move_ask(state, allocation, AskMove.END)
    wake_waiting(state)


def return_allocation(state: PartitionState, allocation: Allocation) -> None:
    """Has *allocation*, which the shim could not start, hold nothing any more; it waits nowhere yet."""
    move_ask(state, allocation, AskMove.RETURN)
    ledger.unbook_allocation(state, allocation)
    wake_waiting(state)


def mark_victims(state: PartitionState, leaving: Mapping[Allocation, Allocation | None]) -> None:
    """Marks those *leaving*, each with its preemptor, and wakes whom their exit helps."""
    for victim in leaving:
        move_ask(state, victim, AskMove.PREEMPT)
    ledger.book_victims(state, leaving)
    wake_waiting(state)


def end_claim(state: PartitionState, ask: Allocation) -> None:
    """Frees what is spoken for on the path of *ask*, if it has preempted, for others."""
    if ask.triggered:
        ledger.unbook_claim(state, ask)
        wake_waiting(state)


def resize_request(state: PartitionState, request: Allocation, shape: Shape) -> None:
    """Changes the size of *request* in place, without any check (scheduling.md 14)."""
    if request.shape is shape:
        return
    if request.node is not None:
        ledger.allocation_reshaped(state, request, shape)
        wake_waiting(state)
        return
    waits, reserved = request.place in _IN_LINE, request.reservation
    # Out of its group, and of the room of its reservation, before the size changes: both are found by the old shape.
    if waits:
        move_ask(state, request, AskMove.STEP_OUT)
    if reserved is not None:
        forget_reservation(state, reserved)
    ledger.ask_reshaped(state, request, shape)
    wake_waiting(state)
    if request.dialogue is not None:  # It was about victims for another size.
        request.dialogue = None
        request.attempt_due = True
    if waits:
        wait_in_line(state, request)
    # It holds another amount now, which may fit at once.
    if reserved is not None:
        state.reserved_ready[reserved] = None


def regroup_ask(state: PartitionState, ask: Allocation) -> None:
    """Has *ask* wait where it belongs now: its task group opened or closed."""
    if ask.place in _IN_LINE:
        move_ask(state, ask, AskMove.STEP_OUT)
    wait_in_line(state, ask)


def release_placeholder(state: PartitionState, placeholder: Allocation) -> None:
    """Keeps *placeholder*, which is asked to leave, from use; it stays booked until the shim confirms."""
    move_ask(state, placeholder, AskMove.RELEASE)
    ledger.keep_placeholder_from_use(placeholder)


def start_replacement(state: PartitionState, ask: Allocation, placeholder: Allocation, node: Node, now_ns: int) -> None:
    """Links *ask*, which waits no more, to *placeholder*, whose place it takes on *node* once that has left."""
    move_ask(state, ask, AskMove.REPLACE)
    move_ask(state, placeholder, AskMove.RELEASE)
    ledger.replacement_starts(state, ask, placeholder, node, now_ns)


def undo_replacement(state: PartitionState, ask: Allocation) -> None:
    """Has *ask* pending and with its equals again; the placeholder it was to replace stays on its way out."""
    # Off the books first: in its place the ask knows its placeholder.
    ledger.replacement_undone(state, ask)
    move_ask(state, ask, AskMove.UNDO)
    wake_waiting(state)
    wait_in_line(state, ask)


def confirm_replacement(state: PartitionState, placeholder: Allocation) -> Allocation:
    """Gives the place of *placeholder* to the ask it was linked to, which is returned: now an allocation."""
    ask = ledger.replacement_confirmed(state, placeholder)
    move_ask(state, placeholder, AskMove.END)
    move_ask(state, ask, _PLACE)
    wake_waiting(state)
    return ask
