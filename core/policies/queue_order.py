"""Orders the child queues of a parent. Rule: scheduling.md 5.1 (priority: preemption.md G)."""

from __future__ import annotations

from math import nextafter
from operator import add
from typing import Final

from kornel.core.model.queues import Queue

_BELOW_ONE: Final = nextafter(1.0, 0.0)
"""More than the share of any queue below its guarantee, and less than that of any other."""

QueueKey = tuple[float, float, int, str]


def fair_share(queue: Queue) -> float:
    """Returns the fair share of *queue*: the largest of the used amounts divided by the denominators of their types.

    The denominator of a type is the guarantee with which the queue counts, otherwise its inherited maximum; types with
    neither do not count. Above 1.0, the queue is above its guarantee. If nothing that it waits for is guaranteed, its
    share is 1 more than what it has of the inherited maximum (scheduling.md 2.5). Amounts for which asks below have
    preempted count as used, so that two queues with the same guarantee take turns.
    """
    used = queue.used
    if queue.claims:
        used = list(map(add, used, queue.claimed))
    terms, share = queue.fair_max, 0.0
    base = 1.0
    if queue.counted:
        pending = queue.pending
        for t in queue.counted:
            if pending[t] > 0:
                terms, base = queue.fair_terms, 0.0
                break
    for t, denominator in terms:
        amount = used[t]
        if amount > 0:
            ratio = amount / denominator if denominator > 0 else 1.0
            if ratio > share:
                share = ratio
    return base + share


def queue_turn_key(queue: Queue, rank: float | None = None) -> QueueKey:
    """Returns the sort key of *queue* among its siblings with asks left to try: rank (*rank* instead of its own, if it
    is given), fair share, larger pending amounts, name. The smallest comes first. Of the same priority, queues below
    their guarantee come first, then those in which a gang is repaired.

    Pending amounts are compared by their sum over all types. The rule only orders two queues if one has more of every
    type; the sum agrees with that, and makes the order total.
    """
    parent = queue.parent
    by_priority = parent is None or parent.properties.sort_by_priority
    if not by_priority:
        rank = 0
    elif rank is None:
        rank = queue.rank
    share = fair_share(queue)
    if rank % 1:
        # Where its own queue is not below its guarantee, the gang that is repaired comes just behind those that are.
        rank, share = rank // 1, share - 1.0 if share < 1.0 else _BELOW_ONE
    return (-rank, share, -sum(queue.pending), queue.name)


def queue_key(queue: Queue) -> QueueKey:
    """Returns the sort key of *queue* among its siblings for asks that wait or hold room: by the priority that it shows
    instead of its rank."""
    parent = queue.parent
    by_priority = parent is None or parent.properties.sort_by_priority
    return (-queue.priority if by_priority else 0, *queue_turn_key(queue)[1:])


def find_fair_max(queue: Queue) -> dict[int, int]:
    """Returns the nearest maximum of each type from *queue* up; that of the root is the size of the cluster."""
    fair_max: dict[int, int] = {}
    for ancestor in reversed(queue.lineage()):
        fair_max.update(ancestor.max)
    return fair_max
