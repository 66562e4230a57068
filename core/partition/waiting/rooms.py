"""Asks that cannot be placed wait aside, and come back only when something that could make them fit has changed.

A group of equal asks is *active* (its application, leaf and every parent offer it to the next cycle) or *parked* in
the one waiting room that names what it lacks: room under one queue's max or under a limit of its user or group, room on
any node, or room on the node it requires. A reserved ask waits in the same rooms, by its reservation. A full cluster
therefore costs nothing, and a release wakes only what it can help.

An application that may not start yet is *held back* whole, at the queue, user or group whose limit of applications is
reached. A slot that frees there is offered to the first application of each leaf; one that does not take it passes the
offer on to the next. In a leaf sorted ``stateaware`` one application at a time may start: the others are held back at
the leaf itself, and which of them is next is looked up among :attr:`Queue.newcomers`.

An ask lends its priority to its application and queue while it waits among those that the next cycle tries, or for
nothing but room on a node that could hold it. One that a quota of its own keeps back, that no node could hold or that
the shim refuses everywhere lends nothing: otherwise what it leaves behind would pass better asks of other queues.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import WaitsFor
from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.domain.settings import SortPolicy
from kornel.core.model.allocations import AskGroup, Reservation, Room
from kornel.core.model.applications import Application
from kornel.core.model.keyed_heap import KeyedHeap
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.model.users import Account
from kornel.core.partition.gangs.gang_record import GangRoom
from kornel.core.partition.state import PartitionState
from kornel.core.policies.application_order import application_key

Gate = Queue | Account
"""A queue, user or group that may limit how many applications run or hold something."""

UNSERVED: Final = frozenset(
    {AppState.FAILING, AppState.FAILED, AppState.REJECTED, AppState.COMPLETED, AppState.EXPIRED}
)
"""Applications in these states get nothing any more (scheduling.md S-26)."""


def activate_group(group: AskGroup) -> None:
    """Offer *group* to the next cycle."""
    application = group.application
    if group in application.order:
        # It is offered already, but its first ask may be another one than before.
        application.order.offer_group(group)
        application.queue.order.mark_changed(application)
        return
    if group.parked_at is not None:
        leave_room(group)
    # After it left its room: nothing wakes it there any more, and it is not offered either.
    if application.state in UNSERVED:
        return
    if group.lent == NOTHING_WAITS:
        lend_priority(group)
    if application.backoff_until_ns:
        _park_waiter(group, application.backoff_room, WaitsFor.BACK_OFF)
        return
    application.order.offer_group(group)
    queue: Queue = application.queue
    queue.order.add(application)
    parent = queue.parent
    while parent is not None:
        parent.order.add(queue)
        queue, parent = parent, parent.parent


def retract_group(group: AskGroup) -> None:
    """Offers *group* to the next cycle no more, and its queues only for what else is in them."""
    application = group.application
    application.order.discard(group)
    queue: Queue | None = application.queue
    if application.order:
        application.queue.order.mark_changed(application)
        return
    application.queue.order.discard(application)
    # Nothing of it is offered any more: if the slot is still free, it goes to the next one of its leaf.
    gate = application.offered_by
    if gate is not None:
        application.offered_by = None
        offer_slot(gate, application.queue)
    while queue is not None and not queue.order and queue.parent is not None:
        queue.parent.order.discard(queue)
        queue = queue.parent


def stop_offering(application: Application) -> None:
    """Offers none of the groups of *application*, which may not be served any more; their asks stay known."""
    _stop_waiting(application)
    application.step_back()
    for group in list(application.groups.values()):
        leave_room(group)
        retract_group(group)


def park_below_quota(waiter: AskGroup | Reservation, shape: Shape, queue: Queue) -> None:
    """Has *waiter* wait until *queue* has room for *shape* under its max."""
    _park_waiter(waiter, queue.parked.setdefault(shape, {}), WaitsFor.QUOTA)
    if isinstance(waiter, AskGroup):
        lend_nothing(waiter)


def park_below_limit(waiter: AskGroup | Reservation, shape: Shape, account: Account) -> None:
    """Has *waiter* wait until the user or group of *account* may hold *shape*."""
    _park_waiter(waiter, account.parked.setdefault(shape, {}), WaitsFor.USER_LIMIT)
    if isinstance(waiter, AskGroup):
        lend_nothing(waiter)


def hold_back(application: Application, gate: Gate) -> None:
    """Offers none of the groups of *application* until *gate* lets another application start."""
    if application.held_at is not gate:
        _stop_waiting(application)
        application.held_at = gate
        gate.held_back.setdefault(application.queue, KeyedHeap(application_key)).add(application)
        application.step_back()
        if gate is not application.queue:
            review_newcomer(application)
    for group in list(application.order):
        _park_waiter(group, application.held_groups, WaitsFor.APPLICATION_SLOT)


def offer_application(application: Application) -> None:
    """Offers *application* to the next cycle: it started after all, or has to be looked at again."""
    _stop_waiting(application)
    for group in list(application.held_groups):
        if isinstance(group, AskGroup):
            activate_group(group)


def _stop_waiting(application: Application) -> None:
    gate = application.held_at
    if gate is None:
        return
    application.held_at = None
    waiting = gate.held_back[application.queue]
    waiting.discard(application)
    if not waiting:
        del gate.held_back[application.queue]
    if not application.backoff_until_ns and application.state not in UNSERVED:
        application.come_forward()
    if gate is not application.queue:
        review_newcomer(application)


def offer_slots(gate: Gate) -> None:
    """Offers the first that waits in each leaf, since one application less runs or holds something at *gate*."""
    for leaf in list(gate.held_back):
        offer_slot(gate, leaf)


def offer_slot(gate: Gate, leaf: Queue) -> None:
    """Offers the first application of *leaf* that *gate* holds back, if one more may start there."""
    waiting = gate.held_back.get(leaf)
    if waiting is None or not gate.open():
        return
    while (application := waiting.first_member()) is not None:
        if gate is leaf and not may_start_next(application):
            return  # Nor may any of those behind it: of all that could start, the first is not among them.
        offer_application(application)
        if application.order:
            application.offered_by = gate
            return


def park_without_node(state: PartitionState, waiter: AskGroup | Reservation, shape: Shape) -> None:
    """Has *waiter* wait until a node that can hold *shape* gains room."""
    # From now on no ask of this shape looks at the nodes, until one of them gains room (wake_for_node).
    shape.no_room = True
    _park_waiter(waiter, state.no_room.setdefault(shape, {}), WaitsFor.ROOM)
    if not shape.has_holder and isinstance(waiter, AskGroup) and not _some_node_holds(state, shape):
        lend_nothing(waiter)


def park_for_node(state: PartitionState, group: AskGroup) -> None:
    """Has *group* wait for the node it requires, which is unknown or too small: else it would have reserved it."""
    _park_waiter(group, state.waiting_for_node.setdefault(group.required_node, {}), WaitsFor.REQUIRED_NODE)
    lend_nothing(group)


def park_for_turn(state: PartitionState, waiter: AskGroup | Reservation) -> None:
    """Has *waiter* wait until the line of asks that depend on other placements is shorter."""
    _park_waiter(waiter, state.waiting_for_turn, WaitsFor.TURN)


def park_for_members(state: PartitionState, unit: AskGroup) -> None:
    """Has the gang of *unit* wait until all its members have been asked for, or the shim has answered about them."""
    _park_waiter(unit, state.gangs.gathering, WaitsFor.GANG)
    lend_nothing(unit)


def park_without_places(unit: AskGroup, room: GangRoom) -> None:
    """Has the gang of *unit* wait in *room* until there may be enough places for all its members."""
    _park_waiter(unit, room.waiters, WaitsFor.ROOM_FOR_GANG)
    lend_nothing(unit)


def back_off(application: Application) -> None:
    """Offers nothing of *application* until :func:`end_back_off`; what wakes meanwhile waits for that as well."""
    application.step_back()
    review_newcomer(application)
    for group in list(application.groups.values()):
        if group.parked_at is None:
            _park_waiter(group, application.backoff_room, WaitsFor.BACK_OFF)


def end_back_off(application: Application) -> None:
    """Has all that woke in *application* while it was backing off offered to the next cycle."""
    if application.held_at is None and application.state not in UNSERVED:
        application.come_forward()
    review_newcomer(application)
    for waiter in list(application.backoff_room):
        if isinstance(waiter, AskGroup):
            activate_group(waiter)


def _park_waiter(waiter: AskGroup | Reservation, room: Room, lacking: WaitsFor) -> None:
    if isinstance(waiter, AskGroup):
        retract_group(waiter)
        waiter.waits_for = lacking
    room[waiter] = None
    waiter.parked_at = room


def leave_room(waiter: AskGroup | Reservation) -> Room | None:
    """Takes *waiter* out of the waiting room that it sits in, which is returned."""
    room = waiter.parked_at
    if room is not None:
        room.pop(waiter, None)
        waiter.parked_at = None
        if isinstance(waiter, AskGroup):
            waiter.waits_for = None
    return room


def lend_priority(group: AskGroup) -> None:
    """Lends the application of *group* the priority of its first ask."""
    priority = group.first_ask().spec.priority
    lent = group.lent
    if priority != lent:
        group.lent = priority
        application = group.application
        application.update_lent(lent, priority)
        if application.queue.newcomers is not None:
            review_newcomer(application)


def lend_nothing(group: AskGroup) -> None:
    """Lends the application of *group* no priority: none of its asks can be placed now, whatever is free and whoever is
    first."""
    lent = group.lent
    if lent != NOTHING_WAITS:
        group.lent = NOTHING_WAITS
        application = group.application
        application.update_lent(lent, NOTHING_WAITS)
        if application.queue.newcomers is not None:
            review_newcomer(application)


def lend_instead(application: Application, before: int, now: int) -> None:
    """Has one ask lend *application* the priority *now* where it lent *before*."""
    application.update_lent(before, now)
    if application.queue.newcomers is not None:
        review_newcomer(application)


def _some_node_holds(state: PartitionState, shape: Shape) -> bool:
    """Tells whether an open node could hold *shape* if it were empty; kept reserved, a node counts as open."""
    # Both answers are kept, and put right when a node appears, grows, shrinks or leaves: every parked ask asks this,
    # and a search looks at all nodes.
    if shape in state.too_large:
        return False
    if shape.has_holder:
        return True
    pairs = shape.pairs
    node = next((node for node in state.nodes.values() if node.schedulable and node.could_hold(pairs)), None)
    if node is None:
        state.too_large[shape] = None
        return False
    _relies_on(state, shape, node)
    return True


def _relies_on(state: PartitionState, shape: Shape, node: Node) -> None:
    shape.has_holder = True
    state.holders.setdefault(node, {})[shape] = None


def note_new_capacity(state: PartitionState, node: Node) -> None:
    """Has asks that only *node* could hold wait for room like any other: it appeared, opened or grew."""
    if not node.schedulable:
        return
    for shape in [shape for shape in state.too_large if node.could_hold(shape.pairs)]:
        del state.too_large[shape]
        _relies_on(state, shape, node)
        for group in _groups_without_room(state, shape):
            lend_priority(group)


def note_lost_capacity(state: PartitionState, node: Node) -> None:
    """Has asks that only *node* could hold lend no priority any more: it left, closed or shrank."""
    for shape in state.holders.pop(node, {}):
        shape.has_holder = False
        groups = _groups_without_room(state, shape)
        if groups and not _some_node_holds(state, shape):
            for group in groups:
                lend_nothing(group)


def _groups_without_room(state: PartitionState, shape: Shape) -> list[AskGroup]:
    rooms = (state.no_room.get(shape, {}), state.root.parked.get(shape, {}))
    return [waiter for room in rooms for waiter in room if isinstance(waiter, AskGroup)]


def filter_newcomers(leaf: Queue) -> None:
    """Begins or ceases to start one application of *leaf* at a time, as its policy says."""
    filters = leaf.leaf and leaf.properties.sort_policy is SortPolicy.STATE_AWARE
    if filters and leaf.newcomers is not None:
        leaf.newcomers.renew_keys()
    elif filters:
        leaf.newcomers = KeyedHeap(application_key)
        for application in leaf.applications.values():
            review_newcomer(application)
    elif leaf.newcomers is not None:
        leaf.newcomers = None
        for application in list(leaf.held_back.get(leaf, ())):
            offer_application(application)


def review_newcomer(application: Application) -> None:
    """Decides anew whether *application* is among those one of which may start in its leaf.

    A new application whose asks cannot be placed now takes nobody's turn; nor does one that a limit of its own user
    or group, or its back-off, keeps from starting.
    """
    leaf = application.queue
    newcomers = leaf.newcomers
    if newcomers is None:
        return
    held_alone = isinstance(application.held_at, Account)
    if (
        application.state is AppState.ACCEPTED
        and application.priority != NOTHING_WAITS
        and not application.backoff_until_ns
        and not held_alone
    ):
        newcomers.add(application)
    else:
        newcomers.discard(application)
    if leaf.open() and not leaf.allocating:
        first = newcomers.first_member()
        if first is not None and first.held_at is leaf:
            offer_application(first)


def may_start_next(application: Application) -> bool:
    """Tells whether *application*, not running yet, is the one of its leaf that may start now (``stateaware``).

    What has begun to start, a gang some of whose placeholders run, goes on before another one begins.
    """
    leaf = application.queue
    if leaf.newcomers is None:
        return True
    if leaf.allocating:
        return application in leaf.allocating
    return leaf.newcomers.first_member() is application


def look_again(state: PartitionState, reservation: Reservation) -> None:
    """Has the next cycle try the ask of *reservation*, for which something has changed."""
    forget_reservation(state, reservation)
    state.reserved_ready[reservation] = None


def forget_reservation(state: PartitionState, reservation: Reservation) -> None:
    """Takes *reservation* out of wherever it waits."""
    state.reserved_ready.pop(reservation, None)
    room = leave_room(reservation)
    shape = reservation.ask.shape
    # With nobody left in it nobody would take the mark off the shape: the next ask of it looks at the nodes anew.
    if room is not None and not room and state.no_room.get(shape) is room:
        del state.no_room[shape]
        shape.no_room = False
