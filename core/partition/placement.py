"""One ask, one answer: where it goes, or why it goes nowhere. The only placement logic there is.

The allocation cycle, the reserved step and the preemption cycle all come through :func:`find_node`
(preemption.md F3), and every placement is booked by :func:`bind`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from core.domain.effects import Allocated
from core.domain.reasons import Unschedulable
from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.model.queues import Queue
from core.partition import ledger, lifecycle
from core.partition.state import PartitionState
from core.partition.waiting import dequeue, enqueue, node_gained

RESERVATION_TIMEOUT_NS: Final = 3600 * 10**9


class NotPlaced(NamedTuple):
    """Why an ask has no place now; *queue* names the one whose max keeps it back."""

    reason: Unschedulable
    queue: Queue | None = None


def find_node(state: PartitionState, ask: Allocation) -> Node | NotPlaced:
    """Where *ask* fits now: quota first, then its required node or the first open node in order."""
    shape = ask.shape
    full = ledger.queue_path_admits(ask.queue, shape.pairs)
    if full is not None:
        return NotPlaced(Unschedulable.QUEUE_QUOTA, full)
    if ask.spec.required_node:
        node = state.nodes.get(ask.spec.required_node)
        if node is not None and not _held_for_another_required(node) and node.fits(shape.pairs):
            return node
        return NotPlaced(Unschedulable.REQUIRED_NODE)
    if not shape.no_room:
        node = state.node_order.first_fit(shape.pairs)
        if node is not None:
            return node
        shape.no_room = True
        state.no_room.setdefault(shape, {})
    return NotPlaced(Unschedulable.NO_FITTING_NODE)


def bind(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Turn *ask* into an allocation on *node*: books, state of the application, answer to the shim."""
    if ask.reservation is not None:
        unreserve(state, ask.reservation)
    if ask.triggered:
        ledger.unclaim(ask)
    ledger.ask_leaves(state, ask)
    place(state, ask, node, now_ns)


def place(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Book *allocation* on *node* without any check, and say so: its echo or its placement."""
    allocation.missed = 0
    ledger.charge(state, allocation, node, now_ns)
    lifecycle.allocation_added(state, allocation.application, placeholder=allocation.spec.placeholder, now_ns=now_ns)
    state.effects.append(Allocated(allocation.spec, node.node_id, allocation.shape.resources))


def reserve(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> Reservation:
    """Hold *node* for *ask*: nothing else is placed there (preemption.md A.1 no. 15)."""
    if ask.reservation is not None:
        unreserve(state, ask.reservation)
    dequeue(state, ask)
    reservation = Reservation(ask, node, now_ns)
    ask.reservation = reservation
    node.reservations[ask.key] = reservation
    state.reservations[ask.key] = reservation
    state.node_order.discard(node)
    state.stirred = True

    def look_again(_: int) -> None:
        state.stirred = True

    state.at(now_ns + RESERVATION_TIMEOUT_NS, look_again)
    return reservation


def unreserve(state: PartitionState, reservation: Reservation, *, requeue: bool = False) -> None:
    """Give the node back; with *requeue* the ask goes back among its equals."""
    ask, node = reservation.ask, reservation.node
    ask.reservation = None
    del node.reservations[ask.key]
    del state.reservations[ask.key]
    if not node.reservations and node.schedulable and state.nodes.get(node.node_id) is node:
        state.node_order.add(node)
        node_gained(state, node)
    if requeue:
        enqueue(state, ask)


def _held_for_another_required(node: Node) -> bool:
    return any(reservation.ask.spec.required_node for reservation in node.reservations.values())
