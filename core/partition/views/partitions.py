"""A partition as a whole."""

from __future__ import annotations

from collections import Counter
from typing import Final

from core.config.model import NodeSortConfig
from core.domain.partition_names import bare_partition_name
from core.domain.views import PartitionView
from core.partition.state import PartitionState
from core.preemption.guarantee import planner as guarantee

_DEFAULT_SORT: Final = NodeSortConfig()


def view(state: PartitionState, rm_id: str, now_ns: int) -> PartitionView:
    """The partition of manager *rm_id* at *now_ns*. Cost: one look at each application."""
    resources, past = state.types.resources, state.past
    sort = state.config.node_sort if state.config is not None else _DEFAULT_SORT
    counts = Counter(application.state for application in state.applications.values())
    counts.update(view.state for view in past.all_finished(now_ns))
    counts.update(view.state for view in past.all_rejected(now_ns))
    return PartitionView(
        name=bare_partition_name(state.name),
        rm_id=rm_id,
        capacity=resources(state.root.max),
        used=resources(state.root.used),
        node_sort_policy=sort.policy,
        node_sort_weights=sort.weights,
        preemption_enabled=state.preemption.enabled and guarantee.KIND in state.preemption.policies,
        quota_preemption_enabled=state.preemption.quota_enabled,
        nodes=len(state.nodes),
        applications={name: counts[name] for name in sorted(counts)},
        allocations=state.allocation_count,
        reservations=len(state.reservations),
        pending_asks=state.root.waiting + state.held_count,
        state="Active",
        since_ns=state.created_ns,
    )
