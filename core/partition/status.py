"""A partition described in plain values."""

from __future__ import annotations

from collections.abc import Iterator

from core.domain.resources import Resources
from core.domain.status import PartitionStatus, QueueStatus, UserStatus
from core.model.applications import Application
from core.model.queues import Queue
from core.partition.books import audit
from core.partition.state import PartitionState


def describe(state: PartitionState, *, audited: bool) -> PartitionStatus:
    """The partition now. *audited*: check the books too, at a cost linear in everything the partition holds."""
    return PartitionStatus(
        name=state.name,
        nodes=len(state.nodes),
        asks=state.root.waiting + state.held_count,
        allocations=state.allocation_count,
        reservations=len(state.reservations),
        capacity=state.types.resources(state.root.max),
        law_checks=state.law_checks,
        law_violations=state.law_violations,
        invariant_violations=len(audit.check(state)) if audited else 0,
        preemption_attempts=state.preemption_attempts,
        preemptions=state.preemptions,
        queues=tuple(_describe(state, queue) for queue in _tree(state.root)),
        users=_users(state),
        ignored=tuple(sorted(state.ignored.items())),
    )


def _users(state: PartitionState) -> tuple[UserStatus, ...]:
    """Summed over the applications of each user: without limits nothing else keeps track of it."""
    holders: dict[str, list[Application]] = {}
    for application in state.applications.values():
        if application.allocations:
            holders.setdefault(application.user, []).append(application)
    return tuple(UserStatus(user, _held(state, holders[user]), len(holders[user])) for user in sorted(holders))


def _held(state: PartitionState, applications: list[Application]) -> Resources:
    held = [sum(amounts) for amounts in zip(*(a.real for a in applications), strict=True)]
    for application in applications:
        held = [amount + more for amount, more in zip(held, application.placeholder, strict=True)]
    return state.types.resources(held)


def _tree(queue: Queue) -> Iterator[Queue]:
    yield queue
    for name in sorted(queue.children):
        yield from _tree(queue.children[name])


def _describe(state: PartitionState, queue: Queue) -> QueueStatus:
    resources = state.types.resources
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
        priority=queue.priority,
        quota_due_ns=state.enforcement.armed.get(queue),
        quota_running=state.enforcement.run is not None and state.enforcement.run.queue is queue,
    )
