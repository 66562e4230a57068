"""Orders the child queues of a parent. Rule: scheduling.md 5.1 (priority: preemption.md G)."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

from kornel.core.model.queues import Queue

QueueKey = tuple[int, float, int, str]


def fair_share(queue: Queue) -> float:
    """Returns the fair share of *queue*: the largest of the used amounts divided by the denominators of their types.

    The denominator of a type is its guarantee, otherwise its inherited maximum; types with neither do not count. Above
    1.0, the queue is above its guarantee (scheduling.md 2.5). Amounts for which asks below have preempted count as
    used, so that two queues with the same guarantee take turns.
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
    """Returns the sort key of *queue* among its siblings: priority, fair share, larger pending amounts, name. The
    smallest comes first.

    Pending amounts are compared by their sum over all types. The rule only orders two queues if one has more of every
    type; the sum agrees with that, and makes the order total.
    """
    parent = queue.parent
    by_priority = parent is None or parent.properties.sort_by_priority
    return (-queue.priority if by_priority else 0, fair_share(queue), -sum(queue.pending), queue.name)


def fair_terms(queue: Queue, inherited: Mapping[int, int] | None = None) -> tuple[tuple[int, int], ...]:
    """Returns the denominators of the fair share as (type, denominator): the queue's own guarantee, otherwise the
    nearest maximum from *queue* up.

    The root's own maximum is the size of the cluster. *inherited*: the inherited maximum including *queue*'s own, if
    the caller has computed it on its way down the tree.
    """
    if inherited is None:
        fair_max: dict[int, int] = {}
        for ancestor in reversed(queue.lineage()):
            fair_max.update(ancestor.max)
        inherited = fair_max
    return tuple(sorted({**inherited, **queue.guaranteed}.items()))
