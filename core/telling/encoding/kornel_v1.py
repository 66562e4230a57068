"""Encodes records as messages of ``kornel.v1``, with a table for each pair whose fields do not have the same names.

The tables are in the order of the services whose answers they make. Only differences are listed; all other fields are
matched by name (:mod:`kornel.core.telling.encoding.messages`). Importing this module fails if a field of a message has
no source, or if a field of a record is neither used nor listed as left out. Amounts are cut to 64 bits.
"""

from __future__ import annotations

from typing import Final

from kornel.core.config.text.problems import Problem
from kornel.core.domain.drains import DrainedNode
from kornel.core.domain.effects import PreemptionDecided, VictimRecord
from kornel.core.domain.health import HealthReport
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import clamp_int64
from kornel.core.domain.secrets import without_secrets
from kornel.core.model.not_placed import Failure, Failures
from kornel.core.preemption.foresight import LawTally, PreemptionOutlook
from kornel.core.preemption.registry import allowed_by
from kornel.core.telling.allocations.allocation_views import AllocationView, AskView, ForeignView
from kornel.core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    Blocker,
    EqualAsks,
    LostWork,
    PreemptedWork,
    Report,
    Shortage,
)
from kornel.core.telling.applications.application_views import ApplicationSummary, ApplicationView
from kornel.core.telling.claims.claim_views import ClaimView
from kornel.core.telling.configuration import impact
from kornel.core.telling.encoding.messages import Encoders
from kornel.core.telling.encoding.records import ITSELF, made
from kornel.core.telling.encoding.values import drained_at_ns, drained_by
from kornel.core.telling.nodes.device_views import DeviceHolder, DeviceView
from kornel.core.telling.nodes.domain_views import DomainView, LevelView
from kornel.core.telling.nodes.node_reports import AskOnNode, AsksOnNode, NodeReport
from kornel.core.telling.nodes.node_views import NodeSummary, NodeView
from kornel.core.telling.partitions.partition_status import (
    EngineStatus,
    GovernorStatus,
    MonitorStatus,
    PartitionStatus,
    QueueStatus,
    ScopeStatus,
    UserStatus,
)
from kornel.core.telling.queues.above_max import AboveMax
from kornel.core.telling.queues.headroom import Bound, QueueExplanation
from kornel.core.telling.queues.queue_views import QueueView
from kornel.core.telling.users.limits_of_user import LimitLevel, UserExplanation
from kornel.core.telling.what_if.supposition import Enforced, Forecast, Waits
from kornel.v1 import configuration_pb2, events_pb2, explain_pb2, read_pb2, status_pb2

ENCODERS: Final = Encoders()


def _last_failure(log: Failures) -> str:
    return log[-1].message if log else ""


def _state_of(draining: bool) -> str:
    return "Draining" if draining else "Active"


def _keys(loads: tuple[ForeignView, ...]) -> list[str]:
    return [load.key for load in loads]


encode_queue: Final = ENCODERS.add(
    QueueView,
    read_pb2.QueueInfo,
    {
        "properties": made(without_secrets, "properties"),
        "application_count": "applications",
        "running_application_count": "running_applications",
    },
    left_out=(
        "parent", "children", "template", "priority", "allocating", "sort_policy", "sort_by_priority",
        "preemption_enabled", "preemption_fence", "priority_fence", "preemption_delay_ns", "quota_preemption_delay_ns",
        "quota_running", "quota_due_ns", "priority_offset", "backoff", "backoff_delay_ns", "preempted", "wasted",
        "above",
    ),
)  # fmt: skip

ENCODERS.add(
    AskView,
    read_pb2.AskInfo,
    {"last_failure": made(_last_failure, "log")},
    left_out=("triggered_preemption", "attempted", "scale_up"),
)

ENCODERS.add(
    AllocationView,
    read_pb2.AllocationInfo,
    left_out=("tags", "created_ns", "placeholder_ns", "rendered"),
)

encode_application_summary: Final = ENCODERS.add(
    ApplicationSummary,
    read_pb2.ApplicationSummary,
    {"allocation_count": "allocations", "ask_count": "asks"},
    left_out=("oldest_ask",),
)

encode_ended_summary: Final = ENCODERS.add(
    ApplicationView,
    read_pb2.ApplicationSummary,
    {
        "allocation_count": made(len, "allocations"),
        "ask_count": made(len, "asks"),
        "oldest_ask_ns": made(lambda asks: min((ask.created_ns for ask in asks), default=0), "asks"),
    },
    left_out=(
        "partition", "groups", "max_used", "started_ns", "rejected", "states", "placeholders", "reservations",
        "priority", "spent", "backoff_until_ns", "tags", "shortfalls",
    ),
)  # fmt: skip

