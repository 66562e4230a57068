"""The places of asks: every ask is in one, and only :func:`move_ask` moves it (:mod:`kornel.core.domain.ask_places`).

For each place, one function enters it and one leaves it, so no other code needs to find out where an ask is in order to
remove it. Amounts are booked elsewhere, by :mod:`kornel.core.state.asks.moves`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kornel.core.domain.ask_places import MOVES, AskMove, AskPlace, IllegalMove
from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.allocations import Allocation, AskGroup, stand_together
from kornel.core.model.applications import NO_GROUPS
from kornel.core.model.gang_units import GangUnit, unit_of
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import forms_unit
from kornel.core.state.waiting.rooms import (
    activate_group,
    leave_room,
    lend_instead,
    lend_nothing,
    lend_priority,
    line_of,
    look_again,
    offer_application,
    offer_slot,
    retract_group,
)

_WAIT: Final = AskMove.WAIT
"""Kept as a constant, because reading a member from its class costs as much as a call, and every ask waits."""


def move_ask(state: PartitionState, ask: Allocation, move: AskMove) -> None:
    """Takes *ask* out of the place it is in, and puts it where *move* leads from there."""
    step = _STEPS[move][ask.place]
    if step is None:
        raise IllegalMove(f"{move.name} does not apply to {ask.key}, which is {ask.place.name}")
    # The place changes before either function runs, so that the functions they call see the ask's next place.
    leave, ask.place, enter, stands_elsewhere = step
    if leave is not None:
        leave(state, ask)
    if enter is not None:
        enter(state, ask)
    if stands_elsewhere and (state.waiting_for_domain or state.refused):
        offer_to_others(state, ask)


def wait_in_line(state: PartitionState, ask: Allocation) -> None:
    """Puts *ask*, which is in no place, in line: for a placeholder while its task group has some, otherwise with its
    equals."""
    task_groups = ask.application.task_groups
    if task_groups:
        if ask.spec.placeholder:
            together = forms_unit(state, unit_of(ask))
            move_ask(state, ask, AskMove.GATHER if together else _WAIT)
            return
        task_group = task_groups.get(ask.spec.task_group)
        if task_group is not None and task_group.open:
            move_ask(state, ask, AskMove.POOL)
            return
    if ask.spec.task_group and forms_unit(state, unit_of(ask)):
        move_ask(state, ask, AskMove.GATHER)
        return
    move_ask(state, ask, _WAIT)


def resume_waiting(state: PartitionState, ask: Allocation) -> None:
    """Puts *ask*, which is in no place, back to wait: with its reservation, which is tried at once, or in line."""
    if ask.reservation is None:
        wait_in_line(state, ask)
        return
    move_ask(state, ask, AskMove.RESERVE)
    look_again(state, ask.reservation)


def resume_refused(state: PartitionState, ask: Allocation) -> None:
    """Puts *ask* back to wait if it was refused everywhere, because something has changed for it."""
    if ask.place is not AskPlace.REFUSED:
        return  # It has followed another one that requires a domain together with it.
    move_ask(state, ask, AskMove.FORGIVE)
    resume_waiting(state, ask)


def offer_attempt(state: PartitionState, ask: Allocation) -> None:
    """Lets *ask* try to preempt in the next cycle, once placement has had its turn."""
    resume_refused(state, ask)
    if ask.group is not None:
        ask.group.attempt_is_due(ask)
        activate_group(ask.group)
        return
    # While the shim is asked about the ask, the attempt is only noted until the ask is back.
    ask.attempt_due = True
    if ask.reservation is not None:
        look_again(state, ask.reservation)


def offer_to_others(state: PartitionState, ask: Allocation) -> None:
    """Has those tried again that wait for a domain together with *ask*, because they may have to stand where it stands
    or holds room now, or are free to stand elsewhere."""
    spec, application = ask.spec, ask.application
    if state.topology is None or (spec.topology is None and not spec.task_group):
        return
    for group in list(application.groups.values()):
        if group.parked_at is state.waiting_for_domain and stand_together(group.first_ask().spec, spec):
            activate_group(group)
    # While a gang is placed, its members are those that wait; they are not gone through again for each of them.
    if (state.refused or state.reservations) and unit_of(ask).key not in application.groups:
        for other in list(application.asks.values()):
            if other is ask or other.spec.topology is None or not stand_together(other.spec, spec):
                continue
            if other.reservation is None:
                resume_refused(state, other)
            elif other.reservation.parked_at is state.waiting_for_domain:
                look_again(state, other.reservation)


def refused_asks(state: PartitionState) -> Iterator[Allocation]:
    """Yields all asks that were refused everywhere."""
    for rooms in state.refused.values():
        for room in rooms.values():
            yield from room


def _join_group(state: PartitionState, ask: Allocation) -> None:
    application = ask.application
    key = ask.group_key
    group = application.groups.get(key)
    if group is None:
        group = AskGroup(application, key, application.next_group_number())
        if application.groups:
            application.groups[key] = group
        else:
            application.groups = {key: group}
    lent = group.lent
    comes_first = group.add(ask)
    # If an active group has an earlier ask, nothing changes, because the group is offered already.
    wakes = comes_first
    if group.parked_at is not None:
        # It may pass one who saves room, or take over a claim, although its equals may not.
        longer = comes_first or ask.waits_since_ns < group.first_ask().waits_since_ns
        may_pass = longer and bool(state.reserving.at_limits or state.reserving.saved)
        less_important = (each.turn_priority < ask.turn_priority for each in ask.queue.claimants)
        wakes = ask in group.due or may_pass or any(less_important)
        line_of(group).mark_changed(group)
    for room in application.rooms if comes_first else ():
        room.review_rank(application)
    if wakes:
        activate_group(group)
    if comes_first and lent != NOTHING_WAITS:
        lend_priority(group)
    gate = application.held_at
    if gate is None:
        return
    if gate.open():
        # The slot is offered to another application already, but this ask may bring its own application to the front.
        offer_application(application)
    else:
        gate.held_back[application.queue].mark_changed(application)


def _join_unit(state: PartitionState, ask: Allocation) -> None:
    """Puts *ask* with the other members of its gang, and has the gang tried again, because it may be complete now."""
    application = ask.application
    unit_id = unit_of(ask)
    unit = unit_id.find_unit()
    if unit is None:
        unit = GangUnit(unit_id, application.next_group_number())
        application.groups = {**application.groups, unit_id.key: unit}
    comes_first = unit.add(ask)
    activate_group(unit)
    if comes_first and unit.lent != NOTHING_WAITS:
        lend_priority(unit)
    if application.held_at is not None:
        application.held_at.held_back[application.queue].mark_changed(application)


def _leave_group(state: PartitionState, ask: Allocation) -> None:
    group: AskGroup = ask.where
    application = group.application
    if application.held_at is not None:
        application.held_at.held_back[application.queue].mark_changed(application)
    elif application.offered_by is not None:
        # Without this ask, an application that is held back may come before this one.
        offer_slot(application.offered_by, application.queue)
    group.remove(ask)
    if group.size:
        if group.parked_at is not None:
            line_of(group).mark_changed(group)
        for room in application.rooms:
            room.review_rank(application)
        if group.parked_at is state.waiting_for_domain:
            activate_group(group)  # A domain may have room for those that are left.
        elif ask.spec.priority == group.lent:
            lend_priority(group)
        return
    lend_nothing(group)
    del application.groups[group.key]
    if not application.groups:
        application.groups = NO_GROUPS
    if group.parked_at is not None:
        left = leave_room(group)
        if not left and state.no_room.get(group.shape) is left:
            del state.no_room[group.shape]
            group.shape.no_room = False
    retract_group(group)


def _join_pool(state: PartitionState, ask: Allocation) -> None:
    application = ask.application
    task_group = application.task_groups[ask.spec.task_group]
    task_group.asks.add(ask)
    lend_instead(application, NOTHING_WAITS, ask.spec.priority)
    state.note_pairs(application, task_group)


def _leave_pool(_state: PartitionState, ask: Allocation) -> None:
    ask.application.task_groups[ask.spec.task_group].asks.discard(ask)
    lend_instead(ask.application, ask.spec.priority, NOTHING_WAITS)


def _join_refused(state: PartitionState, ask: Allocation) -> None:
    """Puts *ask* with the asks that were refused on the same nodes, because the same nodes can help them."""
    nodes = ask.where = frozenset(ask.refused or ())
    state.refused.setdefault(ask.shape, {}).setdefault(nodes, {})[ask] = None


def _leave_refused(state: PartitionState, ask: Allocation) -> None:
    nodes: frozenset[str] = ask.where
    ask.where = None
    rooms = state.refused[ask.shape]
    del rooms[nodes][ask]
    if not rooms[nodes]:
        del rooms[nodes]
        if not rooms:
            del state.refused[ask.shape]


_Change = Callable[[PartitionState, Allocation], None]

_ENTERING: Final[dict[AskPlace, _Change]] = {
    AskPlace.WAITING: _join_group,
    AskPlace.POOLED: _join_pool,
    AskPlace.REFUSED: _join_refused,
}
_ENTERING_BY: Final[dict[AskMove, _Change]] = {AskMove.GATHER: _join_unit}
"""The functions that enter a place after certain moves, instead of its usual one."""
_LEAVING: Final[dict[AskPlace, _Change]] = {
    AskPlace.WAITING: _leave_group,
    AskPlace.POOLED: _leave_pool,
    AskPlace.REFUSED: _leave_refused,
}
_STANDING: Final = frozenset({AskPlace.RESERVED, AskPlace.HELD, AskPlace.PLACED, AskPlace.PREEMPTED, AskPlace.RELEASED})
"""The places of asks that stand in a domain, where others of their group may have to stand too."""
_STEPS: Final = tuple(
    tuple(
        (
            _LEAVING.get(place),
            targets[place],
            _ENTERING_BY.get(move) or _ENTERING.get(targets[place]),
            (place in _STANDING) is not (targets[place] in _STANDING),
        )
        if place in targets
        else None
        for place in AskPlace
    )
    for move, targets in ((move, MOVES[move]) for move in AskMove)
)
"""The steps by number of the move and of the place: the function that leaves the place, the next place, the function
that enters it, and whether the ask begins or ceases to stand in a domain. Numbers are used because every ask moves
several times, and hashing a member costs as much as a call."""
