"""Asks that have a node kept for them come first in every cycle (scheduling.md 8.4, 9).

Only those are looked at for which something changed since they were last tried: room on their node, on another one,
or under the quota that kept them back.
"""

from __future__ import annotations

from itertools import groupby

from core.domain.reasons import Unschedulable
from core.model.allocations import Allocation, Reservation
from core.partition.preemption import preempting, required_node
from core.partition.scheduling import placement, vetting
from core.partition.scheduling.placement import RESERVATION_TIMEOUT_NS, NotPlaced
from core.partition.scheduling.reserving import Turns
from core.partition.scheduling.waiting import park_below_limit, park_below_quota, park_without_node
from core.partition.state import PartitionState


def serve(state: PartitionState, now_ns: int, *, required_only: bool = False) -> int:
    """Try every reserved ask that may be placed now, or those only that must run where they are reserved.

    Returns how many decisions that counts for.
    """
    attempts, required = state.preemption_attempts, state.required_node_attempts
    turns = Turns()
    ready = [r for r in state.reserved_ready if r.ask.spec.required_node or not required_only]
    ready.sort(key=lambda reservation: turns.of(reservation.ask))
    for reservation in ready:
        del state.reserved_ready[reservation]
    for _, own in groupby(ready, key=lambda reservation: reservation.ask.application):
        reservations = list(own)
        for reservation in reservations:
            _try_own_node(state, reservation, now_ns)
        for reservation in reservations:
            _try_elsewhere(state, reservation, now_ns)
    attempts, required = state.preemption_attempts - attempts, state.required_node_attempts - required
    return len(ready) + preempting.ATTEMPT_COST * (attempts - required) + required_node.ATTEMPT_COST * required


def insist(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """*ask* must run on a node that has no room for it: the node is kept for it at once (scheduling.md 9).

    Reservations of asks that could run elsewhere give way. False: the node is unknown or too small for ever.
    """
    node = state.nodes.get(ask.spec.required_node)
    if node is None or not node.could_hold(ask.shape.pairs):
        return False
    for reservation in list(node.reservations.values()):
        if reservation.ask.spec.required_node:
            continue
        if reservation.ask.triggered:
            preempting.rearm(state, reservation.ask, now_ns)
        else:
            placement.unreserve(state, reservation, requeue=True)
    placement.reserve(state, ask, node, now_ns)
    return True


def _try_own_node(state: PartitionState, reservation: Reservation, now_ns: int) -> None:
    ask, node = reservation.ask, reservation.node
    if ask.reservation is not reservation or ask.held_on is not None or not node.fits(ask.shape.pairs):
        return
    if ask.refused is not None and node.node_id in ask.refused:
        return
    if placement.kept_back(state, ask) is None:
        vetting.place(state, ask, node, now_ns)


def _try_elsewhere(state: PartitionState, reservation: Reservation, now_ns: int) -> None:
    """Any other node will do as well, unless one is required; nowhere at all, it waits, or gives up after an hour."""
    ask = reservation.ask
    if ask.reservation is not reservation or ask.held_on is not None:
        return
    limited = placement.kept_back(state, ask)
    if limited is not None and limited.reason is Unschedulable.APPLICATION_LIMIT:
        placement.unreserve(state, reservation, requeue=True)
        return
    if limited is None and not ask.spec.required_node:
        other = placement.find_node(state, ask)
        if not isinstance(other, NotPlaced):
            vetting.place(state, ask, other, now_ns)
            return
    within_quota = placement.beyond_cluster_size(state, ask, limited) is None
    if within_quota and ask.spec.required_node and required_node.attempt(state, reservation, now_ns):
        return
    helps = limited is None or limited.preemption_may_help
    if ask.attempt_due and helps and state.preemption.enabled and preempting.attempt(state, ask, now_ns):
        return
    if now_ns - reservation.made_ns >= RESERVATION_TIMEOUT_NS and not ask.victims:
        preempting.give_up_reservation(state, ask, now_ns)
    elif limited is not None and limited.account is not None:
        park_below_limit(reservation, ask.shape, limited.account)
    elif limited is not None and limited.queue is not None:
        park_below_quota(reservation, ask.shape, limited.queue)
    elif ask.refused is not None:
        vetting.refused_everywhere(state, ask, now_ns)
    elif not ask.spec.required_node:
        park_without_node(state, reservation, ask.shape)
