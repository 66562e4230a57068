"""Shows a partition as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from kornel.core.config.model import NodeSortConfig
from kornel.core.domain.application_states import AppState
from kornel.core.domain.names import bare_partition_name
from kornel.core.domain.resources import Resources
from kornel.core.state.partition_state import PartitionState


class PartitionView(NamedTuple):
    """One partition. ``applications``: their numbers by state, including ended ones that are still remembered."""

    name: str
    """The name without that of the manager."""
    rm_id: str
    capacity: Resources
    used: Resources
    node_sort_policy: str
    node_sort_weights: Mapping[str, float]
    preemption_enabled: bool
    quota_preemption_enabled: bool
    nodes: int
    applications: Mapping[AppState, int]
    allocations: int
    reservations: int
    pending_asks: int
    state: str
    since_ns: int
    """The time when it entered its state."""


_DEFAULT_SORT: Final = NodeSortConfig()


def partition_view(state: PartitionState, rm_id: str, now_ns: int) -> PartitionView:
    """Shows the partition of manager *rm_id* at *now_ns*. The cost is linear in applications."""
    resources, past = state.types.to_resources, state.past
    sort = state.config.node_sort if state.config is not None else _DEFAULT_SORT
    counts = Counter(application.state for application in state.applications.values())
    counts.update(ended.state for ended in past.finished_applications(now_ns))
    counts.update(ended.state for ended in past.rejected_applications(now_ns))
    return PartitionView(
        name=bare_partition_name(state.name),
        rm_id=rm_id,
        capacity=resources(state.root.max),
        used=resources(state.root.used),
        node_sort_policy=sort.policy,
        node_sort_weights=sort.weights,
        preemption_enabled=state.preemption.enabled and state.lists_guarantees,
        quota_preemption_enabled=state.preemption.quota_enabled,
        nodes=len(state.nodes),
        applications={name: counts[name] for name in sorted(counts)},
        allocations=state.allocation_count,
        reservations=len(state.reservations),
        pending_asks=state.root.waiting + state.held_count,
        state="Active",
        since_ns=state.created_ns,
    )
