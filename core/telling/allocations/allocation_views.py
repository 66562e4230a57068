"""Asks, allocations and the load of other schedulers."""

from __future__ import annotations

from core.domain.views import AllocationView, AskView, ForeignView, LogEntry
from core.model.allocations import Allocation
from core.model.applications import Application
from core.model.nodes import ForeignLoad, Node


def ask(pending: Allocation) -> AskView:
    """An ask that has not been placed."""
    spec, group, reservation = pending.spec, pending.group, pending.reservation
    failures = () if pending.failures is None else pending.failures.recent_first()
    return AskView(
        spec.key,
        spec.application_id,
        spec.tags,
        pending.created_ns,
        pending.shape.resources,
        spec.priority,
        spec.required_node,
        spec.placeholder,
        spec.task_group,
        tuple([LogEntry(failure.message, failure.last_ns, failure.times) for failure in reversed(failures)]),
        pending.triggered,
        spec.originator,
        bool(failures) or reservation is not None or (group is not None and group.parked_at is not None),
        pending.scale_up,
        reservation.node.node_id if reservation is not None else "",
    )


def allocations(holder: Node | Application) -> tuple[AllocationView, ...]:
    """What is on a node, or what an application holds, by key."""
    placed = holder.allocations
    return tuple([placed[key].view or allocation(placed[key]) for key in sorted(placed)])


def allocation(placed: Allocation) -> AllocationView:
    """An allocation on its node: the same object as last time if nothing of it has changed since."""
    view = placed.view
    if view is None:
        spec, node = placed.spec, placed.node
        view = placed.view = AllocationView(
            spec.key,
            spec.application_id,
            spec.tags,
            placed.created_ns,
            placed.bound_ns,
            placed.shape.resources,
            spec.priority,
            node.node_id if node is not None else "",
            spec.placeholder,
            placed.placeholder_ns,
            spec.task_group,
            placed.preempted,
            spec.originator,
        )
    return view


def foreign(load: ForeignLoad) -> ForeignView:
    """Load of another scheduler, as it was reported last."""
    spec = load.spec
    return ForeignView(
        spec.key,
        spec.tags,
        load.since_ns,
        load.shape.resources,
        spec.priority,
        spec.node_id,
        spec.foreign == "static",
    )
