"""Whose turn comes before an ask's: counted, not sorted, so a backlog of any size costs little."""

from __future__ import annotations

from core.model.allocations import Allocation
from core.model.applications import Application
from core.partition.state import PartitionState
from core.policies.application_order import application_key
from core.policies.queue_order import queue_key
from core.telling.allocations.explanation import Position


def position(state: PartitionState, ask: Allocation) -> Position:
    """The place of a pending *ask* if everything waiting were looked at in order, as queues stand now (from 1).

    Queue and application order move with every placement, so this is the order of the next look, not a promise.
    Cost: linear in what waits in the leaf, and in the siblings on the way to the root.
    """
    application, leaf = ask.application, ask.queue
    mine = _waiting(application)
    before = sum(1 for other in mine if other.order < ask.order)
    # Held asks and those in a pool are pending too, so an ask always finds itself.
    in_leaf, leaf_of = before, len(mine)
    key = application_key(application)
    for other in leaf.applications.values():
        if other is not application:
            count = len(_waiting(other))
            leaf_of += count
            if count and application_key(other) < key:
                in_leaf += count
    overall = in_leaf
    for queue in leaf.lineage():
        if queue.parent is not None:
            own = queue_key(queue)
            siblings = queue.parent.children.values()
            overall += sum(s.waiting for s in siblings if s is not queue and s.waiting and queue_key(s) < own)
    return Position(before + 1, len(mine), in_leaf + 1, leaf_of, overall + 1, max(overall + 1, state.root.waiting))


def _waiting(application: Application) -> list[Allocation]:
    return [ask for ask in application.asks.values() if ask.pending]
