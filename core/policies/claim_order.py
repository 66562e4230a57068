"""Orders those who wait for room: who comes before whom, and who may use room that is saved for another one
(preemption.md B.7).

Shares play no part here: they change with every placement, and whoever has waited for room must not lose its turn to
somebody who is no more important.
"""

from __future__ import annotations

from itertools import pairwise

from kornel.core.domain.priorities import exposed_priority
from kornel.core.domain.settings import GuaranteeMode, PriorityPolicy
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.queues import Queue


def comes_before(ask: Allocation, other: Allocation) -> bool:
    """Tells whether *ask* is more important than *other*: by their own priorities inside a leaf, and by those that they
    lend to the children of their lowest common queue otherwise.

    Between applications of a leaf, and between children of a queue, nobody is where ``application.sort.priority`` is
    disabled.
    """
    leaf, other_leaf = ask.queue, other.queue
    if leaf is other_leaf:
        if ask.application is not other.application and not leaf.properties.sort_by_priority:
            return False
        return ask.spec.priority > other.spec.priority
    above = set(other_leaf.lineage())
    common = next(queue for queue in leaf.lineage() if queue in above)
    if not common.properties.sort_by_priority:
        return False
    return lent_to_child(ask, common) > lent_to_child(other, common)


def importance_of(ask: Allocation) -> tuple[int, ...]:
    """Returns a key that puts whoever comes before others first: the priorities that *ask* lends from the root down.

    It is an order of all asks, unlike :func:`comes_before`: where two priorities are equal at the lowest common queue,
    those further down decide.
    """
    lineage = ask.queue.lineage()
    lent = [ask.spec.priority if ask.queue.properties.sort_by_priority else 0]
    priority = ask.spec.priority
    for queue, parent in pairwise(lineage):
        fenced = queue.properties.priority_policy is PriorityPolicy.FENCE
        priority = exposed_priority(priority, queue.properties.priority_offset, fenced=fenced)
        lent.append(priority if parent.properties.sort_by_priority else 0)
    return tuple([-priority for priority in reversed(lent)])


def may_pass(ask: Allocation, claim: Reservation, mode: GuaranteeMode) -> bool:
    """Tells whether *ask* may use room that is saved by *claim*: it comes before the holder, or it is owed its
    guarantee by a queue that the holder is not in, while the holder is owed none and is not bound to the node."""
    holder = claim.waiter
    if comes_before(ask, holder):
        return True
    if holder.spec.required_node:
        return False
    owing = owing_queues(ask, mode)
    if not owing:
        return False
    around = holder.queue.lineage()
    return any(queue not in around for queue in owing) and not owing_queues(holder, mode)


def owing_queues(ask: Allocation, mode: GuaranteeMode) -> tuple[Queue, ...]:
    """Returns the queues that owe *ask* their guarantee: law 4 lets it have room although somebody would have to leave,
    but nobody inside these queues (preemption.md A). Empty: it is owed nothing."""
    found: dict[Queue, None] = {}
    lineage = ask.queue.lineage()
    for t, amount in ask.shape.pairs:
        queue = next((ancestor for ancestor in lineage if t in ancestor.guaranteed), None)
        if queue is None:
            continue
        most = queue.guaranteed[t]
        held = queue.used[t] - queue.preempting[t] + queue.claimed[t]
        if amount > most or (held >= most if mode is GuaranteeMode.REACH else held + amount > most):
            return ()
        found[queue] = None
    return tuple(found)


def lent_to_child(ask: Allocation, common: Queue) -> int:
    """Returns the priority of *ask* as the child of *common* on its path shows it."""
    priority = ask.spec.priority
    for queue in ask.queue.lineage():
        if queue is common:
            break
        fenced = queue.properties.priority_policy is PriorityPolicy.FENCE
        priority = exposed_priority(priority, queue.properties.priority_offset, fenced=fenced)
    return priority
