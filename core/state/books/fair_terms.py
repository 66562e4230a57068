"""Keeps the denominators of the fair shares of queues up to date: they follow from the guarantees and maxima of a queue
and of its ancestors, and so from the size of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kornel.core.model.queues import Queue
from kornel.core.state.books.user_accounting import offer_limits
from kornel.core.state.partition_state import PartitionState


def refresh_fair_terms(state: PartitionState) -> None:
    """Computes the fair-share denominators of all queues again, because the size of the cluster has changed."""
    state.fair_terms_stale = False
    refresh_fair_terms_below(state.root)


def advance_fair_terms(state: PartitionState, most: int) -> bool:
    """Computes the fair-share denominators of up to *most* queues again, because the size of the cluster has changed.
    Returns whether any are left.

    A large tree takes several slices; in the meantime, some of its queues are still ordered by their former shares.
    """
    if state.fair_terms_steps is None:
        state.fair_terms_stale = False
        state.fair_terms_steps = take_fair_terms_steps(state.root)
    found = 0
    for queue in islice(state.fair_terms_steps, most):
        found += 1
        offer_limits(state, queue)
    if found < most:
        state.fair_terms_steps = None
    return state.fair_terms_stale or state.fair_terms_steps is not None


def reckon_fair_terms_anew(state: PartitionState) -> None:
    """Makes a computation of fair shares that is under way start again, because maxima that queues inherit have
    changed."""
    if state.fair_terms_steps is not None:
        state.fair_terms_steps = None
        state.fair_terms_stale = True


def refresh_fair_terms_below(top: Queue) -> None:
    """Computes the denominators of *top* and of all queues below it again, because a max or guarantee of *top* has
    changed."""
    for _ in take_fair_terms_steps(top):
        pass


def take_fair_terms_steps(top: Queue) -> Iterator[Queue]:
    """Does the same as :func:`refresh_fair_terms_below` in steps, and yields each queue after it."""
    left = [(top, _mark_fair_terms(top))]
    while left:
        queue, above = left.pop()
        inherited = {**above, **queue.max} if queue.max else above
        queue.set_fair_max(inherited)
        queue.order.mark_all()
        for room in queue.rooms:
            for order in room.branches[queue].orders.values():
                order.mark_all()
        left.extend((child, inherited) for child in queue.children.values())
        yield queue


def _mark_fair_terms(top: Queue) -> dict[int, int]:
    """Returns the maxima that *top* inherits from its ancestors, and marks *top* as changed in the order of its
    parent."""
    above: dict[int, int] = {}
    for ancestor in reversed(top.lineage()[1:]):
        above.update(ancestor.max)
    if top.parent is not None:
        top.mark_turn()
    return above
