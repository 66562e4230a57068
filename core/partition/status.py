"""A partition described in plain values."""

from __future__ import annotations

from collections.abc import Iterator

from core.domain.status import PartitionStatus, QueueStatus
from core.model.queues import Queue
from core.partition import audit
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
    )


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
