"""One ask, one answer: where it goes, or why it goes nowhere. The only placement logic there is.

The allocation cycle, the reserved step and the preemption cycle all come through :func:`find_node`
(preemption.md F3), and every placement is booked by :func:`bind`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from core.domain.application_states import AppState
from core.domain.effects import Allocated
from core.domain.reasons import Unschedulable
from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.model.queues import Queue
from core.model.users import Account
from core.partition import lifecycle
from core.partition.books import ledger
from core.partition.scheduling import admission
from core.partition.scheduling.waiting import (
    dequeue,
    enqueue,
    forget_reservation,
    node_gained,
    park_without_node,
)
from core.partition.state import PartitionState
from core.policies import user_limits

_ACCEPTED: Final = AppState.ACCEPTED
"""Names a member once: reading it from its class costs as much as a call, and every placement asks."""


class NotPlaced(NamedTuple):
    """Why an ask has no place now; *queue*, or *account* of a user or group, is the one whose limit keeps it back."""

    reason: Unschedulable
    queue: Queue | None = None
    account: Account | None = None

    @property
    def preemption_may_help(self) -> bool:
        """Victims make room in queues and on nodes, not within what a user, or an application count, is limited to."""
        return self.reason is not Unschedulable.USER_QUOTA and self.reason is not Unschedulable.APPLICATION_LIMIT


def kept_back(state: PartitionState, ask: Allocation) -> NotPlaced | None:
    """Which limit *ask* would exceed now: applications, then user and group, then queues (scheduling.md 7.1, 7.2)."""
    application, pairs = ask.application, ask.shape.pairs
    limited: NotPlaced | None = None
    if application.state is _ACCEPTED:
        gate = admission.may_run(state, application)
        if isinstance(gate, Queue):
            limited = NotPlaced(Unschedulable.APPLICATION_LIMIT, queue=gate)
        elif gate is not None:
            limited = NotPlaced(Unschedulable.APPLICATION_LIMIT, account=gate)
    if limited is None and application.accounts:
        account = user_limits.exceeded(application.accounts, pairs)
        if account is not None:
            limited = NotPlaced(Unschedulable.USER_QUOTA, account=account)
    if limited is None:
        full = ledger.queue_path_admits(application.queue, pairs)
        if full is not None and ask.triggered:
            full = ledger.queue_path_admits_swap(ask)
        if full is not None:
            limited = NotPlaced(Unschedulable.QUEUE_QUOTA, full)
    if state.recording:
        state.events.limits_checked(ask, limited)
    return limited


def find_node(state: PartitionState, ask: Allocation) -> Node | NotPlaced:
    """Where *ask* fits now: limits first, then its required node or the first open node in order."""
    shape = ask.shape
    limited = kept_back(state, ask)
    if limited is not None:
        return limited
    if ask.spec.required_node:
        node = state.nodes.get(ask.spec.required_node)
        if node is None or not node.fits(shape.pairs):
            return NotPlaced(Unschedulable.REQUIRED_NODE)
        if ask.refused is not None and node.node_id in ask.refused:
            return NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
        return node
    if not shape.no_room:
        node = state.node_order.first_fit(shape.pairs)
        if node is not None and ask.refused is not None and node.node_id in ask.refused:
            node = next(acceptable_nodes(state, ask), None)
            return node if node is not None else NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
        if node is not None:
            return node
        shape.no_room = True
        state.no_room.setdefault(shape, {})
    return NotPlaced(Unschedulable.NO_FITTING_NODE)


def acceptable_nodes(state: PartitionState, ask: Allocation) -> Iterator[Node]:
    """Open nodes in order that have room for *ask* and that the shim has not refused for it lately."""
    refused = ask.refused or {}
    return (node for node in state.node_order.fitting(ask.shape.pairs) if node.node_id not in refused)


def bind(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Turn *ask* into an allocation on *node*: books, state of the application, answer to the shim."""
    reservation = ask.reservation
    if reservation is not None:
        _drop(state, reservation)
    ledger.unclaim(state, ask)
    ledger.ask_placed(state, ask, node, now_ns)
    if reservation is not None:
        # Only now: nobody is to be woken for room that the ask has just taken.
        _offer_room(state, reservation.node)
    announce(state, ask, node, now_ns)


def place(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Book *allocation* on *node* without any check, and say so: its echo or its placement."""
    ledger.charge(state, allocation, node, now_ns)
    announce(state, allocation, node, now_ns)


def announce(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """*allocation* is on the books of *node*: let its application feel it, and tell the shim."""
    if state.recording:
        state.events.node_charged(allocation, node)
    application, spec = allocation.application, allocation.spec
    application.unschedulable = 0
    allocation.placed()
    lifecycle.allocation_added(state, application, placeholder=spec.placeholder, now_ns=now_ns)
    if application.state is _ACCEPTED:
        admission.allocating(state, application)
    if state.recording:
        state.events.allocation_added(allocation)
    state.effects.append(Allocated(spec, node.node_id, allocation.shape.resources))


def reserve(
    state: PartitionState, ask: Allocation, node: Node, now_ns: int, *, by_age: bool = False, at_once: bool = True
) -> Reservation:
    """Hold what *ask* needs on *node*: nothing else is placed on that room (preemption.md A.1 no. 15).

    The next cycle tries it; not *at_once*: only where it is not known that no node has room for it now.
    """
    if ask.reservation is not None:
        unreserve(state, ask.reservation)
    dequeue(state, ask)
    reservation = Reservation(ask, node, now_ns, by_age=by_age)
    if by_age:
        ledger.promise(ask)
        state.kept_by_age += 1
    ask.reservation = reservation
    if node.reserve(reservation):
        state.node_order.room_changed(node)
    state.reservations[ask.key] = reservation
    if at_once or not ask.shape.no_room:
        state.reserved_ready[reservation] = None
    else:
        park_without_node(state, reservation, ask.shape)
    if state.recording:
        state.events.node_reserved(ask, node)
    admission.allocating(state, ask.application)
    return reservation


def unreserve(state: PartitionState, reservation: Reservation, *, requeue: bool = False) -> None:
    """Give the room back; with *requeue* the ask goes back among its equals, unless it is held somewhere."""
    _drop(state, reservation)
    _offer_room(state, reservation.node)
    if requeue and reservation.ask.held_on is None and reservation.ask.refused_on is None:
        enqueue(state, reservation.ask)


def _drop(state: PartitionState, reservation: Reservation) -> None:
    ask = reservation.ask
    forget_reservation(state, reservation)
    if reservation.by_age:
        ledger.unpromise(ask)
        state.kept_by_age -= 1
        state.reserving.call()
    ask.reservation = None
    if reservation.node.unreserve(reservation):
        state.node_order.room_changed(reservation.node)
    state.changes += 1
    del state.reservations[ask.key]
    if state.recording:
        state.events.node_unreserved(ask, reservation.node)


def _offer_room(state: PartitionState, node: Node) -> None:
    """Let others know that *node*, unless it is gone, has room that is no longer held."""
    if state.nodes.get(node.node_id) is node:
        node_gained(state, node)
