"""Takes apart the records of a removed partition, so that reference counting frees them.

Records refer to each other in both directions: queues and their applications, asks and their nodes. The cycle collector
does not examine objects that have lived long (:mod:`kornel.core.service.machine.garbage`), so a partition that was
merely dropped would stay in memory for ever, with all its asks. Records are freed a few at a time, so that other tasks
need not wait while a million of them are freed.
"""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import NO_SAVERS, Application
from kornel.core.model.nodes import Node
from kornel.core.model.orders.group_order import GroupOrder
from kornel.core.state.partition_state import PartitionState


def take_apart(state: PartitionState) -> Iterator[None]:
    """Free everything that *state* holds, and yield after each record. *state* can no longer be used as a partition."""
    state.timers.clear()
    state.attempts_due.clear()
    state.fair_terms_steps = state.cleaning = None
    state.types.stop_following()
    for reservation in state.reservations.values():
        reservation.parked_at = None
    state.reservations.clear()
    state.waiting_for_domain.clear()
    state.awake.clear()
    state.no_room.clear()
    state.in_line.clear()
    while state.requests:
        _release_request(state.requests.popitem()[1])
        yield
    while state.applications:
        _release_application(state.applications.popitem()[1])
        yield
    while state.nodes:
        _release_node(state.nodes.popitem()[1])
        yield
    reserving = state.reserving
    for known in (reserving.at_limits, reserving.lapsed, reserving.looked_at, reserving.short):
        known.clear()
    while state.queues:
        queue = state.queues.popitem()[1]
        if queue.parent is not None:  # Otherwise all children would be freed at once, with their parent.
            queue.parent.children.pop(queue.name, None)
        queue.dissolve()
        yield


def _release_request(request: Allocation) -> None:
    request.extras = None
    request.where = request.node = request.reservation = None


def _release_application(application: Application) -> None:
    for group in application.groups.values():
        group.parked_at = None
    application.groups.clear()
    application.rooms = ()
    application.savers = NO_SAVERS
    application.order = GroupOrder()
    application.asks.clear()
    application.allocations.clear()
    application.task_groups.clear()
    application.accounts = ()
    application.held_at = application.offered_by = None
    application.held_groups.clear()
    application.backoff_room.clear()


def _release_node(node: Node) -> None:
    node.allocations.clear()
    node.held.clear()
    node.claims = None
    node.domains = ()
    node.devices = None