encode_application: Final = ENCODERS.add(
    ApplicationView,
    read_pb2.GetApplicationResponse,
    {"summary": ITSELF},
    left_out=(
        "partition", "placeholders", "reservations", "priority", "spent", "backoff_until_ns", "tags", "shortfalls",
    ),
)  # fmt: skip

encode_node_summary: Final = ENCODERS.add(
    NodeSummary,
    read_pb2.NodeSummary,
    {"allocation_count": "allocations", "reservation_count": "reservations"},
)

ENCODERS.add(
    NodeView,
    read_pb2.NodeSummary,
    {"allocation_count": made(len, "allocations"), "reservation_count": made(len, "reservations")},
    left_out=("host", "rack", "attributes", "domains", "devices", "foreign", "drained_by_shim", "operator_drain"),
    unset=("stranded", "domain"),
)

encode_level: Final = ENCODERS.add(
    LevelView,
    read_pb2.TopologyLevel,
    {"domain_count": "domains", "node_count": "nodes", "outside_node_count": "nodes_outside"},
)

encode_domain: Final = ENCODERS.add(
    DomainView,
    read_pb2.DomainInfo,
    {"node_count": "nodes", "schedulable_node_count": "schedulable", "name": made("/".join, "path")},
)

ENCODERS.add(DeviceHolder, read_pb2.DeviceHolder)

ENCODERS.add(DeviceView, read_pb2.DeviceInfo)

encode_node: Final = ENCODERS.add(
    NodeView,
    read_pb2.GetNodeResponse,
    {
        "summary": ITSELF,
        "foreign_keys": made(_keys, "foreign"),
        "drained_by_manager": "drained_by_shim",
        "drained_by": made(drained_by, "operator_drain"),
        "drained_since_ns": made(drained_at_ns, "operator_drain"),
    },
    left_out=("host", "rack", "domains"),
)

encode_health: Final = ENCODERS.add(HealthReport, read_pb2.GetHealthReportResponse, {"healthy": "healthy"})

ENCODERS.add(Bound, status_pb2.QueueBound, {"left": made(clamp_int64, "left"), "max": made(clamp_int64, "max")})

ENCODERS.add(
    QueueStatus,
    status_pb2.QueueStatus,
    {
        "state": made(_state_of, "draining"),
        "application_count": "applications",
        "quota_preemption_start_ns": "quota_due_ns",
        "quota_preemption_running": "quota_running",
    },
)

ENCODERS.add(UserStatus, status_pb2.UserStatus, {"application_count": "applications"})

encode_claim: Final = ENCODERS.add(ClaimView, read_pb2.ClaimInfo, {"allocation_key": "key", "victim_count": "victims"})

ENCODERS.add(ScopeStatus, status_pb2.GovernorScope, {"max_victims": "most_victims", "max_lost": "most_lost"})

ENCODERS.add(GovernorStatus, status_pb2.GovernorStatus, {"denied_plans": "denied"})

ENCODERS.add(MonitorStatus, status_pb2.MonitorStatus, {"open_notices": "notices", "at_risk_allocations": "at_risk"})

ENCODERS.add(
    DrainedNode,
    status_pb2.DrainedNode,
    {"principal": "drain.by", "since_ns": "drain.at_ns", "registered": "known"},
)

encode_partition: Final = ENCODERS.add(
    PartitionStatus,
    status_pb2.PartitionStatus,
    {
        "node_count": "nodes",
        "pending_ask_count": "asks",
        "allocation_count": "allocations",
        "reservation_count": "reservations",
        "total": "capacity",
        "preemption_triggered": "preemptions",
        "stuck_victims": "stuck",
        "drained_nodes": "drained",
    },
)

encode_status: Final = ENCODERS.add(
    EngineStatus,
    status_pb2.GetStatusResponse,
    {"configuration_checksum": "checksum", "unrouted_entries": "unrouted"},
    given=(
        "core_version",
        "configuration_version",
        "configuration_problem",
        "rollback",
        "presence",
        "managers",
        "standing",
    ),
)

ENCODERS.add(Failure, status_pb2.AskFailure, {"count": "times"})

encode_standing: Final = ENCODERS.add(
    AskReport,
    status_pb2.ExplainAskResponse,
    left_out=(
        "key", "priority", "resources", "created_ns", "blockers", "fitting_nodes", "position", "preemption",
        "preempted",
    ),
)  # fmt: skip

ENCODERS.add(AboveMax, status_pb2.QueueAboveMax, {"protected_by": "protected"})

encode_queue_explanation: Final = ENCODERS.add(
    QueueExplanation,
    status_pb2.ExplainQueueResponse,
    {
        "state": made(_state_of, "draining"),
        "above_max": "above",
        "properties": made(without_secrets, "properties"),
    },
)

ENCODERS.add(LimitLevel, status_pb2.LimitLevel, {"application_count": "applications"})

