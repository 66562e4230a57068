"""The order of a parent's child queues. Rule: scheduling.md 5.1 (priority: preemption.md G)."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

from kornel.core.model.queues import Queue

QueueKey = tuple[int, float, int, str]


def fair_share(queue: Queue) -> float:
    """Returns how far *queue* has used up what it is entitled to: the largest used / denominator over its types.

    The denominator is what is guaranteed, else the inherited maximum; types with neither do not count. Above 1.0:
    over its guarantee (scheduling.md 2.5). What asks below have preempted for counts as used: of two queues that are
    owed the same both get their turn, not one of them everything.
    """
    used = queue.used
    if queue.claims:
        used = list(map(add, used, queue.claimed))
    share = 0.0
    for t, denominator in queue.fair_terms:
        amount = used[t]
        if amount > 0:
            ratio = amount / denominator if denominator > 0 else 1.0
            if ratio > share:
                share = ratio
    return share


def queue_key(queue: Queue) -> QueueKey:
    """Sort key among siblings, smallest first: priority, fair share, larger pending, name.

    Pending amounts are compared by their sum over all types. The rule asks for the larger only where one side is
    larger in every type; the sum agrees there, and makes the order total where neither is.
    """
    parent = queue.parent
    by_priority = parent is None or parent.properties.sort_by_priority
    return (-queue.priority if by_priority else 0, fair_share(queue), -sum(queue.pending), queue.name)


def fair_terms(queue: Queue, inherited: Mapping[int, int] | None = None) -> tuple[tuple[int, int], ...]:
    """Returns (type, denominator) of the fair share: own guarantee, else the maximum inherited and overwritten
    downwards.

    The root's own maximum is what the cluster offers. *inherited*: that maximum, *queue*'s own included, for whoever
    goes down the tree anyway.
    """
    if inherited is None:
        fair_max: dict[int, int] = {}
        for ancestor in reversed(queue.lineage()):
            fair_max.update(ancestor.max)
        inherited = fair_max
    return tuple(sorted({**inherited, **queue.guaranteed}.items()))
