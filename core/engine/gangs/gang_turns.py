"""Places gangs as units: all members of the minimum find a node at once, or none is placed.

A gang waits until its placeholders add up to what its application announced, or until as many real asks wait as the
minimum of their task group, or no further one has come for a while. Then quotas and limits have to admit all
members together, and nodes are chosen for all of them before anything is booked. The placements are booked together, so
that all allocations leave in one message. A gang that finds no places waits until there may be enough. Of gangs with
equal demands, only one is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.reasons import Unschedulable
from kornel.core.engine.gangs import gang_vetting, placeholders
from kornel.core.engine.gangs.gang_places import Places, demand_of, find_places, place_gang, shape_together
from kornel.core.engine.scheduling import limit_savings, reserving
from kornel.core.engine.scheduling.reserving import NODES_PER_UNIT
from kornel.core.model.allocations import Allocation
from kornel.core.model.gang_units import GangUnit, UnitId
from kornel.core.model.not_placed import NotPlaced
from kornel.core.policies.device_packing import Budget
from kornel.core.policies.gang_nodes import Candidates
from kornel.core.preemption import slices
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangRoom
from kornel.core.state.waiting import admission, backoff, failing
from kornel.core.state.waiting.gathering import is_gathering, minimum_members
from kornel.core.state.waiting.rooms import activate_group, park_for_members, park_without_places

STEPS_PER_UNIT: Final = 3
"""The number of steps of a search for other ways to pack members that count as one decision in the budget of a
slice."""


def serve_gang(state: PartitionState, unit: GangUnit, now_ns: int) -> int:
    """Places the minimum of the gang of *unit*, or makes the gang wait for what it lacks. Returns the cost in
    decisions."""
    if not _is_complete(state, unit, now_ns):
        park_for_members(state, unit)
        return 1
    members = minimum_members(unit)
    # A search for victims goes on from slice to slice. As long as nothing has changed since it began, there is still no
    # room, and counting the room of all domains again would take a third of the search.
    searching = bool(unit.due) and state.gangs.is_searching(unit.id, state.marks)
    budget = Budget.for_requests(ask.shape.devices for ask in members)
    found = find_places(state, unit.application, members, budget, known_full=searching)
    packing = budget.spent // STEPS_PER_UNIT
    if isinstance(found, Places):
        if state.callbacks.predicates:
            gang_vetting.ask_about_gang(state, unit.id, found, now_ns)
        else:
            place_gang(state, unit.application, found, now_ns)
        return len(members) + packing
    cost = packing
    if unit.due:
        spent, stays = slices.serve_unit(state, unit, members, found, now_ns)
        cost += spent
        if stays:
            return cost
    # A gang may be woken often before it fits, so a reason is noted for each member only if it is new.
    if unit.lacks is not found.reason:
        unit.lacks = found.reason
        for ask in members:
            failing.note_unplaced(ask, found.reason, now_ns)
    set_gang_aside(state, unit, members, found, now_ns)
    return cost + 1 + len(members) // NODES_PER_UNIT + len(state.node_order) // NODES_PER_UNIT


def set_gang_aside(
    state: PartitionState, unit: GangUnit, members: Sequence[Allocation], why: NotPlaced, now_ns: int
) -> None:
    """Makes the gang of *unit*, which found no places, wait for what it lacks according to *why*."""
    gate = why.account or why.queue
    if gate is not None and why.reason is Unschedulable.APPLICATION_LIMIT:
        admission.keep_from_starting(state, unit.application, gate)
    elif gate is not None:
        limit_savings.park_short(state, unit, shape_together(state, members, gate), gate, now_ns)
    else:
        demand, _ = demand_of(members)
        room = state.gangs.rooms.get(demand)
        if room is None:
            room = state.gangs.rooms[demand] = GangRoom(demand, Candidates(state.node_order, state.nodes))
        park_without_places(unit, room)
        reserving.wait_for_age(state, unit.first_ask(), now_ns)
        backoff.count_unplaced(state, unit, now_ns)


def _is_complete(state: PartitionState, unit: GangUnit, now_ns: int) -> bool:
    """Tells whether the placeholders add up to what was announced, or the real asks to the minimum of their group. If
    they do not, the timer of placeholders, or ``gang.gather``, limits how long the gang waits for the rest."""
    application = unit.application
    if unit.id in state.gangs.vetting or unit.id in state.gangs.holds:
        return False
    if unit.id.task_group:
        members = application.members_in(unit.id.task_group)
        # This is noted for as many as the minimum, too: one of them may be withdrawn.
        if members.gather_until_ns is None:
            until_ns = members.gather_until_ns = now_ns + application.queue.properties.gang_gather_ns
            state.run_at(until_ns, partial(_end_gathering, state, unit.id, until_ns))
        return not is_gathering(unit.id, unit.size, now_ns)
    announced = application.spec.placeholder_ask
    assert announced is not None, "a gang that is placed as a unit was announced"
    if not unit.find_missing(announced):
        placeholders.stop_timer(application)
        return True
    if application.placeholder_deadline_ns is None and application.state is AppState.ACCEPTED:
        placeholders.start_timer(state, application, now_ns)
    return False


def _end_gathering(state: PartitionState, unit_id: UnitId, until_ns: int, _now_ns: int) -> None:
    """Has the members *unit_id* tried as they are, unless further ones have come since the wait for them began."""
    unit = unit_id.find_unit()
    if unit is not None and unit_id.application.members_in(unit_id.task_group).gather_until_ns == until_ns:
        activate_group(unit)
