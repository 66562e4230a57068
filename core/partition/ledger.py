"""The books: every amount on a node, queue or application changes here, and only here.

Each function books one event completely, on every level it touches (scheduling.md 3), and keeps the orders and
waiting rooms that depend on those amounts in step.
"""

from __future__ import annotations

from core.model.allocations import Allocation
from core.model.nodes import Node
from core.model.queues import Queue
from core.model.shapes import Pairs, Shape, Vector
from core.partition import user_accounting
from core.partition.state import PartitionState
from core.partition.waiting import dequeue, enqueue, node_gained, queue_gained
from core.policies.queue_order import fair_terms


def ask_appears(state: PartitionState, ask: Allocation) -> None:
    """A new pending ask, or one returned to pending: booked as pending and put with its equals."""
    application = ask.application
    pairs = ask.shape.pairs
    _book(application.pending, pairs)
    for queue in application.queue.lineage():
        _book(queue.pending, pairs)
        queue.waiting += 1
        if queue.parent is not None:
            queue.parent.order.mark(queue)
    application.asks[ask.key] = ask
    application.ask_appears(ask.priority)
    enqueue(ask)


def ask_leaves(state: PartitionState, ask: Allocation) -> None:
    """A pending ask is pending no more: placed or withdrawn."""
    application = ask.application
    pairs = ask.shape.pairs
    dequeue(state, ask)
    _unbook(application.pending, pairs)
    for queue in application.queue.lineage():
        _unbook(queue.pending, pairs)
        queue.waiting -= 1
        if queue.parent is not None:
            queue.parent.order.mark(queue)
    del application.asks[ask.key]
    application.ask_leaves(ask.priority)


def charge(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """*allocation* now holds its amount on *node*: node, application and every queue up to the root pay, unchecked."""
    application = allocation.application
    pairs = allocation.shape.pairs
    allocation.node = node
    allocation.bound_ns = now_ns
    node.allocations[allocation.key] = allocation
    node.charge(pairs)
    state.node_order.refresh(node)
    application.allocations[allocation.key] = allocation
    _book(application.placeholder if allocation.spec.placeholder else application.real, pairs)
    application.queue.order.mark(application)
    if application.accounts:
        user_accounting.charge(application, pairs)
    for queue in application.queue.lineage():
        _book(queue.used, pairs)
        if queue.parent is not None:
            queue.parent.order.mark(queue)
    state.allocation_count += 1


def refund(state: PartitionState, allocation: Allocation) -> None:
    """*allocation* is gone: everything it held is free again, and whoever waits for that is woken."""
    application = allocation.application
    pairs = allocation.shape.pairs
    node = allocation.node
    assert node is not None, "only a placed allocation can be refunded"
    allocation.node = None
    del node.allocations[allocation.key]
    node.refund(pairs)
    state.node_order.refresh(node)
    del application.allocations[allocation.key]
    _unbook(application.placeholder if allocation.spec.placeholder else application.real, pairs)
    application.queue.order.mark(application)
    if allocation.preempted:
        unmark(allocation)
    if application.accounts:
        user_accounting.refund(state, application, pairs)
    for queue in application.queue.lineage():
        _unbook(queue.used, pairs)
        if queue.parent is not None:
            queue.parent.order.mark(queue)
        queue_gained(state, queue)
    state.allocation_count -= 1
    node_gained(state, node)


def mark(victim: Allocation, preemptor: Allocation) -> None:
    """*victim* was told to leave: its amount counts as preempting until it is gone (preemption.md B.7)."""
    victim.preempted = True
    victim.preemptor = preemptor
    victim.application.preempted_count += 1
    for queue in victim.queue.lineage():
        _book(queue.preempting, victim.shape.pairs)
        _book(queue.preempted_total, victim.shape.pairs)
        queue.preempted_count += 1


def unmark(victim: Allocation) -> None:
    """*victim* left, however it did."""
    victim.preempted = False
    for queue in victim.queue.lineage():
        _unbook(queue.preempting, victim.shape.pairs)


def claim(ask: Allocation) -> None:
    """*ask* preempted: what it is about to use is spoken for on its path (preemption.md 0.1)."""
    ask.triggered = True
    for queue in ask.queue.lineage():
        _book(queue.claimed, ask.shape.pairs)


def unclaim(ask: Allocation) -> None:
    """*ask* was placed, withdrawn or re-armed."""
    if not ask.triggered:
        return
    ask.triggered = False
    for queue in ask.queue.lineage():
        _unbook(queue.claimed, ask.shape.pairs)


def reshape(state: PartitionState, request: Allocation, shape: Shape) -> None:
    """*request* changes its size in place, without any check (scheduling.md 14)."""
    before = request.shape
    if before is shape:
        return
    if request.node is None:
        group, reserved = request.group, request.reservation
        dequeue(state, request)
        _exchange(request.application.pending, before.pairs, shape.pairs)
        for queue in request.queue.lineage():
            _exchange(queue.pending, before.pairs, shape.pairs)
            if request.triggered:
                _exchange(queue.claimed, before.pairs, shape.pairs)
            if queue.parent is not None:
                queue.parent.order.mark(queue)
        request.shape = shape
        if group is not None and reserved is None:
            enqueue(request)
        state.stirred = True
        return
    application, node = request.application, request.node
    request.shape = shape
    _exchange(application.placeholder if request.spec.placeholder else application.real, before.pairs, shape.pairs)
    application.queue.order.mark(application)
    if application.accounts:
        user_accounting.exchange(state, application, before.pairs, shape.pairs)
    node.refund(before.pairs)
    node.charge(shape.pairs)
    state.node_order.refresh(node)
    for queue in application.queue.lineage():
        _exchange(queue.used, before.pairs, shape.pairs)
        if request.preempted:
            _exchange(queue.preempting, before.pairs, shape.pairs)
        if queue.parent is not None:
            queue.parent.order.mark(queue)
        queue_gained(state, queue)
    node_gained(state, node)


def capacity_changed(state: PartitionState, before: Vector, now: Vector) -> None:
    """One node's capacity went from *before* to *now*: the root's max moves by the difference, zero types left out.

    Fair shares are reckoned from the root's max; they are refreshed once, by the next cycle.
    """
    root = state.root
    maximum = dict(root.max)
    grew = False
    for t in range(max(len(before), len(now))):
        change = (now[t] if t < len(now) else 0) - (before[t] if t < len(before) else 0)
        if change:
            grew = grew or change > 0
            maximum[t] = maximum.get(t, 0) + change
            if not maximum[t]:
                del maximum[t]
    root.set_limits({}, maximum)
    state.fair_terms_stale = True
    if grew:
        queue_gained(state, root)


def refresh_fair_terms(state: PartitionState) -> None:
    """Reckon every queue's fair-share denominators again: a max or guarantee changed somewhere."""
    state.fair_terms_stale = False
    for queue in state.queues.values():
        queue.fair_terms = fair_terms(queue)
        queue.order.mark_all()


def queue_path_admits(queue: Queue, pairs: Pairs) -> Queue | None:
    """The lowest queue on the path whose max does not admit *pairs*; ``None`` when all do."""
    for ancestor in queue.lineage():
        if not ancestor.admits(pairs):
            return ancestor
    return None


def _book(vector: Vector, pairs: Pairs) -> None:
    for t, amount in pairs:
        vector[t] += amount


def _unbook(vector: Vector, pairs: Pairs) -> None:
    for t, amount in pairs:
        vector[t] -= amount


def _exchange(vector: Vector, before: Pairs, after: Pairs) -> None:
    _unbook(vector, before)
    _book(vector, after)
