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
from core.partition.scheduling.waiting import dequeue, enqueue, forget_reservation, look_again, node_gained
from core.partition.state import PartitionState
from core.policies import user_limits

RESERVATION_TIMEOUT_NS: Final = 3600 * 10**9

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
        if full is not None:
            limited = NotPlaced(Unschedulable.QUEUE_QUOTA, full)
    if state.recording:
        state.events.limits_checked(ask, limited)
    return limited


def beyond_cluster_size(state: PartitionState, ask: Allocation, limited: NotPlaced | None) -> NotPlaced | None:
    """*limited*, unless all it says is that the cluster is full and *ask* must run on one node.

    The root's max is what the nodes offer, no quota that somebody set: whoever leaves the required node makes the room
    under both (preemption.md C).
    """
    return None if limited is not None and ask.spec.required_node and limited.queue is state.root else limited


def find_node(state: PartitionState, ask: Allocation) -> Node | NotPlaced:
    """Where *ask* fits now: limits first, then its required node or the first open node in order."""
    shape = ask.shape
    limited = kept_back(state, ask)
    if limited is not None and beyond_cluster_size(state, ask, limited) is not None:
        return limited
    if ask.spec.required_node:
        node = state.nodes.get(ask.spec.required_node)
        if node is not None and not held_for_another_required(node, ask) and node.fits(shape.pairs):
            if ask.refused is not None and node.node_id in ask.refused:
                return NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
            return limited or node
        return NotPlaced(Unschedulable.REQUIRED_NODE)
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
    ledger.unclaim(ask)
    ledger.ask_placed(state, ask, node, now_ns)
    if reservation is not None:
        # Only now: nobody is to be woken for room that the ask has just taken.
        _open(state, reservation.node)
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


def reserve(state: PartitionState, ask: Allocation, node: Node, now_ns: int, *, by_age: bool = False) -> Reservation:
    """Keep *node* for *ask*: nothing else is placed there (preemption.md A.1 no. 15)."""
    if ask.reservation is not None:
        unreserve(state, ask.reservation)
    dequeue(state, ask)
    reservation = Reservation(ask, node, now_ns, by_age=by_age)
    if by_age:
        ledger.promise(ask)
        state.kept_by_age += 1
    ask.reservation = reservation
    node.reservations[ask.key] = reservation
    state.reservations[ask.key] = reservation
    state.node_order.discard(node)
    state.reserved_ready[reservation] = None
    if state.recording:
        state.events.node_reserved(ask, node)
    admission.allocating(state, ask.application)

    def wake_if_still_there(_: int) -> None:
        if ask.reservation is reservation:
            look_again(state, reservation)

    state.at(now_ns + RESERVATION_TIMEOUT_NS, wake_if_still_there)
    return reservation


def unreserve(state: PartitionState, reservation: Reservation, *, requeue: bool = False) -> None:
    """Give the node back; with *requeue* the ask goes back among its equals, unless it is held somewhere."""
    _drop(state, reservation)
    _open(state, reservation.node)
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
    del reservation.node.reservations[ask.key]
    del state.reservations[ask.key]
    if state.recording:
        state.events.node_unreserved(ask, reservation.node)


def _open(state: PartitionState, node: Node) -> None:
    """Let others have *node* again, unless something else keeps it closed."""
    if not node.reservations and node.schedulable and state.nodes.get(node.node_id) is node:
        state.node_order.add(node)
        node_gained(state, node)


def held_for_another_required(node: Node, ask: Allocation) -> bool:
    """Whether some ask other than *ask* that must run on *node* has it reserved: nobody gets in front of it (9)."""
    return any(
        reservation.ask is not ask and reservation.ask.spec.required_node for reservation in node.reservations.values()
    )
