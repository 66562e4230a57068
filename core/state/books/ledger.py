"""The books: every amount on a node, queue or application changes here and in the neighbours of this module, and only
there.

Each function books one event completely, on every level it touches (scheduling.md 3), and keeps the orders that depend
on those amounts in step. It wakes no waiter: it notes in ``state.gained`` what others may be waiting for, and the
caller, such as :mod:`kornel.core.state.asks.moves`, then has
:func:`kornel.core.state.waiting.waking.wake_waiting` act on these notes.
"""

from __future__ import annotations

from collections.abc import Mapping

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import NO_REQUESTS, Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape, Vector, book_amounts, unbook_amounts
from kornel.core.policies.user_limits import list_binding
from kornel.core.state.books import device_books, user_accounting
from kornel.core.state.books.placeholder_books import (
    drop_placeholder,
    hold_placeholder,
    keep_placeholder_from_use,
    note_placeholder_peak,
)
from kornel.core.state.history.queue_events import settings_of
from kornel.core.state.partition_state import PartitionState


def book_pending(ask: Allocation) -> None:
    """Books *ask* as pending: it is new, or it is no longer held or placed."""
    application = ask.application
    if application.asks:
        application.asks[ask.key] = ask
    else:
        application.asks = {ask.key: ask}
    pairs = ask.shape.pairs
    pending = application.pending
    for t, amount in pairs:
        pending[t] += amount
    if application.accounts:
        user_accounting.note_asks(application, 1)
    for queue in application.queue.lineage():
        pending = queue.pending
        for t, amount in pairs:
            pending[t] += amount
        queue.waiting += 1
        siblings = queue.siblings
        if queue.rooms:
            queue.mark_turn()
        elif siblings is not None and queue in siblings.members:
            siblings.marked[queue] = None


def remove_ask(ask: Allocation) -> None:
    """Takes *ask* out of its application; what it books besides stays."""
    application = ask.application
    del application.asks[ask.key]
    if not application.asks:
        application.asks = NO_REQUESTS


def _add_allocation(application: Application, allocation: Allocation) -> None:
    if not application.allocations:
        application.allocations = {}
    application.allocations[allocation.key] = allocation
    if allocation.spec.task_group:
        application.members_in(allocation.spec.task_group).count_members(1)


def unbook_pending(state: PartitionState, ask: Allocation) -> None:
    """Takes *ask*, which was withdrawn, off the books."""
    wait_no_more(state, ask)
    remove_ask(ask)


