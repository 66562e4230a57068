"""Finds the fence of an ask, outside which it may not take victims. Fences work in one direction, and a full queue is a
fence as well (law 7, preemption.md B.2)."""

from __future__ import annotations

from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies.guarantees import project_usage


def fence_root(ask: Allocation) -> Queue:
    """Returns the lowest queue on the path of *ask* that contains all victims it may take; if that is its own leaf, it
    may take none.

    It is the root, a queue with the policy ``fence``, or a queue that the ask would raise above its effective max for a
    type it asks for, so that only a victim inside can help. A queue that just reaches its max is no fence.
    """
    overfull = _overfull_queues(ask)
    for queue in ask.queue.lineage():
        if queue.properties.preemption_policy is PreemptionPolicyKind.FENCE or queue in overfull:
            return queue
        if queue.parent is None:
            return queue
    raise AssertionError("a lineage ends at the root")


def _overfull_queues(ask: Allocation) -> set[Queue]:
    """Returns the queues on the path of *ask* that it would raise above the least max between them and the root.

    The max of the root is the size of the cluster, which limits room and is no fence. A queue that is above its max
    already may gain as much as it loses, so its present usage counts as its max.
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
