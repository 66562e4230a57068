"""What one scrape tells of a partition. Cost: linear in queues, applications and nodes, and small for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from core.domain.application_states import AppState
from core.domain.gauges import BudgetUse, GovernorGauges, PartitionGauges, QueueGauges
from core.domain.settings import Budget
from core.model.nodes import Node
from core.partition.state import PartitionState
from core.policies.preemption.governor import CLUSTER, Scope, scopes_of

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
    paused = Counter(scope.kind for scope, until_ns in books.paused.items() if until_ns > now_ns)
    victims: Counter[Scope] = Counter()
    lost: dict[Scope, Counter[str]] = {}
    names = state.types.names
    for taken in books.taken:
        if taken.at_ns + settings.window_ns <= now_ns:
            continue
        for scope in scopes_of(taken.loss):
            victims[scope] += 1
            amounts = lost.setdefault(scope, Counter())
            for t, amount in taken.loss.lost:
                amounts[names[t]] += amount
    budgets = {"cluster": settings.cluster, "queue": settings.queue, "application": settings.application}
    used = [use for kind, budget in budgets.items() for use in _used(kind, budget, victims, lost)]
    return GovernorGauges(books.denied, {kind: paused[kind] for kind in budgets}, tuple(used))


def _used(
    kind: str, budget: Budget, victims: Mapping[Scope, int], lost: Mapping[Scope, Mapping[str, int]]
) -> Iterable[BudgetUse]:
    """Of every bound that *budget* has, the part that is used where most of it is."""
    scopes = [scope for scope in victims if scope.kind == kind] or [CLUSTER]
    if budget.victims:
        most = max(victims.get(scope, 0) for scope in scopes)
        yield BudgetUse(kind, "victims", most / budget.victims)
    for name, limit in sorted(budget.lost.items()):
        most = max(lost.get(scope, {}).get(name, 0) for scope in scopes)
        yield BudgetUse(kind, name, most / limit if limit else float(most > 0))
