"""Finds whose turn it is, among those who are offered to the cycle and those in waiting rooms that are awake."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.allocations import AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.orders.waiting_rooms import Branch, WaitingRoom, turn_of_group
from kornel.core.model.queues import Queue
from kornel.core.model.users import Account
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.dependence import find_first_judged
from kornel.core.state.waiting.rooms import activate_group, find_no_room, note_short


def first_group(state: PartitionState) -> AskGroup | None:
    """Returns the group whose turn it is: starting at the root, always the best child, then the best application, then
    its first group. One that waits in a room that is awake is offered to the cycle now."""
    while True:
        rooms = open_rooms(state) if state.awake else []
        queue = state.root
        branches = _branches_of(rooms, queue) if rooms else []
        while not queue.leaf:
            child = _first_below(queue, branches) if branches else queue.order.first_member()
            if child is None:
                return None
            queue = child
            if branches:
                branches = _branches_of(rooms, queue)
        application: Application | None = _first_below(queue, branches)
        if application is None:
            return None
        offered = application.order.first_group()
        groups = [branch.first_group(application) for branch in branches if application in branch.groups]
        if not groups:
            return offered
        group = min(groups if offered is None else [offered, *groups], key=turn_of_group)
        if group.parked_at is not None:
            activate_group(group)
        if group in application.order:
            return group


def has_to_wait(state: PartitionState, group: AskGroup) -> bool:
    """Tells whether *group*, whose turn it is, stands in its leaf behind one whom the shim has to judge first. If so,
    nobody of the leaf is tried until :func:`~rooms.bring_forward`."""
    leaf = group.application.queue
    if not leaf.turns or leaf.parent is None or find_first_judged(state.callbacks, group.first_ask()) is None:
        return False
    for room in state.awake:
        if leaf in room.branches:
            room.step_back(leaf)
    for queue in leaf.lineage():
        if queue.siblings is None or (queue is not leaf and queue.order.members):
            break
        queue.siblings.discard(queue)
    leaf.step_back()
    return True


def rank_of(application: Application, rooms: list[WaitingRoom]) -> float:
    """Returns the rank of *application* among those that are offered or wait in *rooms* that are awake."""
    branches = _branches_of(rooms, application.queue)
    return max([application.rank, *(branch.ranks[application] for branch in branches if application in branch.ranks)])


def first_offered(queue: Queue, rooms: list[WaitingRoom]) -> tuple[Any, float]:
    """Returns the child (or application) of *queue* whose turn is first, of those that are offered or wait in *rooms*
    that are awake, with its rank; ``None`` if there is none."""
    branches = _branches_of(rooms, queue)
    first = _first_below(queue, branches)
    ranks = [branch.ranks[first] for branch in branches if first in branch.ranks]
    if first in queue.order:
        ranks.append(first.rank)
    return first, max(ranks, default=NOTHING_WAITS)


def open_rooms(state: PartitionState) -> list[WaitingRoom]:
    """Returns the rooms that are awake and in which the first waiter may be served, and puts the others to sleep."""
    awake = state.awake
    if not awake:
        return []
    found = {room: gate for room, gate in awake.items() if room.awake and room.groups and _is_open(state, room, gate)}
    if len(found) < len(awake):
        for room in awake:
            if room not in found:
                room.fall_asleep(state.callbacks.now_ns)
        awake.clear()
        awake.update(found)
    return list(found)


def _is_open(state: PartitionState, room: WaitingRoom, gate: Queue | Account | None) -> bool:
    """Tells whether an ask of the shape of *room* may find what those in it wait for, so that the first is tried."""
    shape = room.shape
    if gate is not None:
        if gate.admits(shape.pairs):
            return True
        note_short(state, gate, (shape,))
        return False
    if shape.no_room:
        return False
    if shape.devices is not None or state.node_order.first_fit(shape.pairs) is not None:
        return True
    find_no_room(state, shape)
    return False


def _branches_of(rooms: list[WaitingRoom], queue: Queue) -> list[Branch]:
    return [room.branches[queue] for room in rooms if queue in room.branches]


def _first_below(queue: Queue, branches: list[Branch]) -> Any:
    """Returns the first child (or application) of *queue* among those offered and those in *branches* of it, or
    ``None``.

    A member in several of them has the smallest of its keys, since they differ in nothing but the rank, of which the
    highest counts.
    """
    if not branches:
        return queue.order.first_member()
    by_priority = queue.properties.sort_by_priority
    orders = [order for branch in branches for order in branch.first_orders(by_priority=by_priority)]
    if queue.order.members:
        orders.append(queue.order)
    if len(orders) == 1:
        return orders[0].first_member()
    found = [entry for order in orders if (entry := order.first_entry()) is not None]
    return min(found, key=itemgetter(0))[1] if found else None
