"""Waiting rooms: asks that cannot be placed are parked, and woken only when something changes that could make them fit.

A group of equal asks is *active* (its application, leaf and every parent offer it to the next cycle) or *parked* in one
waiting room for what it lacks: room under a queue's max or under a limit of its user or group, room on any node, or
room on its required node. An ask with a reservation waits in the same rooms, by its reservation. So a full cluster
costs nothing, and a release wakes only asks that it can help.

An application that may not start yet is *held back* as a whole, at the queue, user or group whose limit on applications
is reached. A slot that becomes free there is offered to the first application of each leaf; if it does not take the
slot, the next one gets the offer. In a leaf sorted ``stateaware``, one application at a time may start: the others are
held back at the leaf itself, and :attr:`Queue.newcomers` tells which of them is next.

The rank of an application and its queues is the highest priority among the active groups only, because lesser asks
would otherwise come before better asks of other queues. The priority that is shown also counts asks that wait only for
room on a node that could hold them, but not an ask that its own quota keeps back, that no node could hold, or that the
shim refuses everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import WaitsFor
from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.domain.settings import SortPolicy
from kornel.core.model.allocations import Allocation, AskGroup, Reservation, Room
from kornel.core.model.applications import NO_SAVERS, NOBODY_WAITS, Application
from kornel.core.model.nodes import Node
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.orders.waiting_rooms import ClassedLine, WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.model.users import Account
from kornel.core.policies.application_order import application_key, application_turn_key, ask_turn_key, newcomer_key
from kornel.core.policies.claim_order import age_in_line, class_in_line
from kornel.core.policies.queue_order import queue_turn_key
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangRoom
from kornel.core.state.waiting import failing

Gate = Queue | Account
"""A queue, user or group that may limit how many applications run or hold something."""

UNSERVED: Final = frozenset(
    {AppState.FAILING, AppState.FAILED, AppState.REJECTED, AppState.COMPLETED, AppState.EXPIRED}
)
"""The states in which an application gets nothing more (scheduling.md S-26)."""


def activate_group(group: AskGroup) -> None:
    """Offer *group* to the next cycle."""
    application = group.application
    order, leaf = application.order, application.queue
    if leaf.set_back:
        bring_forward(leaf)
    if group in order.groups:
        # The group is offered already, but its first ask may be another one than before.
        order.offer_group(group)
        application.update_rank()
        return
    if group.parked_at is not None:
        leave_room(group)
    # This comes after the group left its room, so that nothing wakes it there any more, and it is not offered either.
    if application.state in UNSERVED:
        return
    if group.lent == NOTHING_WAITS:
        lend_priority(group)
    if application.backoff_until_ns:
        _park_for_back_off(group)
        return
    order.offer_group(group)
    if application.missing:
        application.update_rank()
    elif group.lent > application.rank:
        application.set_rank(group.lent)
    leaf.order.add(application)
    siblings = leaf.siblings
    if siblings is not None and leaf not in siblings.members:
        _offer_leaf(leaf)


def _offer_leaf(leaf: Queue) -> None:
    for queue in leaf.lineage():
        siblings = queue.siblings
        # A queue that is in the order of its parent implies that the parent is in the next order. Changes of its place
        # there are marked elsewhere.
        if siblings is None or queue in siblings.members:
            return
        siblings.add(queue)


def bring_forward(leaf: Queue) -> None:
    """Tries those of *leaf* again in their turn."""
    leaf.come_forward()
    for room in leaf.rooms:
        room.come_forward(leaf)
    if leaf.order.members:
        _offer_leaf(leaf)


def end_turn(leaf: Queue, waiter: Allocation | AskGroup) -> None:
    """Notes that *waiter* of *leaf* keeps nobody back any more: the shim has judged it, or it waits for something
    else."""
    if leaf.turns.pop(waiter, None) is not None and leaf.set_back:
        bring_forward(leaf)


def retract_group(group: AskGroup) -> None:
    """Stops offering *group* to the next cycle, and its queues too if nothing else in them is offered."""
    application = group.application
    application.order.discard(group)
    queue = application.queue
    if queue.set_back:
        bring_forward(queue)  # The first may have been this one, and dependent asks behind it may join the line.
    gate = application.offered_by
    if application.order.groups:
        application.update_rank()
        if gate is not None:
            _offer_to_better(application, gate)
        return
    if application.rank != NOTHING_WAITS:
        application.set_rank(NOTHING_WAITS)
    queue.order.discard(application)
    # No group of the application is offered any more: if its slot is still free, the next application of the leaf gets
    # it.
    if gate is not None:
        application.offered_by = None
        offer_slot(gate, queue)
    for empty in queue.lineage():
        if empty.order.members or empty.siblings is None:
            return
        empty.siblings.discard(empty)


def _offer_to_better(application: Application, gate: Gate) -> None:
    """Offers the slot of *gate*, which was offered to *application*, to the next one in the leaf too if that comes
    before it, because the more important asks of *application* have found no room."""
    waiting = gate.held_back.get(application.queue)
    first = None if waiting is None else waiting.first_member()
    if first is not None and application_key(first) < application_turn_key(application):
        offer_slot(gate, application.queue)


def stop_offering(application: Application) -> None:
    """Stops offering the groups of *application*, which may not be served any more; their asks are kept."""
    _stop_waiting(application)
    application.step_back()
    for group in list(application.groups.values()):
        leave_room(group)
        retract_group(group)


def park_below(waiter: AskGroup | Reservation, shape: Shape, limit: Gate) -> None:
    """Parks *waiter* until there is room for *shape* under the max of a queue, or under the limit of a user or
    group."""
    lacking = WaitsFor.QUOTA if isinstance(limit, Queue) else WaitsFor.USER_LIMIT
    room = _room_for(limit.parked, shape)
    if room.line is None and not room.groups:
        line_up(room)  # While it is empty: to line up thousands at once would take long.
    _park_waiter(waiter, room, lacking)
    if isinstance(waiter, AskGroup):
        lend_nothing(waiter)


def line_up(room: WaitingRoom) -> None:
    """Lines up those who take turns in *room*, unless they wait for what a gang asks for: of gangs with the same sum,
    members may be owed different things."""
    if room.shape.resources:
        room.line = ClassedLine(class_in_line, age_in_line)
        for group in room.groups:
            room.line.add(group)


def note_short(state: PartitionState, limit: Gate, shapes: tuple[Shape, ...]) -> None:
    """Notes the *shapes*, of which some wait at *limit*, that lack more of something than is free there, though some of
    it is: they may begin to save there, because otherwise smaller asks would take it."""
    round_ = state.reserving
    if round_.delay_ns is not None and (short := [shape for shape in shapes if is_short(limit, shape)]):
        round_.short[limit] = tuple(dict.fromkeys([*round_.short.get(limit, ()), *short]))
        round_.choose_at_ns = round_.choose_not_before_ns


def is_short(limit: Gate, shape: Shape) -> bool:
    """Tells whether some of what *shape* lacks is free below *limit*, but too little of it."""
    most = limit.max
    return any(t in most and 0 < most[t] - limit.count_taken(t) < amount for t, amount in shape.pairs)


def hold_back(application: Application, gate: Gate) -> None:
    """Stops offering the groups of *application* until *gate* lets another application start."""
    if application.held_at is not gate:
        _stop_waiting(application)
        application.held_at = gate
        gate.held_back.setdefault(application.queue, KeyedHeap(application_key)).add(application)
        application.step_back()
        if gate is not application.queue:
            review_newcomer(application)
    if application.held_groups is NOBODY_WAITS:
        application.held_groups = {}
    for group in list(application.order):
        _park_waiter(group, application.held_groups, WaitsFor.APPLICATION_SLOT)


def offer_application(application: Application) -> None:
    """Offers *application* to the next cycle, because it has started after all or has to be tried again."""
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
    """Offers a slot to the first waiting application of each leaf, because one application less runs or holds something
    at *gate*."""
    for leaf in list(gate.held_back):
        offer_slot(gate, leaf)


def offer_slot(gate: Gate, leaf: Queue) -> None:
    """Offers the first application of *leaf* that *gate* holds back, if one more may start there."""
    waiting = gate.held_back.get(leaf)
    if waiting is None or not gate.open():
        return
    while (application := waiting.first_member()) is not None:
        if gate is leaf and not may_start_next(application):
            return  # The first application that could start is not held here, so none after it may start.
        offer_application(application)
        if application.order:
            application.offered_by = gate
            return


def park_without_node(state: PartitionState, waiter: AskGroup | Reservation, shape: Shape) -> None:
    """Parks *waiter* until a node that can hold *shape* gains room."""
    _park_waiter(waiter, find_no_room(state, shape), WaitsFor.ROOM)
    if isinstance(waiter, AskGroup):
        _enter_line(state, waiter)
    if not shape.has_holder and isinstance(waiter, AskGroup) and not _some_node_holds(state, shape):
        lend_nothing(waiter)


def _enter_line(state: PartitionState, group: AskGroup) -> None:
    state.in_line.add(group)
    if state.reserving.line is None:
        state.in_line.sort_many()


def find_no_room(state: PartitionState, shape: Shape) -> WaitingRoom:
    """Notes that no node has room for *shape*, and returns the room of those who wait for some. From now on no ask of
    this shape searches the nodes until one of them gains room (:func:`wake_for_node`)."""
    shape.no_room = True
    room = _room_for(state.no_room, shape)
    room.fall_asleep(state.callbacks.now_ns)
    return room


def park_for_node(state: PartitionState, group: AskGroup) -> None:
    """Parks *group* until its required node appears or grows. The node is unknown or too small; otherwise the ask would
    have a reservation there."""
    _park_waiter(group, state.waiting_for_node.setdefault(group.required_node, {}), WaitsFor.REQUIRED_NODE)
    lend_nothing(group)


def park_for_domain(state: PartitionState, waiter: AskGroup | Reservation) -> None:
    """Parks *waiter* until a domain that is allowed for its group gains room."""
    _park_waiter(waiter, state.waiting_for_domain, WaitsFor.DOMAIN)
    if isinstance(waiter, AskGroup):
        _enter_line(state, waiter)
        lend_nothing(waiter)


def park_for_turn(state: PartitionState, waiter: AskGroup | Reservation) -> None:
    """Parks *waiter* until the line of asks that depend on other placements is shorter."""
    _park_waiter(waiter, state.waiting_for_turn, WaitsFor.TURN)
    if isinstance(waiter, AskGroup):
        waiter.application.queue.turns[waiter] = ask_turn_key(waiter.first_ask())


def park_for_members(state: PartitionState, unit: AskGroup) -> None:
    """Parks the gang of *unit* until the shim has asked for all its members, or has answered about them."""
    _park_waiter(unit, state.gangs.gathering, WaitsFor.GANG)
    lend_nothing(unit)


def park_without_places(unit: AskGroup, room: GangRoom) -> None:
    """Parks the gang of *unit* in *room* until there may be enough places for all its members."""
    _park_waiter(unit, room.waiters, WaitsFor.ROOM_FOR_GANG)
    lend_nothing(unit)


def back_off(application: Application) -> None:
    """Stops offering the groups of *application* until :func:`end_back_off`, including groups that are woken
    meanwhile."""
    application.step_back()
    review_newcomer(application)
    for group in list(application.groups.values()):
        if group.parked_at is None:
            _park_for_back_off(group)


def end_back_off(application: Application) -> None:
    """Offers the groups of *application* that were woken during its back-off to the next cycle."""
    if application.held_at is None and application.state not in UNSERVED:
        application.come_forward()
    review_newcomer(application)
    for waiter in list(application.backoff_room):
        if isinstance(waiter, AskGroup):
            activate_group(waiter)


def _park_for_back_off(group: AskGroup) -> None:
    application = group.application
    if application.backoff_room is NOBODY_WAITS:
        application.backoff_room = {}
    _park_waiter(group, application.backoff_room, WaitsFor.BACK_OFF)


def _park_waiter(waiter: AskGroup | Reservation, room: Room | WaitingRoom, lacking: WaitsFor) -> None:
    if isinstance(waiter, AskGroup):
        retract_group(waiter)
        waiter.waits_for = lacking
    if not isinstance(room, WaitingRoom):
        room[waiter] = None
    else:
        room.awake = False  # Whoever is in it lacks the same, and need not be tried.
        if isinstance(waiter, AskGroup) and _takes_turn(waiter, lacking):
            room.enter_group(waiter)
        else:
            room.at_once[waiter] = None
    waiter.parked_at = room


def _room_for(rooms: dict[Shape, WaitingRoom], shape: Shape) -> WaitingRoom:
    room = rooms.get(shape)
    if room is None:
        room = rooms[shape] = WaitingRoom(shape, turn_key)
    return room


def _takes_turn(group: AskGroup, lacking: WaitsFor) -> bool:
    """Tells whether *group* is woken in its turn: unless the tries of its application are counted, or it only becomes
    one of those of which one may start when it is woken."""
    leaf = group.application.queue
    if leaf.properties.unschedulable_backoff:
        return False
    return lacking is WaitsFor.ROOM or leaf.newcomers is None


def turn_key(ranks: Mapping[Any, float], member: Queue | Application) -> tuple[Any, ...]:
    """Returns the sort key of *member* among its siblings, with its rank from *ranks*."""
    if isinstance(member, Queue):
        return queue_turn_key(member, ranks[member])
    return application_turn_key(member, ranks[member])


def leave_room(waiter: AskGroup | Reservation) -> Room | WaitingRoom | None:
    """Takes *waiter* out of its waiting room, and returns the room."""
    room = waiter.parked_at
    if room is not None:
        if isinstance(waiter, AskGroup):
            line_of(waiter).discard(waiter)
        if isinstance(room, WaitingRoom):
            if isinstance(waiter, AskGroup) and waiter.size:
                failing.note_chances(waiter, room)
            room.discard(waiter)
        else:
            room.pop(waiter, None)
        waiter.parked_at = None
        if isinstance(waiter, AskGroup):
            if waiter.waits_for is WaitsFor.TURN:
                end_turn(waiter.application.queue, waiter)
            waiter.waits_for = None
    return room


def line_of(group: AskGroup) -> KeyedHeap[AskGroup] | ClassedLine:
    """Returns the line in which room is saved, where *group* stands while no node has room for it, or that of its room
    if it waits at a limit."""
    room = group.parked_at
    if isinstance(room, WaitingRoom) and room.line is not None:
        return room.line
    line = group.application.queue.lineage()[-1].in_line
    assert line is not None, "it is kept at the root"
    return line


def lend_priority(group: AskGroup) -> None:
    """Lends the application of *group* the priority of its first ask."""
    priority = group.first_ask().spec.priority
    lent = group.lent
    if priority != lent:
        group.lent = priority
        application = group.application
        application.update_lent(lent, priority)
        if lent != NOTHING_WAITS and group in application.order.groups:
            application.update_rank()
        if application.queue.newcomers is not None:
            review_newcomer(application)
    elif group.application.missing and group in group.application.order.groups:
        group.application.update_rank()  # The first ask may repair a gang although the one before did not.


def lend_nothing(group: AskGroup) -> None:
    """Stops lending the priority of *group* to its application, because none of its asks can be placed now, whatever is
    free and in whatever order."""
    lent = group.lent
    if lent != NOTHING_WAITS:
        group.lent = NOTHING_WAITS
        application = group.application
        application.update_lent(lent, NOTHING_WAITS)
        if application.queue.newcomers is not None:
            review_newcomer(application)


def lend_instead(application: Application, before: int, now: int) -> None:
    """Replaces the priority *before* that an ask lent to *application* by *now*."""
    application.update_lent(before, now)
    review_newcomer(application)


def _some_node_holds(state: PartitionState, shape: Shape) -> bool:
    """Tells whether an open node could hold *shape* if it were empty. A node with reservations counts as open."""
    # Both answers are cached, and corrected when a node appears, grows, shrinks or leaves, because every parked ask
    # needs the answer, and a search goes through all nodes.
    if shape in state.too_large:
        return False
    if shape.has_holder:
        return True
    node = next((node for node in state.nodes.values() if node.schedulable and node.could_hold_shape(shape)), None)
    if node is None:
        state.too_large[shape] = None
        return False
    _relies_on(state, shape, node)
    return True


def _relies_on(state: PartitionState, shape: Shape, node: Node) -> None:
    shape.has_holder = True
    state.holders.setdefault(node, {})[shape] = None


def note_new_capacity(state: PartitionState, node: Node) -> None:
    """Makes asks that only *node* could hold wait for room like any other, after it appeared, opened or grew."""
    if not node.schedulable:
        return
    for shape in [shape for shape in state.too_large if node.could_hold_shape(shape)]:
        del state.too_large[shape]
        _relies_on(state, shape, node)
        for group in _groups_without_room(state, shape):
            lend_priority(group)


def note_lost_capacity(state: PartitionState, node: Node) -> None:
    """Makes asks that only *node* could hold stop lending their priority, after it left, closed or shrank."""
    for shape in state.holders.pop(node, {}):
        shape.has_holder = False
        groups = _groups_without_room(state, shape)
        if groups and not _some_node_holds(state, shape):
            for group in groups:
                lend_nothing(group)


def _groups_without_room(state: PartitionState, shape: Shape) -> list[AskGroup]:
    rooms = (state.no_room.get(shape), state.root.parked.get(shape))
    return [waiter for room in rooms if room is not None for waiter in room if isinstance(waiter, AskGroup)]


def renew_order(queue: Queue) -> None:
    """Sorts anew what *queue* keeps in order, because its policy may have changed, and with it the rule of the keys:
    its children or applications, and those of its applications that a limit of applications holds back."""
    queue.order.renew_keys()
    for waiter in queue.turns:
        queue.turns[waiter] = ask_turn_key(waiter.first_ask() if isinstance(waiter, AskGroup) else waiter)
    if queue.set_back:
        bring_forward(queue)
    for room in queue.rooms:
        for order in room.branches[queue].orders.values():
            order.renew_keys()
    if queue.leaf:
        for gate in {application.held_at: None for application in queue.applications.values()}:
            if gate is not None:
                gate.held_back[queue].renew_keys()


def filter_newcomers(leaf: Queue) -> None:
    """Makes the applications of *leaf* start one at a time, or stops that, according to its policy."""
    filters = leaf.leaf and leaf.properties.sort_policy is SortPolicy.STATE_AWARE
    if filters and leaf.newcomers is not None:
        leaf.newcomers.renew_keys()
    elif filters:
        leaf.newcomers = KeyedHeap(newcomer_key)
        for application in leaf.applications.values():
            review_newcomer(application)
    elif leaf.newcomers is not None:
        leaf.newcomers = None
        for application in leaf.starting:
            application.settled, application.timer_ns = True, None
        leaf.starting.clear()
        for application in list(leaf.held_back.get(leaf, ())):
            offer_application(application)


def review_newcomer(application: Application) -> None:
    """Decides again whether *application* is among those of which one may start in its leaf.

    A new application does not take the turn of others if its asks cannot be placed now, and save no room on nodes
    either, or if a limit of its user or group, or its back-off, keeps it from starting.
    """
    leaf = application.queue
    newcomers = leaf.newcomers
    if newcomers is None:
        return
    held_alone = isinstance(application.held_at, Account)
    if (
        application.state is AppState.ACCEPTED
        and (application.priority != NOTHING_WAITS or application.savers)
        and not application.backoff_until_ns
        and not held_alone
    ):
        newcomers.add(application)
    else:
        newcomers.discard(application)
    if leaf.open() and not leaf.allocating and not leaf.starting:
        first = newcomers.first_member()
        if first is not None and first.held_at is leaf:
            offer_application(first)


def note_saver(ask: Allocation) -> None:
    """Notes that room is saved on a node for *ask* by age, for which it waits although it lends no priority."""
    application = ask.application
    application.savers = {**application.savers, ask: None}
    review_newcomer(application)


def note_saver_no_more(ask: Allocation) -> None:
    """Notes that no room is saved for *ask* by age any more."""
    application = ask.application
    application.savers = {other: None for other in application.savers if other is not ask} or NO_SAVERS
    review_newcomer(application)


def may_start_next(application: Application, priority: int | None = None, now_ns: int = 0) -> bool:
    """Tells whether *application*, which does not run yet, is the one of its leaf that may start at *now_ns*
    (``stateaware``). With *priority*: whether it would be if asks of it with this priority, for which there is no room,
    could be placed.

    An application that has begun to start, such as a gang with some placeholders or a driver without executors, goes on
    before another one begins.
    """
    leaf = application.queue
    if leaf.newcomers is None:
        return True
    if leaf.allocating:
        return application in leaf.allocating
    if any(now_ns < other.start_ends_ns() for other in leaf.starting):
        return False
    first = leaf.newcomers.first_member()
    if first is application or priority is None:
        return first is application
    shown = -max(priority, application.priority) if leaf.properties.sort_by_priority else 0
    return first is None or (shown, *application_turn_key(application)[1:]) < newcomer_key(first)


def look_again(state: PartitionState, reservation: Reservation) -> None:
    """Makes the next cycle try the ask of *reservation*, for which something has changed."""
    forget_reservation(state, reservation)
    state.reserved_ready[reservation] = None


def forget_reservation(state: PartitionState, reservation: Reservation) -> None:
    """Removes *reservation* from the waiting room in which it is."""
    state.reserved_ready.pop(reservation, None)
    room = leave_room(reservation)
    shape = reservation.ask.shape
    # An empty room would never be woken to remove the mark of the shape, so the next ask of it searches the nodes
    # again.
    if room is not None and not room and state.no_room.get(shape) is room:
        del state.no_room[shape]
        shape.no_room = False
