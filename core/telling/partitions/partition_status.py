"""Describes a partition in plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kornel.core.domain.drains import DrainedNode
from kornel.core.domain.priorities import as_reported
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import Budget
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.governor_books import CLUSTER, Scope


class QueueStatus(NamedTuple):
    """One queue. Amounts as in :class:`kornel.core.model.queues.Queue`; ``max`` of the root is what its nodes offer."""

    path: str
    leaf: bool
    draining: bool
    guaranteed: Resources
    max: Resources
    used: Resources
    pending: Resources
    preempting: Resources
    preempted: Resources
    """The sum of everything that preemption ever took from this queue."""
    preempted_allocations: int
    applications: int
    priority: int
    quota_due_ns: int | None = None
    """The time when its lowered max is to be enforced by preemption; ``None``: not at all."""
    quota_running: bool = False
    """Tells whether its max is being enforced at the moment."""


class UserStatus(NamedTuple):
    """A user that holds something: how much in all queues together, and in how many applications."""

    user: str
    used: Resources
    applications: int


class ScopeStatus(NamedTuple):
    """The losses of one scope to preemption within the governor's window, and what may still be taken there.

    kind, name        ``cluster``, ``queue`` and its path, ``application`` and its ID, or ``interval`` and a kind of
                      preemption that is held back: what that took within one interval of the preemption cycle
    victims           of ``most_victims``; 0: any number
    lost              resource-seconds of ``most_lost``; an absent type is not limited
    paused_until_ns   the time until which preemption was reported to pause here; ``None``: it was not reported to pause
    """

    kind: str
    name: str
    victims: int
    most_victims: int
    lost: Resources
    most_lost: Resources
    paused_until_ns: int | None = None


class GovernorStatus(NamedTuple):
    """The state of the governor. ``denied``: the number of plans denied since the core started.

    ``scopes``: the cluster, queues that lost something or where preemption paused, applications where it paused, and
    kinds that the limit of one interval holds back.
    """

    window_ns: int
    denied: int
    shadow: tuple[str, ...]
    scopes: tuple[ScopeStatus, ...]


class StuckVictim(NamedTuple):
    """A victim that has not left within ``preemption.victim.timeout``.

    ``preemptor``: the ask that waited for it and tries elsewhere now, or the path of the queue whose max was to be
    enforced.
    """

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    preemptor: str


class MonitorStatus(NamedTuple):
    """The state of the periodic policy. ``at_risk``: the number of allocations in the ``notices`` open notices."""

    observe_only: bool
    rounds: int
    notices: int
    at_risk: int


class PartitionStatus(NamedTuple):
    """One partition; ``queues`` parents before children, in tree order, ``users`` by name."""

    name: str
    nodes: int
    asks: int
    allocations: int
    reservations: int
    capacity: Resources
    law_checks: int
    law_violations: int
    invariant_violations: int
    """The number of invariants that the books violate; 0 without an audit."""
    preemption_attempts: int
    preemptions: int
    queues: tuple[QueueStatus, ...]
    users: tuple[UserStatus, ...]
    ignored: tuple[tuple[str, int], ...] = ()
    """The numbers of request entries without effect, by cause (:class:`kornel.core.domain.reasons.Ignored`)."""
    governor: GovernorStatus | None = None
    stuck: tuple[StuckVictim, ...] = ()
    """The stuck victims by key."""
    monitor: MonitorStatus | None = None
    """The state of the periodic policy; ``None``: it is off."""
    drained: tuple[DrainedNode, ...] = ()
    """The nodes that operators drain, by ID."""


class EngineStatus(NamedTuple):
    """The status of the whole core. ``rm_id`` empty: no manager is registered."""

    rm_id: str
    checksum: str
    partitions: tuple[PartitionStatus, ...]
    unrouted: int = 0
    """The number of unanswered request entries that named an unknown partition."""


class FinalCounts(NamedTuple):
    """The sums over all partitions when the core ends. ``invariant_violations``: ``None`` if the books were too large
    to be audited quickly."""

    law_checks: int
    law_violations: int
    invariant_violations: int | None
    preemptions: int


def final_counts(states: Sequence[PartitionState], most_audited: int) -> FinalCounts:
    """Returns the sums over *states*, with an audit if they have no more than *most_audited* records together."""
    records = sum(len(s.requests) + len(s.nodes) + len(s.applications) + len(s.queues) for s in states)
    return FinalCounts(
        law_checks=sum(state.law_checks for state in states),
        law_violations=sum(state.law_violations for state in states),
        invariant_violations=sum(len(audit.check(s)) for s in states) if records <= most_audited else None,
        preemptions=sum(state.preemptions for state in states),
    )


def partition_status(state: PartitionState, *, audited: bool, now_ns: int = 0) -> PartitionStatus:
    """Returns the status of the partition at *now_ns*; the time only matters for what the governor counts.

    With *audited*, the books are checked as well, at a cost linear in everything that the partition holds.
    """
    return PartitionStatus(
        name=state.name,
        nodes=len(state.nodes),
        asks=state.root.waiting + state.held_count,
        allocations=state.allocation_count,
        reservations=len(state.reservations),
        capacity=state.types.to_resources(state.root.max),
        law_checks=state.law_checks,
        law_violations=state.law_violations,
        invariant_violations=len(audit.check(state)) if audited else 0,
        preemption_attempts=state.preemption_attempts,
        preemptions=state.preemptions,
        queues=tuple(_describe_queue(state, queue) for queue in _walk_tree(state.root)),
        users=_users(state),
        ignored=tuple(sorted(state.ignored.items())),
        governor=_governor_status(state, now_ns),
        stuck=_stuck_victims(state),
        monitor=_monitor_status(state),
        drained=tuple(
            DrainedNode(node_id, drain, node_id in state.nodes)
            for node_id, drain in sorted(state.operator_drains.items())
        ),
    )


def _governor_status(state: PartitionState, now_ns: int) -> GovernorStatus:
    settings, books = state.preemption.governor, state.governor
    window, budgets = books.lately.as_of(now_ns - settings.window_ns), settings.budgets
    named = {scope for scope in window.totals if scope.kind == "queue"}
    paused = {scope: until_ns for scope, until_ns in books.paused.items() if until_ns > now_ns}
    named.update(scope for scope in paused if scope != CLUSTER)

    def describe_scope(scope: Scope) -> ScopeStatus:
        lost = {t: window.count_amount(scope, t) for t in range(len(state.types.names))}
        budget: Budget = budgets[scope.kind]
        return ScopeStatus(
            scope.kind,
            scope.name,
            window.count_amount(scope),
            budget.victims,
            state.types.to_resources({t: amount for t, amount in lost.items() if amount}),
            Resources(dict(budget.lost)),
            paused.get(scope),
        )

    scopes = (CLUSTER, *sorted(named, key=lambda scope: (scope.kind != "queue", scope.name)))
    shadow = tuple(sorted(settings.shadow))
    held = tuple(_held_back(state, now_ns))
    return GovernorStatus(settings.window_ns, books.denied, shadow, (*map(describe_scope, scopes), *held))


def _held_back(state: PartitionState, now_ns: int) -> Iterator[ScopeStatus]:
    """Yields the kinds of preemption for which asks wait until the window of one interval has moved."""
    books, governor, nothing = state.governor, state.preemption.governor, Resources({})
    if books.wakes_ns is None or books.wakes_ns <= now_ns:
        return
    window = books.interval.as_of(now_ns - state.preemption.cycle_interval_ns)
    for kind, waiting in sorted(books.waiting.items()):
        if waiting:
            scope, most = Scope("interval", kind), governor.bound_of(kind).interval
            yield ScopeStatus(*scope, window.count_amount(scope), most, nothing, nothing, books.wakes_ns)


def _stuck_victims(state: PartitionState) -> tuple[StuckVictim, ...]:
    return tuple(
        StuckVictim(
            victim.key,
            victim.application.application_id,
            victim.queue.path,
            victim.node.node_id if victim.node is not None else "",
            victim.shape.resources,
            preemptor.path if isinstance(preemptor, Queue) else preemptor.key,
        )
        for victim, preemptor in sorted(state.stuck.items(), key=lambda entry: entry[0].key)
    )


def _monitor_status(state: PartitionState) -> MonitorStatus | None:
    notices = state.notices
    if notices.settings is None:
        return None
    return MonitorStatus(notices.settings.observe_only, notices.rounds, len(notices.open), len(notices.entries))


def _users(state: PartitionState) -> tuple[UserStatus, ...]:
    """Returns sums over the applications of each user, because without limits nothing else keeps track of them."""
    holders: dict[str, list[Application]] = {}
    for application in state.applications.values():
        if application.allocations:
            holders.setdefault(application.user, []).append(application)
    return tuple(UserStatus(user, _held_amounts(state, holders[user]), len(holders[user])) for user in sorted(holders))


def _held_amounts(state: PartitionState, applications: list[Application]) -> Resources:
    held = [sum(amounts) for amounts in zip(*(a.real for a in applications), strict=True)]
    for application in applications:
        held = [amount + more for amount, more in zip(held, application.placeholder, strict=True)]
    return state.types.to_resources(held)


def _walk_tree(queue: Queue) -> Iterator[Queue]:
    yield queue
    for name in sorted(queue.children):
        yield from _walk_tree(queue.children[name])


def _describe_queue(state: PartitionState, queue: Queue) -> QueueStatus:
    resources = state.types.to_resources
    return QueueStatus(
        path=queue.path,
        leaf=queue.leaf,
        draining=queue.draining,
        guaranteed=resources(queue.guaranteed),
        max=resources(queue.max),
        used=resources(queue.used),
        pending=resources(queue.pending),
        preempting=resources(queue.preempting),
        preempted=resources(queue.preempted_total),
        preempted_allocations=queue.preempted_count,
        applications=len(queue.applications),
        priority=as_reported(queue.priority),
        quota_due_ns=state.enforcement.armed.get(queue),
        quota_running=state.enforcement.run is not None and state.enforcement.run.queue is queue,
    )
