"""Places gangs for which room is held for all members, as soon as all of that room is free (preemption.md B.11)."""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.reasons import Unschedulable
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.partition.gangs.gang_record import GangHold
from kornel.core.partition.scheduling import gang_vetting
from kornel.core.partition.scheduling.gang_places import add_up, exceeded_limit, place_gang, shape_together
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.gathering import covers_minimum
from kornel.core.partition.waiting.rooms import park_below_limit, park_below_quota


def take_members(state: PartitionState, ready: Sequence[Reservation], now_ns: int) -> list[Reservation]:
    """Places those gangs with reservations in *ready* whose held room is free for all members. Returns the reservations
    in *ready* that do not belong to gangs."""
    holds = state.gangs.holds
    members = [reservation for reservation in ready if state.gangs.hold_of(reservation.ask) is not None]
    gangs = dict.fromkeys(reservation.ask.application for reservation in members)
    taken = dict.fromkeys(members)
    rest = [reservation for reservation in ready if reservation not in taken]
    for application in gangs:
        _place_if_free(state, application, holds[application], now_ns)
    return rest


def _place_if_free(state: PartitionState, application: Application, hold: GangHold, now_ns: int) -> None:
    if application in state.gangs.broken or application in state.gangs.vetting:
        return
    held: dict[Node, dict[Reservation, None]] = {}
    for ask in hold.members:
        if ask.reservation is None:
            return
        held.setdefault(ask.reservation.node, {})[ask.reservation] = None
    # A member that lacks room is tried again when its node gains some.
    if not all(node.fits_holders(theirs) for node, theirs in held.items()):
        return
    if not covers_minimum(application, hold.members.keys()):
        state.gangs.broken[application] = None
        return
    places = [(ask, ask.reservation.node) for ask in hold.members if ask.reservation is not None]
    members = list(hold.members)
    limited = _exceeded_limit(state, application, members)
    if limited is not None:
        _wait_below(state, members, limited)
        return
    if state.callbacks.predicates:
        if not state.callbacks.full:
            gang_vetting.ask_about_gang(state, application, places, now_ns)
        else:
            state.reserved_ready.update(dict.fromkeys([ask.reservation for ask in members[:1] if ask.reservation]))
        return
    del state.gangs.holds[application]
    place_gang(state, application, places, now_ns)


def _exceeded_limit(state: PartitionState, application: Application, members: Sequence[Allocation]) -> NotPlaced | None:
    """Returns the limit that all *members* would exceed now. Their own claims do not count against them, and in a queue
    above its max they take the place of victims that have left."""
    limited = exceeded_limit(state, application, members)
    if limited is None or limited.reason is not Unschedulable.QUEUE_QUOTA:
        return limited
    full = _full_beside_claims(application.queue, members)
    return None if full is None else NotPlaced(Unschedulable.QUEUE_QUOTA, full)


def _full_beside_claims(leaf: Queue, members: Sequence[Allocation]) -> Queue | None:
    pairs = add_up(members)
    for queue in leaf.lineage():
        if queue.ceilings and not queue.has_room(pairs):
            swapped = any(queue in ask.swaps_in for ask in members) and not any(ask.victims for ask in members)
            if not swapped:
                return queue
    return None


def _wait_below(state: PartitionState, members: Sequence[Allocation], limited: NotPlaced) -> None:
    """Parks the reservation of the first member for the limit that keeps the gang back."""
    waiter = members[0].reservation
    if waiter is None or waiter.parked_at is not None:
        return
    if limited.account is not None and limited.reason is Unschedulable.USER_QUOTA:
        park_below_limit(waiter, shape_together(state, members), limited.account)
    elif limited.queue is not None and limited.reason is Unschedulable.QUEUE_QUOTA:
        park_below_quota(waiter, shape_together(state, members), limited.queue)
