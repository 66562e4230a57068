"""Views as ``kornel.v1`` sends them."""

from __future__ import annotations

from collections.abc import Mapping

from kornel.v1 import read_pb2 as pb

from core.domain.health import HealthReport
from core.domain.resources import clamp
from core.domain.secrets import without_secrets
from core.telling.allocations.allocation_views import AllocationView, AskView
from core.telling.applications.application_views import ApplicationSummary, ApplicationView
from core.telling.nodes.node_views import NodeSummary, NodeView
from core.telling.queues.queue_views import QueueView


def queue_message(view: QueueView) -> pb.QueueInfo:
    """One queue."""
    return pb.QueueInfo(
        path=view.path,
        leaf=view.leaf,
        managed=view.managed,
        status=view.status,
        guaranteed=_amounts(view.guaranteed),
        max=_amounts(view.max or {}),
        used=_amounts(view.used),
        pending=_amounts(view.pending),
        preempting=_amounts(view.preempting),
        headroom=_amounts(view.headroom or {}),
        properties=without_secrets(view.properties),
        application_count=view.applications,
        running_application_count=view.running_applications,
        max_applications=view.max_applications,
        preempted_allocations=view.preempted_allocations,
    )


def summary_message(view: ApplicationSummary) -> pb.ApplicationSummary:
    """One application in short."""
    return pb.ApplicationSummary(
        application_id=view.application_id,
        queue=view.queue,
        user=view.user,
        state=view.state,
        submitted_ns=view.submitted_ns,
        finished_ns=view.finished_ns,
        used=_amounts(view.used),
        placeholder=_amounts(view.placeholder),
        pending=_amounts(view.pending),
        allocation_count=view.allocations,
        ask_count=view.asks,
    )


def application_message(view: ApplicationView, summary: ApplicationSummary) -> pb.GetApplicationResponse:
    """One application with everything it asks for and holds."""
    return pb.GetApplicationResponse(
        summary=summary_message(summary),
        groups=view.groups,
        started_ns=view.started_ns,
        max_used=_amounts(view.max_used),
        rejected=view.rejected,
        states=[pb.StateEntry(at_ns=entry.at_ns, state=entry.state) for entry in view.states],
        asks=[_ask(ask) for ask in view.asks],
        allocations=[_allocation(allocation) for allocation in view.allocations],
    )


def node_summary_message(view: NodeSummary) -> pb.NodeSummary:
    """One node in short."""
    return pb.NodeSummary(
        node_id=view.node_id,
        schedulable=view.schedulable,
        capacity=_amounts(view.capacity),
        allocated=_amounts(view.allocated),
        occupied=_amounts(view.occupied),
        available=_amounts(view.available),
        allocation_count=view.allocations,
        reservation_count=view.reservations,
    )


def node_message(view: NodeView) -> pb.GetNodeResponse:
    """One node with everything on it."""
    summary = NodeSummary(
        view.node_id,
        view.schedulable,
        view.capacity,
        view.allocated,
        view.occupied,
        view.available,
        len(view.allocations),
        len(view.reservations),
    )
    return pb.GetNodeResponse(
        summary=node_summary_message(summary),
        attributes=dict(view.attributes),
        allocations=[_allocation(allocation) for allocation in view.allocations],
        reservations=view.reservations,
        foreign_keys=[load.key for load in view.foreign],
        drained_by_manager=view.drained_by_shim,
        drained_by=view.operator_drain.by if view.operator_drain is not None else "",
        drained_since_ns=view.operator_drain.at_ns if view.operator_drain is not None else 0,
    )


def health_message(report: HealthReport) -> pb.GetHealthReportResponse:
    """What the core found out about itself."""
    return pb.GetHealthReportResponse(
        healthy=report.healthy,
        at_ns=report.at_ns,
        checks=[
            pb.HealthCheckResult(
                name=check.name,
                succeeded=check.succeeded,
                description=check.description,
                diagnosis=check.diagnosis,
            )
            for check in report.checks
        ],
    )


def _ask(view: AskView) -> pb.AskInfo:
    return pb.AskInfo(
        key=view.key,
        created_ns=view.created_ns,
        resources=_amounts(view.resources),
        priority=view.priority,
        required_node=view.required_node,
        reserved_node=view.reserved_node,
        placeholder=view.placeholder,
        last_failure=view.log[-1].message if view.log else "",
    )


def _allocation(view: AllocationView) -> pb.AllocationInfo:
    return pb.AllocationInfo(
        key=view.key,
        application_id=view.application_id,
        node_id=view.node_id,
        bound_ns=view.bound_ns,
        resources=_amounts(view.resources),
        priority=view.priority,
        placeholder=view.placeholder,
        preempted=view.preempted,
    )


def _amounts(resources: Mapping[str, int]) -> dict[str, int]:
    """*resources* as the wire can carry them: the books are exact, the sum of two quantities may be none."""
    return {name: clamp(amount) for name, amount in resources.items()}
