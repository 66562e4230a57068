"""What one scrape tells of a partition. Cost: linear in queues, applications and nodes, and small for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from core.domain.application_states import AppState
from core.domain.gauges import BudgetUse, GovernorGauges, PartitionGauges, QueueGauges
from core.domain.settings import Budget
from core.model.nodes import Node
from core.partition.preemption.governing import limits_for_reading
from core.partition.preemption.governor_state import AsOf
from core.partition.state import PartitionState
from core.policies.preemption.governor import Scope

DECILES: Final = 10

_NO_STATES: Final[Mapping[AppState, int]] = MappingProxyType({})


def view(state: PartitionState, now_ns: int) -> PartitionGauges:
    """The partition at *now_ns*."""
    queues, states = _queues(state)
    enforcement = state.enforcement
    return PartitionGauges(
        name=state.name,
        types=tuple(state.types.names),
        queues=queues,
        usage=_usage(state.nodes.values(), state.types.names),
        nodes=len(state.nodes),
        unschedulable=sum(not node.schedulable for node in state.nodes.values()),
        nodes_removed=state.nodes_removed,
        applications=states,
        asks=state.root.waiting + state.held_count,
        allocations=state.allocation_count,
        reservations=len(state.reservations),
        law_checks=state.law_checks,
        law_violations=state.law_violations,
        preemption_attempts=state.preemption_attempts,
        preemptions=state.preemptions,
        stuck=len(state.stuck),
        quotas_due=len(enforcement.armed),
        governor=_governor(state, now_ns),
    )


def _queues(state: PartitionState) -> tuple[tuple[QueueGauges, ...], Mapping[AppState, int]]:
    """The queues, and all applications by state."""
    found = []
    everywhere: Counter[AppState] = Counter()
    for path, queue in state.queues.items():
        states = _NO_STATES
        if queue.applications:
            states = Counter([application.state for application in queue.applications.values()])
            everywhere.update(states)
        found.append(
            QueueGauges(
                path,
                queue.guaranteed,
                queue.max,
                queue.used,
                queue.pending,
                queue.preempting,
                queue.max_applications,
                states,
            )
        )
    return tuple(found), everywhere


def _usage(nodes: Iterable[Node], names: list[str]) -> Mapping[str, list[int]]:
    counts = [[0] * DECILES for _ in names]
    for node in nodes:
        for capacity, allocated, deciles in zip(node.capacity, node.allocated, counts, strict=True):
            if capacity > 0:
                if allocated >= capacity:
                    deciles[-1] += 1
                elif allocated > 0:
                    deciles[(DECILES * allocated + capacity - 1) // capacity - 1] += 1
                else:
                    deciles[0] += 1
    return {name: deciles for name, deciles in zip(names, counts, strict=True) if any(deciles)}


def _governor(state: PartitionState, now_ns: int) -> GovernorGauges:
    books, settings = state.governor, state.preemption.governor
    past = AsOf(books, limits_for_reading(state), now_ns)
    paused = Counter(scope.kind for scope, until_ns in books.paused.items() if until_ns > now_ns)
    budgets = {"cluster": settings.cluster, "queue": settings.queue, "application": settings.application}
    scopes: dict[str, list[Scope]] = {kind: [] for kind in budgets}
    for scope in books.scopes:
        scopes[scope.kind].append(scope)
    used = [use for kind, budget in budgets.items() for use in _used(state, past, kind, budget, scopes[kind])]
    return GovernorGauges(books.denied, {kind: paused[kind] for kind in budgets}, tuple(used))


def _used(state: PartitionState, past: AsOf, kind: str, budget: Budget, scopes: Iterable[Scope]) -> Iterator[BudgetUse]:
    """Of every bound that *budget* has, the part that is used by that of *scopes* which uses most."""
    if budget.victims:
        yield BudgetUse(kind, "victims", max(map(past.victims, scopes), default=0) / budget.victims)
    for name, limit in sorted(budget.lost.items()):
        t = state.types.known(name)
        lost = max((past.lost(scope, t) for scope in scopes), default=0) if t is not None else 0
        yield BudgetUse(kind, name, lost / limit if limit else float(lost > 0))
