"""Clusters and partitions (rest.md 4.1, 4.3)."""

from __future__ import annotations

from typing import Any, Final

from core.domain.manager import RegisteredManager
from core.rest.documents.values import amounts, percents, present
from core.telling.partitions.partition_views import PartitionView

CLUSTER_NAME: Final = "kubernetes"
"""A constant of upstream, whatever the cluster is."""


def cluster(view: PartitionView, manager: RegisteredManager, started_ns: int) -> dict[str, Any]:
    """The entry of one partition. *started_ns*: when this scheduler began."""
    return {
        "partition": view.name,
        "clusterName": CLUSTER_NAME,
        "rmBuildInformation": [{**dict(sorted(manager.build_info)), "rmId": manager.rm_id}],
        **present({"startTime": started_ns}),
    }


def partition(view: PartitionView) -> dict[str, Any]:
    """One partition. ``totalNodes`` is always there: the web page calls 0 undefined without."""
    capacity = {
        "capacity": amounts(view.capacity),
        "usedCapacity": amounts(view.used),
        "utilization": percents(view.used, view.capacity),
    }
    counts = {str(state): count for state, count in view.applications.items() if count}
    return {
        "clusterId": view.rm_id,
        "name": view.name,
        "capacity": present(capacity),
        "nodeSortingPolicy": {
            "type": view.node_sort_policy,
            "resourceWeights": dict(sorted(view.node_sort_weights.items())),
        },
        "preemptionEnabled": view.preemption_enabled,
        "quotaPreemptionEnabled": view.quota_preemption_enabled,
        "totalNodes": view.nodes,
        "applications": {**counts, "total": sum(counts.values())},
        "state": view.state,
        **present({"totalContainers": view.allocations, "lastStateTransitionTime": view.since_ns}),
    }