def book_placement(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Books *ask*, which was pending, on *node*. This does what :func:`unbook_pending` and :func:`book_allocation` do,
    in one walk up the queues."""
    asks = ask.application.asks
    del asks[ask.key]
    if not asks:
        ask.application.asks = NO_REQUESTS
    _put_on(state, ask, node, now_ns)
    _use_instead_of_waiting(state, ask)


def wait_no_more(state: PartitionState, ask: Allocation) -> None:
    """Books *ask* as no longer pending; it stays among the asks of its application."""
    application = ask.application
    pairs = ask.shape.pairs
    unbook_amounts(application.pending, pairs)
    if application.accounts:
        user_accounting.note_asks(application, -1)
        user_accounting.offer_shares(state, application.queue)
    for queue in application.queue.lineage():
        unbook_amounts(queue.pending, pairs)
        queue.waiting -= 1
        queue.mark_turn()


def book_hold(state: PartitionState, ask: Allocation, node: Node) -> None:
    """Charges *ask*, which is HELD, as if it ran on *node*, so that no other ask gets the room while the shim is asked
    about it.

    The shim still sees it as pending. Sort orders and quotas count it as placed, so that the question does not change
    any decision.
    """
    ask.where = node
    node.held[ask.key] = ask
    if ask.reservation is not None and ask.reservation.node is node:
        node.resize_claim(ask.reservation, ())  # Instead of pending, the amounts are booked as used.
    state.held_count += 1
    ask.application.held_count += 1
    node.charge_pairs(ask.shape.pairs)
    if ask.shape.devices is not None:
        device_books.take_devices(state, ask, node, ask.shape.devices)
    state.node_order.refresh_node(node)
    if ask.application.real is ask.application.peak:
        ask.application.own_amounts()
    if not ask.spec.placeholder:
        book_amounts(ask.application.real, ask.shape.pairs)
    _use_instead_of_waiting(state, ask)


def unbook_hold(state: PartitionState, ask: Allocation) -> None:
    """Books *ask*, which was HELD and is not placed there after all, as pending again."""
    node = _end_hold(state, ask)
    node.refund_pairs(ask.shape.pairs)
    if ask.shape.devices is not None:
        device_books.give_back_devices(state, ask, node)
    if ask.reservation is not None and ask.reservation.node is node:
        node.resize_claim(ask.reservation, ask.shape.pairs)
    state.node_order.refresh_node(node)
    if not ask.spec.placeholder:
        unbook_amounts(ask.application.real, ask.shape.pairs)
    _use_no_more(state, ask)
    book_pending(ask)
    state.changes += 1
    state.gained.append(node)


def settle_hold(state: PartitionState, ask: Allocation, now_ns: int) -> Node:
    """Books *ask*, which was HELD, as an allocation on the node that it was held on, and returns that node."""
    node = _end_hold(state, ask)
    state.changes += 1
    application = ask.application
    remove_ask(ask)
    ask.node = node
    ask.bound_ns = now_ns
    node.allocations[ask.key] = ask
    # The charges are the same as before, but from now on the allocation may be a victim on this node.
    node.touch()
    _add_allocation(application, ask)
    if ask.spec.placeholder:
        hold_placeholder(state, ask)
    state.allocation_count += 1
    return node


def _end_hold(state: PartitionState, ask: Allocation) -> Node:
    node: Node = ask.where
    ask.where = None
    del node.held[ask.key]
    state.held_count -= 1
    ask.application.held_count -= 1
    return node


def _book_usage(state: PartitionState, allocation: Allocation) -> None:
    application = allocation.application
    application.mark_turn()
    if application.accounts:
        user_accounting.charge_accounts(allocation)
        user_accounting.offer_shares(state, application.queue)
    for queue in application.queue.lineage():
        book_amounts(queue.used, allocation.shape.pairs)
        queue.mark_turn()


def _use_instead_of_waiting(state: PartitionState, ask: Allocation) -> None:
    """Moves the amounts of *ask* from pending to used in one walk up the queues, because every placement does this."""
    application = ask.application
    pairs = ask.shape.pairs
    pending = application.pending
    for t, amount in pairs:
        pending[t] -= amount
    leaf = application.queue
    if application.accounts:
        user_accounting.charge_accounts(ask)
        user_accounting.note_asks(application, -1)
        user_accounting.offer_shares(state, leaf)
    order = leaf.order
    if application.rooms:
        application.mark_turn()
    elif application in order.members:
        order.marked[application] = None
    for queue in leaf.lineage():
        pending, used = queue.pending, queue.used
        for t, amount in pairs:
            pending[t] -= amount
            used[t] += amount
        queue.waiting -= 1
        siblings = queue.siblings
        if queue.rooms:
            queue.mark_turn()
        elif siblings is not None and queue in siblings.members:
            siblings.marked[queue] = None


def _use_no_more(state: PartitionState, allocation: Allocation) -> None:
    application = allocation.application
    application.mark_turn()
    if application.accounts:
        user_accounting.refund_accounts(state, allocation)
    for queue in application.queue.lineage():
        unbook_amounts(queue.used, allocation.shape.pairs)
        queue.mark_turn()
        if queue.parked:
            state.gained.append(queue)


def book_allocation(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Charges *allocation* to *node*, to its application and to every queue up to the root, without any check."""
    _put_on(state, allocation, node, now_ns)
    _book_usage(state, allocation)


def _put_on(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    application = allocation.application
    pairs = allocation.shape.pairs
    key = allocation.key
    allocation.node = node
    allocation.bound_ns = now_ns
    node.allocations[key] = allocation
    node.charge_pairs(pairs)
    if allocation.shape.devices is not None:
        device_books.take_devices(state, allocation, node, allocation.shape.devices)
    state.node_order.refresh_node(node)
    if application.allocations:
        application.allocations[key] = allocation
    else:
        application.allocations = {key: allocation}
        if application.real is application.peak:
            application.own_amounts()
    if allocation.spec.task_group:
        application.members_in(allocation.spec.task_group).count_members(1)
    if allocation.spec.placeholder:
        hold_placeholder(state, allocation)
    else:
        real = application.real
        for t, amount in pairs:
            real[t] += amount
    state.allocation_count += 1
    state.changes += 1


def unbook_allocation(state: PartitionState, allocation: Allocation) -> None:
    """Frees everything that *allocation* held."""
    application = allocation.application
    pairs = allocation.shape.pairs
    node = allocation.node
    assert node is not None, "only a placed allocation can be refunded"
    allocation.node = None
    allocation.version = state.next_number()
    del node.allocations[allocation.key]
    node.departures += 1
    if allocation.preempted:
        node.expect_no_exit(allocation)
    node.refund_pairs(pairs)
    if allocation.extras is not None:
        state.callbacks.dependent_moves += allocation.dependent
        if allocation.devices:
            device_books.give_back_devices(state, allocation, node)
    state.node_order.refresh_node(node)
    del application.allocations[allocation.key]
    if allocation.spec.task_group:
        application.members_in(allocation.spec.task_group).count_members(-1)
    if allocation.spec.placeholder:
        drop_placeholder(allocation)
    else:
        _give_back(application, pairs)
    if allocation.preempted:
        unbook_victim(allocation)
    _use_no_more(state, allocation)
    state.allocation_count -= 1
    state.changes += 1
    state.gained.append(node)


def book_victims(state: PartitionState, leaving: Mapping[Allocation, Allocation | None]) -> None:
    """Counts the amounts of the victims *leaving* as preempting until they have left (preemption.md B.7).

    Each victim is mapped to its preemptor, the ask that it makes room for; ``None``: its queue is above its max.
    Because hundreds may leave at once, each node and queue is booked once for all of its victims.
    """
    of_node: dict[Node, list[Allocation]] = {}
    counts: dict[tuple[Queue, Shape], int] = {}
    for victim, preemptor in leaving.items():
        node, application, shape = victim.node, victim.application, victim.shape
        assert node is not None, "only a placed allocation can be a victim"
        victim.version = state.next_number()
        victim.preemptor = preemptor
        if victim.spec.placeholder:
            keep_placeholder_from_use(victim)
        application.preempted_count += 1
        if node in of_node:
            of_node[node].append(victim)
        else:
            of_node[node] = [victim]
        at = (application.queue, shape)
        counts[at] = counts.get(at, 0) + 1
    state.changes += 1
    for node, victims in of_node.items():
        if node.expect_exits(victims):
            state.node_order.room_changed(node)
        if node.reservations:
            # Holders of reservations may count on the room of victims, so they claim less of what is free now.
            state.gained.append(node)
    gaining: dict[Queue, None] = {}
    for (leaf, shape), count in counts.items():
        for queue in leaf.lineage():
            preempting, total = queue.preempting, queue.preempted_total
            for t, amount in shape.pairs:
                preempting[t] += amount * count
                total[t] += amount * count
            queue.preempted_count += count
            if queue.claims:
                gaining[queue] = None
    state.gained.extend(queue for queue in gaining if queue.parked)


def book_wasted(leaf: Queue, kind: str, lost: Pairs) -> None:
    """Adds *lost* resource-seconds of work, which *kind* of preemption makes tasks of *leaf* lose."""
    for queue in leaf.lineage() if lost else ():
        sums = queue.wasted.setdefault(kind, {})
        for t, amount in lost:
            sums[t] = sums.get(t, 0) + amount


def expect_no_exit(state: PartitionState, victim: Allocation) -> None:
    """Stops counting on the room of *victim*, which has not left in time."""
    node = victim.node
    state.changes += 1
    if node is not None:
        node.expect_no_exit(victim)
        state.node_order.refresh_node(node)


def unbook_victim(victim: Allocation) -> None:
    """Stops counting the amounts of *victim*, which has left, as preempting."""
    for queue in victim.queue.lineage():
        unbook_amounts(queue.preempting, victim.shape.pairs)


def book_claim(state: PartitionState, ask: Allocation) -> None:
    """Claims what *ask*, which has preempted, is about to use in the queues on its path (preemption.md 0.1).

    It is to be called once the victims are marked. In a queue that would be above its max nevertheless, the ask is
    noted as taking the place of its victims.
    """
    ask.triggered = True
    ask.queue.claimants[ask] = None
    pairs = ask.shape.pairs
    swaps_in: list[Queue] = []
    for queue in ask.queue.lineage():
        claimed = queue.claimed
        for t, amount in pairs:
            claimed[t] += amount
        queue.claims += 1
        queue.mark_turn()
        if queue.ceilings and _over_max(queue, pairs):
            swaps_in.append(queue)
    for account in ask.accounts:
        account.book_claim(ask.application, pairs)
    if swaps_in:
        ask.swaps_in = tuple(swaps_in)
    state.changes += 1


def unbook_claim(state: PartitionState, ask: Allocation) -> None:
    """Ends the claim of *ask*, which has preempted and has since been placed, withdrawn or re-armed."""
    ask.triggered = False
    ask.swaps_in = ()
    del ask.queue.claimants[ask]
    for queue in ask.queue.lineage():
        unbook_amounts(queue.claimed, ask.shape.pairs)
        queue.claims -= 1
        queue.mark_turn()
        if queue.parked:
            state.gained.append(queue)
    for account in ask.accounts:
        account.unbook_claim(ask.application, ask.shape.pairs)
        user_accounting.offer_gain(state, account)
    state.changes += 1


def _over_max(queue: Queue, pairs: Pairs) -> bool:
    """Tells whether *queue* will hold more than its max of a type in *pairs* once all claims are served."""
    return any(
        t in queue.max and queue.used[t] - queue.preempting[t] + queue.claimed[t] > queue.max[t] for t, _ in pairs
    )


def book_saving(ask: Allocation) -> None:
    """Counts the amounts of *ask*, for which room is saved on a node, as saved in its queues and for its user and
    group, so that no more is saved than their limits could ever grant."""
    for saved in _savings_of(ask):
        book_amounts(saved, ask.shape.pairs)


def unbook_saving(ask: Allocation) -> None:
    """Stops counting the amounts of *ask* as saved, because the room was given back or is used now."""
    for saved in _savings_of(ask):
        unbook_amounts(saved, ask.shape.pairs)


def _savings_of(ask: Allocation) -> list[Vector]:
    return [*(queue.saved for queue in ask.queue.lineage()), *(account.saved for account in ask.accounts)]


def saving_is_sound(ask: Allocation, pairs: Pairs) -> bool:
    """Tells whether *pairs*, which *ask* or its gang asks for, would still fit under every max on its path, and
    under the limits of its user and group, if everything claimed and saved were placed."""
    # The root is left out: its max is the size of the cluster, and the ask waits precisely because too little of the
    # cluster is free.
    limits = [queue for queue in ask.queue.lineage()[:-1] if queue.ceilings]
    if not all(limit.admits(tuple([(t, limit.saved[t] + amount) for t, amount in pairs])) for limit in limits):
        return False
    return all(account.admits(pairs, dict(enumerate(account.saved))) for account in list_binding(ask))


def ask_reshaped(state: PartitionState, ask: Allocation, shape: Shape) -> None:
    """Books that *ask*, which is in no waiting room now, asks for *shape* from now on. The amounts that are claimed,
    promised or held for it change as well."""
    before, reserved = ask.shape, ask.reservation
    state.changes += 1
    exchange_amounts(ask.application.pending, before.pairs, shape.pairs)
    for queue in ask.queue.lineage():
        exchange_amounts(queue.pending, before.pairs, shape.pairs)
        if ask.triggered:
            exchange_amounts(queue.claimed, before.pairs, shape.pairs)
        if reserved is not None and reserved.by_age:
            exchange_amounts(queue.saved, before.pairs, shape.pairs)
        queue.mark_turn()
    for account in ask.accounts:
        if ask.triggered:
            exchange_amounts(account.claimed, before.pairs, shape.pairs)
            user_accounting.offer_gain(state, account)
        if reserved is not None and reserved.by_age:
            exchange_amounts(account.saved, before.pairs, shape.pairs)
    ask.shape = shape
    if ask.swaps_in and _is_more(before, shape):
        ask.swaps_in = ()  # Its victims made room for a smaller ask.
    if reserved is not None:
        if before.devices != shape.devices:
            # They were chosen for what it wanted before.
            device_books.keep_no_more(reserved.node, ask)
        reserved.node.resize_claim(reserved, shape.pairs)
        state.node_order.refresh_node(reserved.node)
        state.gained.append(reserved.node)


def allocation_reshaped(state: PartitionState, request: Allocation, shape: Shape) -> None:
    """Books that *request*, which has a node, holds *shape* there now, without any check (scheduling.md 14)."""
    before = request.shape
    state.changes += 1
    application, node = request.application, request.node
    assert node is not None, "whatever is no ask has a node"
    request.shape = shape
    request.version = state.next_number()
    replaced = request.replaces
    # A replacement has not taken the place of its placeholder yet: until then only room on another node is charged for
    # it.
    if replaced is not None:
        if replaced.node is not node:
            _exchange_on(state, node, before, shape)
        return
    if request.spec.placeholder:
        note_placeholder_peak(application, before.pairs)
        exchange_amounts(application.placeholder, before.pairs, shape.pairs)
    else:
        _note_peak(application, before.pairs)
        exchange_amounts(application.real, before.pairs, shape.pairs)
    application.mark_turn()
    if request.spec.placeholder:
        state.note_pairs(application, application.task_groups[request.spec.task_group])
    if application.accounts:
        user_accounting.exchange_amounts(state, request, before.pairs, request, shape.pairs)
    for queue in application.queue.lineage():
        exchange_amounts(queue.used, before.pairs, shape.pairs)
        if request.preempted:
            exchange_amounts(queue.preempting, before.pairs, shape.pairs)
        queue.mark_turn()
        if queue.parked:
            state.gained.append(queue)
    # The room that the node expects from this victim has to be of its new size.
    if request.preempted and request not in state.stuck:
        node.expect_no_exit(request)
        node.expect_exits((request,))
    _exchange_on(state, node, before, shape)
    if state.recording:
        state.events.allocation_resized(request, before)


def _is_more(before: Shape, after: Shape) -> bool:
    """Tells whether *after* is more than *before* of some type."""
    had = dict(before.pairs)
    return any(amount > had.get(t, 0) for t, amount in after.pairs)


def _exchange_on(state: PartitionState, node: Node, before: Shape, after: Shape) -> None:
    node.refund_pairs(before.pairs)
    node.charge_pairs(after.pairs)
    state.node_order.refresh_node(node)
    state.gained.append(node)


def capacity_changed(state: PartitionState, before: Vector, now: Vector) -> None:
    """Changes the root's max by the difference between the capacity of a node *before* and *now*, and removes types
    whose sum becomes zero.

    Fair shares depend on the root's max; the next cycle computes them again, once for all such changes.
    """
    state.changes += 1
    root = state.root
    settings = settings_of(root) if state.recording else None
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
    if settings is not None:
        state.events.queues.amounts_changed(settings, root)
    if grew:
        state.gained.append(root)


def queue_path_admits_swap(ask: Allocation) -> Queue | None:
    """Returns the lowest queue on the path whose max does not admit *ask*, which has preempted and so has a claim to
    what it needs; ``None`` if all do.

    In a queue that was already above its max, the ask takes the place of its victims once they have left.
    """
    for queue in ask.queue.lineage():
        over = bool(queue.ceilings) and not queue.has_room(ask.shape.pairs)
        if over and (ask.victims or queue not in ask.swaps_in):
            return queue
    return None


def queue_path_admits(queue: Queue, pairs: Pairs) -> Queue | None:
    """Returns the lowest queue on the path whose max does not admit *pairs*; ``None`` if all do."""
    for ancestor in queue.lineage():
        if ancestor.ceilings and not ancestor.admits(pairs):
            return ancestor
    return None


def _give_back(application: Application, pairs: Pairs) -> None:
    """Subtracts *pairs* from the usage of *application*, after noting its peak, because the usage until now may be the
    highest ever."""
    # The peak is noted here, where amounts fall, and not where they rise, which would slow down every placement: what
    # is held just before a fall is the most since the last fall.
    if application.held_count:
        _note_peak(application, pairs)
        unbook_amounts(application.real, pairs)
        return
    real, peak = application.real, application.peak
    for t, amount in pairs:
        held = real[t]
        if held > peak[t]:
            peak[t] = held
        real[t] = held - amount


def _note_peak(application: Application, pairs: Pairs) -> None:
    """Raises the peak of *application* to its present usage, before it loses some of the types in *pairs*. Room that is
    only held for an ask does not count."""
    real, peak = application.real, application.peak
    if application.held_count:
        real = application.confirmed_amounts()
    for t, _ in pairs:
        if real[t] > peak[t]:
            peak[t] = real[t]


def exchange_amounts(vector: Vector, before: Pairs, after: Pairs) -> None:
    """Books *after* instead of *before*."""
    unbook_amounts(vector, before)
    book_amounts(vector, after)
