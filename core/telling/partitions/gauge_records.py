"""What a partition shows to metrics: everything that one scrape tells of it, cheap to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from core.domain.application_states import AppState

Amounts = Sequence[int]
"""By the index of the resource type."""


class QueueGauges(NamedTuple):
    """One queue. ``guaranteed`` and ``max`` by type index, absent: none; ``max_applications`` 0: not limited.

    ``applications``: live ones in this very queue, by state.
    """

    path: str
    guaranteed: Mapping[int, int]
    max: Mapping[int, int]
    used: Amounts
    pending: Amounts
    preempting: Amounts
    max_applications: int
    applications: Mapping[AppState, int]


class BudgetUse(NamedTuple):
    """The largest part of a budget that any one scope of a kind has used: 1 is all of it.

    scope     ``cluster``, ``queue`` or ``application``
    resource  ``victims``, or the resource type of which resource-seconds are counted
    """

    scope: str
    resource: str
    used: float


class GovernorGauges(NamedTuple):
    """Bounds against storms. ``denied``: plans so far. ``paused``: how many scopes preemption pauses in, by kind."""

    denied: int
    paused: Mapping[str, int]
    budgets: tuple[BudgetUse, ...]


class PartitionGauges(NamedTuple):
    """One partition.

    types           names of the resource types, by index
    usage           by resource type, how many nodes use 0 to 10 %, over 10 to 20 %, ... over 90 % of it; nodes that do
                    not offer the type are left out (scheduling.md 16)
    nodes_removed   since the partition was made
    stuck           victims that have not left in time
    quotas_due      queues whose lowered max is to be enforced, the one being enforced included
    drained         nodes that operators keep out of scheduling, registered or not
    above_max       by path, what each configured queue holds above its max, by type index, each above 0
    queues_omitted  queues that are not in ``queues``
    """

    name: str
    types: tuple[str, ...]
    queues: tuple[QueueGauges, ...]
    usage: Mapping[str, Sequence[int]]
    nodes: int
    unschedulable: int
    nodes_removed: int
    applications: Mapping[AppState, int]
    asks: int
    allocations: int
    reservations: int
    law_checks: int
    law_violations: int
    preemption_attempts: int
    preemptions: int
    stuck: int
    quotas_due: int
    governor: GovernorGauges
    drained: int = 0
    above_max: Mapping[str, Mapping[int, int]] = MappingProxyType({})
    queues_omitted: int = 0
