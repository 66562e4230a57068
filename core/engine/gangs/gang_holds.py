"""Places gangs for which room is held for all members, as soon as all of that room is free (preemption.md B.7,
B.11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from kornel.core.domain.reasons import Unschedulable
from kornel.core.engine.gangs import gang_savings, gang_vetting
from kornel.core.engine.gangs.gang_places import (
    add_up,
    exceeded_limit,
    find_devices,
    find_lent_places,
    place_gang,
    shape_together,
)
from kornel.core.engine.scheduling import loans
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.preemption import slices
from kornel.core.state.asks import savings
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold
from kornel.core.state.waiting.gathering import covers_minimum, find_least
from kornel.core.state.waiting.rooms import park_below

MOST_AT_ONCE: Final = 64
"""The most members that are examined at once."""


def take_ready(state: PartitionState, chosen: Callable[[Reservation], bool] | None) -> list[Reservation]:
    """Takes members of gangs, or only the *chosen* ones, out of those that are ready, as many as there is time for.
    Returns one for each gang, in the order in which their room became free."""
    of_gangs = (reservation for reservation in state.reserved_ready if state.gangs.hold_of(reservation.ask) is not None)
    gangs: dict[UnitId, Reservation] = {}
    for reservation in list(islice(filter(chosen, of_gangs) if chosen else of_gangs, MOST_AT_ONCE)):
        # They are removed before any is tried, because a try may add one again.
        del state.reserved_ready[reservation]
        gangs.setdefault(unit_of(reservation.ask), reservation)
    return list(gangs.values())


def serve_gang(state: PartitionState, reservation: Reservation, now_ns: int) -> int:
    """Places the gang of the member that has *reservation* if the room for all members is free. Returns the cost in
    decisions."""
    unit_id = unit_of(reservation.ask)
    hold = state.gangs.holds.get(unit_id)
    if hold is None:
        return 1
    _place_if_free(state, unit_id, hold, reservation, now_ns)
    return 1 if unit_id in state.gangs.holds else len(hold.members)


def _place_if_free(
    state: PartitionState, unit_id: UnitId, hold: GangHold, reservation: Reservation, now_ns: int
) -> None:
    application = unit_id.application
    if unit_id in state.gangs.broken or unit_id in state.gangs.vetting:
        return
    if hold.by_age and exceeded_limit(state, application, list(hold.members)) is not None:
        savings.give_back(state, unit_id)
        return
    held: dict[Node, dict[Reservation, None]] = {}
    for ask in hold.members:
        if ask.reservation is None:
            return
        held.setdefault(ask.reservation.node, {})[ask.reservation] = None
    # A member without room is tried again when its node gains room.
    full = [node for node, theirs in held.items() if not node.fits_holders(theirs)]
    if full and not hold.by_age:
        return
    if not covers_minimum(unit_id, hold.members.keys()):
        state.gangs.broken[unit_id] = None
        return
    members = list(hold.members)
    if hold.by_age and loans.is_outranked(state, find_least(hold.members)):
        state.reserved_ready[reservation] = None
        return
    if full:
        if hold.by_age and gang_savings.move_place(state, unit_id, hold, now_ns):
            return
        places = find_lent_places(state, members)
    else:
        places = find_devices([(ask, ask.reservation.node) for ask in members if ask.reservation is not None])
    if places is None:
        if hold.by_age and gang_savings.should_preempt(state, hold):
            _make_room(state, hold, members, now_ns)
        return
    limited = _exceeded_limit(state, application, members)
    if limited is not None:
        _wait_below(state, members, limited)
        return
    if state.callbacks.predicates:
        if not state.callbacks.full:
            gang_vetting.ask_about_gang(state, unit_id, places, now_ns)
        else:
            state.reserved_ready[reservation] = None
        return
    del state.gangs.holds[unit_id]
    place_gang(state, application, places, now_ns)


def _make_room(state: PartitionState, hold: GangHold, members: Sequence[Allocation], now_ns: int) -> None:
    """Lets the gang of *hold*, all of whose *members* are owed their guarantee, try to preempt. It keeps its places
    until there is a plan."""
    cost, stays = slices.serve_unit(state, hold, members, NotPlaced(Unschedulable.GANG_INCOMPLETE), now_ns)
    state.search_cost += cost
    if stays and state.gangs.holds.get(hold.id) is hold:
        state.reserved_ready.update(dict.fromkeys([ask.reservation for ask in members[:1] if ask.reservation]))


def _exceeded_limit(state: PartitionState, application: Application, members: Sequence[Allocation]) -> NotPlaced | None:
    """Returns the limit that all *members* would exceed now. Their own claims do not count against them, and in a queue
    above its max they replace victims that have left."""
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
    gate = limited.account or limited.queue
    if gate is not None and limited.reason in (Unschedulable.USER_QUOTA, Unschedulable.QUEUE_QUOTA):
        park_below(waiter, shape_together(state, members, gate), gate)