encode_user_explanation: Final = ENCODERS.add(
    UserExplanation, status_pb2.ExplainUserResponse, {"application_count": "applications"}
)

ENCODERS.add(
    Shortage,
    explain_pb2.Shortage,
    {name: made(clamp_int64, name) for name in ("limit", "used", "short")},
)

encode_blocker: Final = ENCODERS.add(Blocker, explain_pb2.Blocker, {"node_count": "nodes"})

ENCODERS.add(VictimRecord, events_pb2.DecisionVictim, {"priority": "adjusted_priority"})


def _find_law(kind: str, outcome: Outcome, victims: tuple[VictimRecord, ...]) -> str | None:
    return allowed_by(kind) if victims and outcome is not Outcome.WITHDRAWN else None


encode_decision: Final = ENCODERS.add(
    PreemptionDecided,
    events_pb2.PreemptionDecision,
    {
        "law": made(_find_law, "kind", "outcome", "victims"),
        "gang_plan": made(lambda number: number or None, "gang_plan"),
    },
    left_out=("partition",),
    given=("id", "next_event_id"),
)

ENCODERS.add(LawTally, explain_pb2.Protection, {"queue_count": "queues", "allocation_count": "allocations"})

ENCODERS.add(PreemptionOutlook, explain_pb2.PreemptionOutlook, {"protections": "protected"})

ENCODERS.add(Failure, explain_pb2.BlockedBefore, {"count": "times"})

_encode_preempted: Final = ENCODERS.add(
    PreemptedWork, explain_pb2.PreemptedWork, {"taken_by_application_id": "taken_by_application"}
)

_encode_ask_report: Final = ENCODERS.add(AskReport, explain_pb2.AskReport, {"fitting_node_count": "fitting_nodes"})

ENCODERS.add(EqualAsks, explain_pb2.EqualAsks, {"ask_count": "size"})

_encode_application_report: Final = ENCODERS.add(
    ApplicationReport,
    explain_pb2.ApplicationReport,
    {"pending_ask_count": "pending", "allocation_count": "allocations", "group_count": "kinds", "groups": "asks"},
)


_encode_ask_on_node: Final = ENCODERS.add(AskOnNode, explain_pb2.AskOnNode)

ENCODERS.add(AsksOnNode, explain_pb2.AsksOnNode, {"ask_count": "asks"})

_encode_node_report: Final = ENCODERS.add(
    NodeReport,
    explain_pb2.NodeReport,
    {
        "drained_by": made(drained_by, "operator_drain"),
        "drained_since_ns": made(drained_at_ns, "operator_drain"),
        "allocation_count": "allocations",
        "waiting_ask_count": "waiting",
    },
)


def encode_report(found: Report | AskOnNode | NodeReport) -> explain_pb2.ExplainResponse:
    """Returns the answer with *found*, in the field for its kind of report."""
    if isinstance(found, AskReport):
        return explain_pb2.ExplainResponse(ask=_encode_ask_report(found))
    if isinstance(found, ApplicationReport):
        return explain_pb2.ExplainResponse(application=_encode_application_report(found))
    if isinstance(found, AskOnNode):
        return explain_pb2.ExplainResponse(ask_on_node=_encode_ask_on_node(found))
    if isinstance(found, NodeReport):
        return explain_pb2.ExplainResponse(node=_encode_node_report(found))
    assert isinstance(found, LostWork)
    return explain_pb2.ExplainResponse(lost=_encode_preempted(found.preempted))


ENCODERS.add(Waits, explain_pb2.ForecastWait, {"ask_count": "asks"})

ENCODERS.add(Enforced, explain_pb2.ForecastEnforcement)

encode_forecast: Final = ENCODERS.add(
    Forecast,
    explain_pb2.WhatIfResponse,
    {"preemptions": "preempts", "waiting": "waits", "enforcements": "enforced"},
)

encode_problem: Final = ENCODERS.add(Problem, configuration_pb2.ConfigurationProblem)

ENCODERS.add(
    impact.PartitionChange,
    configuration_pb2.PartitionChange,
    {"name": "partition", "application_count": "applications"},
)

ENCODERS.add(impact.QueueChange, configuration_pb2.QueueChange, {"application_count": "applications"})

ENCODERS.add(impact.QuotaExcess, configuration_pb2.QuotaExcess, {"used": made(clamp_int64, "used")})

ENCODERS.add(impact.LimitExcess, configuration_pb2.LimitExcess, {"used": made(clamp_int64, "used")})

encode_impact: Final = ENCODERS.add(
    impact.Impact,
    configuration_pb2.PreviewConfigurationResponse,
    {"refusals": "refused", "unplaced_applications": "unplaced"},
    left_out=("untried",),
    given=("warnings",),
)
