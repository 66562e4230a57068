"""The fence of an ask, beyond which it may not look for victims: fences are one-way, and a full queue is one (law 7,
preemption.md B.2)."""

from __future__ import annotations

from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue


def project_usage(queue: Queue, t: int) -> int:
    """Returns ``proj``: what *queue* will use of type *t* once victims in flight are gone and their preemptors run."""
    return queue.used[t] - queue.preempting[t] + queue.claimed[t]


def fence_root(ask: Allocation) -> Queue:
    """Returns the lowest queue on the ask's path whose subtree holds all victims *ask* may take; its own leaf: nobody.

    It is the root, a queue with the policy ``fence``, or one that the ask would carry above its effective max for a
    type it asks for: then only a victim inside can help. Reaching the max exactly is no fence.
    """
    overfull = _overfull_queues(ask)
    for queue in ask.queue.lineage():
        if queue.properties.preemption_policy is PreemptionPolicyKind.FENCE or queue in overfull:
            return queue
        if queue.parent is None:
            return queue
    raise AssertionError("a lineage ends at the root")


def _overfull_queues(ask: Allocation) -> set[Queue]:
    """Queues of the ask's path that would end above the least max from them to the root.

    The root's own max is the size of the cluster: it says how much room there is, and keeps nobody inside. A queue that
    is above its max already takes in as much as leaves it, so there what it holds is the most.
    """
    least: dict[int, int] = {}
    found: set[Queue] = set()
    for queue in reversed(ask.queue.lineage()[:-1]):
        for t, amount in ask.shape.pairs:
            own = queue.max.get(t)
            if own is not None:
                own = max(own, project_usage(queue, t))
                if own < least.get(t, own + 1):
                    least[t] = own
            if t in least and project_usage(queue, t) + amount > least[t]:
                found.add(queue)
    return found
