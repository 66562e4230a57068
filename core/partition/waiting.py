"""Asks that cannot be placed wait aside, and come back only when something that could make them fit has changed.

A group of equal asks is *active* (its application, leaf and every parent offer it to the next cycle) or *parked* in
the one waiting room that names what it lacks: room under one queue's max or under a limit of its user or group, room on
any node, or room on the node it requires. A full cluster therefore costs nothing, and a release wakes only what it can
help.

An application that may not start yet is *held back* whole, at the queue, user or group whose limit of applications is
reached. A slot that frees there is offered to the first application of each leaf; one that does not take it passes the
offer on to the next.
"""

from __future__ import annotations

from core.domain.application_states import AppState
from core.model.allocations import Allocation, AskGroup
from core.model.applications import Application
from core.model.keyed_heap import KeyedHeap
from core.model.nodes import Node
from core.model.queues import Queue
from core.model.users import Account
from core.partition.state import PartitionState
from core.policies.application_order import application_key

Gate = Queue | Account
"""What may limit how many applications run or hold something."""

_UNSERVED = frozenset({AppState.FAILING, AppState.FAILED, AppState.REJECTED, AppState.COMPLETED, AppState.EXPIRED})


def enqueue(ask: Allocation) -> None:
    """Put a pending, unreserved *ask* with its equals."""
    application = ask.application
    key = (ask.shape, ask.spec.required_node)
    group = application.groups.get(key)
    if group is None:
        number = application.next_group_number()
        group = application.groups[key] = AskGroup(application, ask.shape, ask.spec.required_node, number)
    group.add(ask)
    if group.parked_at is None:
        activate(group)
    gate = application.held_at
    if gate is None:
        return
    if gate.open():
        # The slot is offered to another one already, but this ask may bring its own application before it.
        let_in(application)
    else:
        gate.held_back[application.queue].mark(application)


def dequeue(state: PartitionState, ask: Allocation) -> None:
    """Take *ask* out from among its equals: placed, reserved or withdrawn."""
    group = ask.group
    if group is None:
        return
    application = group.application
    if application.held_at is not None:
        application.held_at.held_back[application.queue].mark(application)
    elif application.offered_by is not None:
        # Without this ask, one that is held back may come before it.
        _offer_slot(application.offered_by, application.queue)
    group.remove(ask)
    if group.size:
        if group.parked_at is None:
            application.order.mark(group)
            application.queue.order.mark(application)
        return
    del application.groups[(group.shape, group.required_node)]
    room = _leave_waiting_room(group)
    if room is not None and not room and state.no_room.get(group.shape) is room:
        del state.no_room[group.shape]
        group.shape.no_room = False
    _deactivate(group)


def activate(group: AskGroup) -> None:
    """Offer *group* to the next cycle."""
    application = group.application
    if group in application.order:
        application.order.mark(group)
        application.queue.order.mark(application)
        return
    _leave_waiting_room(group)
    if application.state in _UNSERVED:
        return
    application.order.add(group)
    queue: Queue = application.queue
    queue.order.add(application)
    parent = queue.parent
    while parent is not None:
        parent.order.add(queue)
        queue, parent = parent, parent.parent


def _deactivate(group: AskGroup) -> None:
    application = group.application
    application.order.discard(group)
    queue: Queue | None = application.queue
    if application.order:
        application.queue.order.mark(application)
        return
    application.queue.order.discard(application)
    gate = application.offered_by
    if gate is not None:
        application.offered_by = None
        _offer_slot(gate, application.queue)
    while queue is not None and not queue.order and queue.parent is not None:
        queue.parent.order.discard(queue)
        queue = queue.parent


def stop_offering(application: Application) -> None:
    """The application may not be served any more: none of its groups is offered, their asks stay known."""
    _stop_waiting(application)
    for group in list(application.groups.values()):
        _leave_waiting_room(group)
        _deactivate(group)


def park_below_quota(group: AskGroup, queue: Queue) -> None:
    """*group* waits until *queue* has room for its shape under its max."""
    _park(group, queue.parked.setdefault(group.shape, {}))


def park_below_limit(group: AskGroup, account: Account) -> None:
    """*group* waits until the user or group of *account* may hold its shape."""
    _park(group, account.parked.setdefault(group.shape, {}))
    group.kept_back = True


def hold_back(application: Application, gate: Gate) -> None:
    """None of its groups is offered until *gate* lets another application start."""
    if application.held_at is not gate:
        _stop_waiting(application)
        application.held_at = gate
        gate.held_back.setdefault(application.queue, KeyedHeap(application_key)).add(application)
    for group in list(application.order):
        _park(group, application.held_groups)
        group.kept_back = True


def let_in(application: Application) -> None:
    """*application* is no longer held back: it started after all, or has to be looked at again."""
    _stop_waiting(application)
    for group in list(application.held_groups):
        activate(group)


def _stop_waiting(application: Application) -> None:
    gate = application.held_at
    if gate is None:
        return
    application.held_at = None
    waiting = gate.held_back[application.queue]
    waiting.discard(application)
    if not waiting:
        del gate.held_back[application.queue]


def slot_freed(gate: Gate) -> None:
    """One application less runs (or holds something) at *gate*: the first that waits in each leaf is offered again."""
    for leaf in list(gate.held_back):
        _offer_slot(gate, leaf)


def _offer_slot(gate: Gate, leaf: Queue) -> None:
    waiting = gate.held_back.get(leaf)
    if waiting is None or not gate.open():
        return
    while (application := waiting.first()) is not None:
        let_in(application)
        if application.order:
            application.offered_by = gate
            return


def park_without_node(state: PartitionState, group: AskGroup) -> None:
    """*group* waits until a node that can hold its shape gains room."""
    group.shape.no_room = True
    _park(group, state.no_room.setdefault(group.shape, {}))


def park_for_node(state: PartitionState, group: AskGroup) -> None:
    """*group* waits for room on the node it requires."""
    _park(group, state.waiting_for_node.setdefault(group.required_node, {}))


def _park(group: AskGroup, room: dict[AskGroup, None]) -> None:
    _deactivate(group)
    room[group] = None
    group.parked_at = room


def _leave_waiting_room(group: AskGroup) -> dict[AskGroup, None] | None:
    room = group.parked_at
    if room is not None:
        room.pop(group, None)
        group.parked_at = None
        group.kept_back = False
    return room


def node_gained(state: PartitionState, node: Node) -> None:
    """*node* appeared, was freed, grew or opened: wake what it can hold now."""
    state.stirred = True
    for group in list(state.waiting_for_node.pop(node.node_id, ())):
        activate(group)
    if node not in state.node_order:
        return
    for shape in [shape for shape in state.no_room if node.fits(shape.pairs)]:
        shape.no_room = False
        for group in list(state.no_room.pop(shape)):
            activate(group)


def queue_gained(state: PartitionState, queue: Queue) -> None:
    """*queue* has more room under its max than before: wake what it kept back and no longer must."""
    state.stirred = True
    if not queue.parked:
        return
    for shape in [shape for shape, groups in queue.parked.items() if not groups or queue.admits(shape.pairs)]:
        for group in list(queue.parked.pop(shape)):
            activate(group)


def account_gained(state: PartitionState, account: Account) -> None:
    """The user or group of *account* holds less than before: wake what its limit kept back and no longer must."""
    state.stirred = True
    if not account.parked:
        return
    for shape in [shape for shape, groups in account.parked.items() if not groups or account.admits(shape.pairs)]:
        for group in list(account.parked.pop(shape)):
            activate(group)
