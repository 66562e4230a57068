"""Asks, allocations and the load of other schedulers."""

from __future__ import annotations

from core.domain.views import AllocationView, AskView, ForeignView, LogEntry
from core.model.allocations import Allocation
from core.model.nodes import ForeignLoad


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


def allocation(placed: Allocation) -> AllocationView:
    """An allocation on its node: the same object as last time if nothing of it has changed since."""
    spec, node, resources = placed.spec, placed.node, placed.shape.resources
    node_id = node.node_id if node is not None else ""
    known = placed.view
    if (
        known is not None
        and known.resources is resources
        and known.preempted is placed.preempted
        and known.bound_ns == placed.bound_ns
        and known.node_id == node_id
        and known.tags is spec.tags
        and known.priority == spec.priority
        and known.placeholder_ns == placed.placeholder_ns
    ):
        return known
    view = placed.view = AllocationView(
        spec.key,
        spec.application_id,
        spec.tags,
        placed.created_ns,
        placed.bound_ns,
        resources,
        spec.priority,
        node_id,
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
