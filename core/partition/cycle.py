"""The allocation cycle: who is next, does it fit, and if not, may it preempt.

One call does many of upstream's single-result cycles in a row, in the same order: after every result the choice
starts again from the root (scheduling.md 4.1, S-20). What did not fit is set aside until something changes, which is
exactly when a new search could end differently.
"""

from __future__ import annotations

from heapq import heappop
from typing import Final

from core.domain.reasons import Unschedulable
from core.model.allocations import AskGroup, Reservation
from core.model.queues import Queue
from core.partition import ledger, placement, preempting
from core.partition.placement import NotPlaced
from core.partition.state import PartitionState
from core.partition.waiting import hold_back, park_below_limit, park_below_quota, park_for_node, park_without_node
from core.policies.application_order import application_key
from core.policies.queue_order import queue_key

ATTEMPT_COST: Final = 200
"""Decisions that one search for victims counts for in a slice's budget."""


def run(state: PartitionState, now_ns: int, budget: int) -> bool:
    """One slice of at most about *budget* decisions. Whether there may be more to do at once."""
    run_timers(state, now_ns)
    preempting.begin_pass(state, now_ns)
    preempting.collect_due(state, now_ns)
    if state.fair_terms_stale:
        ledger.refresh_fair_terms(state)
    if state.stirred:
        state.stirred = False
        budget -= _serve_reservations(state, now_ns)
    while budget > 0:
        group = first_group(state.root)
        if group is None:
            break
        budget -= _serve(state, group, now_ns)
    return budget <= 0 or (state.stirred and bool(state.reservations))


def run_timers(state: PartitionState, now_ns: int) -> None:
    """Do everything whose time has come, in the order of its time."""
    timers = state.timers
    while timers and timers[0][0] <= now_ns:
        heappop(timers)[2](now_ns)


def first_group(root: Queue) -> AskGroup | None:
    """The asks whose turn it is: best child of best child, best application, first group."""
    queue = root
    while not queue.leaf:
        child = queue.order.first()
        if child is None:
            return None
        queue = child
    application = queue.order.first()
    group: AskGroup | None = application.order.first() if application is not None else None
    return group


def _serve(state: PartitionState, group: AskGroup, now_ns: int) -> int:
    """Place the first ask of *group*, or preempt for one, or set the group aside. Returns its cost."""
    ask = group.head()
    found = placement.find_node(state, ask)
    if not isinstance(found, NotPlaced):
        if ask.spec.required_node:
            preempting.give_way(state, found, now_ns)
        placement.bind(state, ask, found, now_ns)
        return 1
    ask.missed += 1
    cost = 1
    if group.due and state.preemption.enabled and found.preemption_may_help:
        cost += ATTEMPT_COST
        if preempting.attempt_due(state, group, now_ns) or group.due:
            return cost
    _set_aside(state, group, found)
    return cost


def _set_aside(state: PartitionState, group: AskGroup, why: NotPlaced) -> None:
    gate = why.account or why.queue
    if gate is not None and why.reason is Unschedulable.APPLICATION_LIMIT:
        hold_back(group.application, gate)
    elif why.account is not None:
        park_below_limit(group, why.account)
    elif why.queue is not None:
        park_below_quota(group, why.queue)
    elif why.reason is Unschedulable.REQUIRED_NODE:
        park_for_node(state, group)
    else:
        park_without_node(state, group)


def _serve_reservations(state: PartitionState, now_ns: int) -> int:
    """Reserved asks come first: their own node, then any other; the wait ends after an hour (scheduling.md 8.4)."""
    served = 0
    for reservation in sorted(state.reservations.values(), key=_reservation_order):
        ask, pairs = reservation.ask, reservation.ask.shape.pairs
        served += 1
        if ask.reservation is not reservation:
            continue
        if placement.kept_back(state, ask) is None:
            if reservation.node.fits(pairs):
                placement.bind(state, ask, reservation.node, now_ns)
                continue
            other = placement.find_node(state, ask)
            if not isinstance(other, NotPlaced):
                placement.bind(state, ask, other, now_ns)
                continue
        if now_ns - reservation.made_ns >= placement.RESERVATION_TIMEOUT_NS and not ask.victims:
            preempting.rearm(state, ask, now_ns)
    return served


def _reservation_order(reservation: Reservation) -> tuple[object, ...]:
    ask = reservation.ask
    path = tuple(queue_key(queue) for queue in reversed(ask.queue.lineage()))
    return (path, application_key(ask.application), ask.order)
