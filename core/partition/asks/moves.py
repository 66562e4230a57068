"""Each move of an ask: out of where it waits, onto the books, into where it waits next, and then others are woken.

The ledger books and wakes nobody, the waiting rooms know no amounts but those they wait for. Here both are kept in
step, so that nobody else calls the functions of the ledger that move an ask.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.model.allocations import Allocation
from core.model.nodes import Node
from core.model.shapes import Shape
from core.partition.books import ledger
from core.partition.state import PartitionState
from core.partition.waiting.rooms import dequeue, enqueue, forget_reservation, wake_waiting


def add_ask(state: PartitionState, ask: Allocation) -> None:
    """Books a new *ask*, or one returned to pending, and puts it with its equals."""
    ledger.ask_appears(ask)
    enqueue(state, ask)


def drop_ask(state: PartitionState, ask: Allocation) -> None:
    """Takes a pending *ask* out of where it waits and off the books: it was withdrawn."""
    dequeue(state, ask)
    ledger.ask_leaves(ask)


def place_ask(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Charges a pending *ask* on *node*, unchecked; it waits no more."""
    dequeue(state, ask)
    ledger.ask_placed(state, ask, node, now_ns)


def hold_ask(state: PartitionState, ask: Allocation, node: Node) -> None:
    """Charges *ask* on *node* while the shim is asked whether it may run there."""
    dequeue(state, ask)
    ledger.hold(state, ask, node)


def end_hold(state: PartitionState, ask: Allocation) -> None:
    """Has *ask*, which the shim does not want where it is held, pending again; it waits nowhere yet."""
    ledger.unhold(state, ask)
    wake_waiting(state)


def free_allocation(state: PartitionState, allocation: Allocation) -> None:
    """Takes *allocation* off the books, and wakes whoever waits for what it held."""
    ledger.refund(state, allocation)
    wake_waiting(state)


def mark_victims(state: PartitionState, leaving: Mapping[Allocation, Allocation | None]) -> None:
    """Marks those *leaving*, each with its preemptor, as :func:`.ledger.mark` does, and wakes whom their exit helps."""
    ledger.mark(state, leaving)
    wake_waiting(state)


def end_claim(state: PartitionState, ask: Allocation) -> None:
    """Frees what is spoken for on the path of *ask*, if it has preempted, for others."""
    if ask.triggered:
        ledger.unclaim(state, ask)
        wake_waiting(state)


def resize_request(state: PartitionState, request: Allocation, shape: Shape) -> None:
    """Changes the size of *request* in place, without any check (scheduling.md 14)."""
    if request.shape is shape:
        return
    if request.node is not None:
        ledger.allocation_reshaped(state, request, shape)
        wake_waiting(state)
        return
    waits, reserved = request.group is not None or request.pool is not None, request.reservation
    dequeue(state, request)
    if reserved is not None:
        forget_reservation(state, reserved)
    ledger.ask_reshaped(state, request, shape)
    wake_waiting(state)
    if request.dialogue is not None:  # It was about victims for another size.
        request.dialogue = None
        request.attempt_due = True
    if waits:
        enqueue(state, request)
    if reserved is not None:
        state.reserved_ready[reserved] = None


def start_replacement(state: PartitionState, ask: Allocation, placeholder: Allocation, node: Node, now_ns: int) -> None:
    """Links *ask*, which waits no more, to *placeholder*, whose place it takes on *node* once that has left."""
    dequeue(state, ask)
    ledger.replacement_starts(state, ask, placeholder, node, now_ns)


def undo_replacement(state: PartitionState, ask: Allocation) -> None:
    """Has *ask* pending and with its equals again; the placeholder it was to replace stays on its way out."""
    ledger.replacement_undone(state, ask)
    wake_waiting(state)
    enqueue(state, ask)


def confirm_replacement(state: PartitionState, placeholder: Allocation) -> Allocation:
    """Gives the place of *placeholder* to the ask it was linked to, which is returned: now an allocation."""
    ask = ledger.replacement_confirmed(state, placeholder)
    wake_waiting(state)
    return ask
