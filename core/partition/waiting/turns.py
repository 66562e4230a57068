"""Finds whose turn it is, among those who are offered to the cycle and those in waiting rooms that are awake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kornel.core.model.allocations import AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.model.waiting_rooms import Branch, QueueBranch, WaitingRoom, turn_of_group
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.rooms import activate_group, find_no_room, note_short


def first_group(state: PartitionState) -> AskGroup | None:
    """Returns the group whose turn it is: starting at the root, always the best child, then the best application, then
    its first group. One that waits in a room that is awake is offered to the cycle now."""
    while True:
        rooms = _awake_rooms(state)
        queue = state.root
        branches = _branches_below(rooms, queue)
        while not queue.leaf:
            child = _first_below(queue, branches)
            if child is None:
                return None
            assert isinstance(child, Queue)
            queue = child
            if branches:
                branches = _branches_below(rooms, queue)
        application = _first_below(queue, branches)
        if application is None:
            return None
        assert isinstance(application, Application)
        if not branches:
            return application.order.first_group()
        groups = [branch.first_group() for branch in _branches_of(rooms, application)]
        offered = application.order.first_group()
        group = min(groups if offered is None else [offered, *groups], key=turn_of_group)
        if group.parked_at is not None:
            activate_group(group)
        if group in application.order:
            return group


def rank_of(state: PartitionState, application: Application) -> float:
    """Returns the rank of *application* among those that are offered or wait in rooms that are awake."""
    branches = _branches_of(_awake_rooms(state), application)
    return max([application.rank, *(branch.rank for branch in branches)])


def offered_below(state: PartitionState, queue: Queue) -> Iterator[tuple[Any, float]]:
    """Yields the children (or applications) of *queue* with somebody to try, each with its rank; one that has waiters
    of several rooms may come again with another rank."""
    for member in queue.order:
        yield member, member.rank
    for branch in _branches_below(_awake_rooms(state), queue):
        for inner in branch.inner:
            yield inner.member, inner.rank


def first_offered(state: PartitionState, queue: Queue) -> Iterator[tuple[Queue | Application, float]]:
    """Yields the first child (or application) of *queue* with its rank: of those that are offered, and of each room."""
    first = queue.order.first_member()
    if first is not None:
        yield first, first.rank
    for branch in _branches_below(_awake_rooms(state), queue):
        inner = branch.inner.first_member()
        if inner is not None:
            yield inner.member, inner.rank


def _awake_rooms(state: PartitionState) -> list[WaitingRoom]:
    awake = state.awake
    if not awake:
        return []
    found = [room for room in awake if room.awake and room.groups and _is_open(state, room)]
    if len(found) < len(awake):
        for room in awake:
            room.awake = False
        awake.clear()
        for room in found:
            room.awake = True
            awake[room] = None
    return found


def _is_open(state: PartitionState, room: WaitingRoom) -> bool:
    """Tells whether an ask of the shape of *room* may find what those in it wait for, so that the first is tried."""
    gate, shape = room.gate, room.shape
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


def _branches_of(rooms: list[WaitingRoom], application: Application) -> list[Branch]:
    branches = [room.branch_of(application) for room in rooms]
    return [branch for branch in branches if branch is not None]


def _branches_below(rooms: list[WaitingRoom], queue: Queue) -> list[QueueBranch]:
    return [room.branches[queue] for room in rooms if queue in room.branches]


def _first_below(queue: Queue, branches: list[QueueBranch]) -> Queue | Application | None:
    """Returns the first child (or application) of *queue* among those offered and those in *branches* of it.

    A member in several of them has the smallest of its keys, since they differ in nothing but the rank, of which the
    highest counts.
    """
    if not branches:
        first: Queue | Application | None = queue.order.first_member()
        return first
    if len(branches) == 1 and not queue.order.members:
        found = branches[0].inner.first_member()
        return None if found is None else found.member
    entries = [branch.inner.first_entry() for branch in branches]
    keyed = [(entry[0], entry[1].member) for entry in entries if entry is not None]
    offered = queue.order.first_entry()
    if offered is not None:
        keyed.append(offered)
    return min(keyed, key=_key_in_entry)[1] if keyed else None


def _key_in_entry(entry: tuple[tuple[object, ...], Queue | Application]) -> tuple[object, ...]:
    return entry[0]
