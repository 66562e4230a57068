"""Writes clusters, partitions and their placement rules (rest.md 4.1, 4.3, 4.11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kornel.core.domain.application_states import AppState
from kornel.core.domain.manager import RegisteredManager
from kornel.core.telling.configuration.placement_rule_views import FilterView, RuleView
from kornel.core.telling.encoding.documents import Document, Kind, always, if_any, nested, nested_itself
from kornel.core.telling.encoding.records import ITSELF, made
from kornel.core.telling.encoding.values import (
    AMOUNTS,
    COUNT,
    FLAG,
    PERCENTS,
    TEXT,
    TEXT_MAP,
    TEXTS,
    TIME_NS,
    WEIGHTS,
    one_of,
    percents_of,
)
from kornel.core.telling.partitions.partition_views import PartitionView

CLUSTER_NAME: Final = "kubernetes"
"""The constant name that YuniKorn gives every cluster."""


class ClusterEntry(NamedTuple):
    """A partition with its manager and the time when this scheduler started."""

    partition: PartitionView
    manager: RegisteredManager
    started_ns: int


def _cluster_name() -> str:
    return CLUSTER_NAME


def _build_information(manager: RegisteredManager) -> list[dict[str, str]]:
    return [{**dict(sorted(manager.build_info)), "rmId": manager.rm_id}]


CLUSTER: Final = Document(
    "Cluster",
    ClusterEntry,
    {
        "partition": always(TEXT, "partition.name"),
        "clusterName": always(TEXT, made(_cluster_name)),
        "rmBuildInformation": always(
            Kind({"type": "array", "items": TEXT_MAP.schema}), made(_build_information, "manager"), promised=False
        ),
        "startTime": if_any(TIME_NS, "started_ns"),
    },
)


def _count_by_state(applications: Mapping[AppState, int]) -> dict[str, int]:
    counts = {str(state): count for state, count in applications.items() if count}
    return {**counts, "total": sum(counts.values())}


_CAPACITY: Final = Document(
    "",
    PartitionView,
    {
        "capacity": if_any(AMOUNTS, "capacity"),
        "usedCapacity": if_any(AMOUNTS, "used"),
        "utilization": if_any(PERCENTS, made(percents_of, "used", "capacity")),
    },
    partial=True,
)

_NODE_SORTING: Final = Document(
    "",
    PartitionView,
    {"type": always(TEXT, "node_sort_policy"), "resourceWeights": always(WEIGHTS, "node_sort_weights")},
    partial=True,
)

PARTITION: Final = Document(
    "Partition",
    PartitionView,
    {
        "clusterId": always(TEXT, "rm_id"),
        "name": always(TEXT, "name"),
        "capacity": always(nested(_CAPACITY), ITSELF),
        "nodeSortingPolicy": always(nested(_NODE_SORTING), ITSELF),
        "preemptionEnabled": always(FLAG, "preemption_enabled"),
        "quotaPreemptionEnabled": always(FLAG, "quota_preemption_enabled"),
        # This is always sent, because the web page of YuniKorn shows "undefined" instead of 0 without it.
        "totalNodes": always(COUNT, "nodes"),
        "applications": always(
            Kind({"type": "object", "additionalProperties": COUNT.schema, "required": ["total"]}),
            made(_count_by_state, "applications"),
        ),
        "state": always(one_of("Active", "Draining", "Stopped"), "state"),
        "totalContainers": if_any(COUNT, "allocations"),
        "lastStateTransitionTime": if_any(TIME_NS, "since_ns"),
    },
    left_out=("reservations", "pending_asks"),
)


def _filter_type(deny: bool) -> str:
    return "deny" if deny else "allow"


_FILTER: Final = Document(
    "",
    FilterView,
    {
        "type": always(one_of("allow", "deny"), made(_filter_type, "deny")),
        "userList": if_any(TEXTS, "users"),
        "groupList": if_any(TEXTS, "groups"),
        "userExp": if_any(TEXT, "user_expression"),
        "groupExp": if_any(TEXT, "group_expression"),
    },
)

RULE: Final = Document(
    "Rule",
    RuleView,
    lambda rule: {
        "name": always(TEXT, "name"),
        "parameters": always(TEXT_MAP, "parameters"),
        "filter": if_any(nested(_FILTER), "filter"),
        "parentRule": if_any(nested_itself(rule), "parent"),
    },
)
