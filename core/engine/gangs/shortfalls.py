"""Watches gangs that run with fewer members than their minimum, because some were lost, and ends those that could not
be repaired in time (scheduling.md 10.8)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UnitId
from kornel.core.model.task_groups import GroupMembers
from kornel.core.preemption import eviction
from kornel.core.preemption.gang_losses import members_of
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import minimum_of
from kornel.core.state.waiting.rooms import line_of


def note_start(state: PartitionState, member: Allocation, now_ns: int) -> None:
    """Counts *member*, which has been placed, as one of those that were missing."""
    if member.application.members_in(member.spec.task_group).short:
        _count_short(state, member, -1, now_ns)


def note_end(state: PartitionState, member: Allocation, now_ns: int, *, lost: bool) -> None:
    """Counts *member*, which has ended, as missing if it was *lost*: to preemption, with its node, or because the shim
    could not start it."""
    application = member.application
    if lost and application.leaves_whole:
        _count_short(state, member, 1, now_ns)
    elif application.members_in(member.spec.task_group).short:
        _count_short(state, member, 0, now_ns)


def _count_short(state: PartitionState, member: Allocation, change: int, now_ns: int) -> None:
    """Counts *change* more members of the group of *member* as missing, at most as many as its minimum lacks.

    A gang of which nothing runs, or which leaves as a whole, lacks nobody: it is placed anew as a whole.
    """
    application, name = member.application, member.spec.task_group
    members, unit_id = application.members_in(name), UnitId(application, name)
    before = members.short
    runs = members.running > 0 and application not in state.gangs.leaving
    _set_short(application, members, max(0, min(before + change, minimum_of(unit_id) - members.running)) if runs else 0)
    below = state.gangs.below
    if not members.short:
        if below.pop(unit_id, None) is not None and runs and state.recording:
            state.events.gang_repaired(member)
        return
    if unit_id not in below:
        below[unit_id] = now_ns
        grace_ns = application.queue.properties.gang_grace_ns
        if grace_ns:
            state.run_at(now_ns + grace_ns, partial(_end_gang, state, unit_id, now_ns))
    if members.short > before and state.recording:
        state.events.gang_below_minimum(member, members)


def _set_short(application: Application, members: GroupMembers, short: int) -> None:
    if short != members.short:
        application.missing += short - members.short
        members.short = short
        # Asks that repair the gang come before others of their priority.
        application.update_rank()
        for group in application.groups.values():
            line_of(group).mark_changed(group)


def _end_gang(state: PartitionState, unit_id: UnitId, since_ns: int, now_ns: int) -> None:
    """Asks the shim to end what is left of the gang of *unit_id* if it has been below its minimum since *since_ns*."""
    if state.gangs.below.get(unit_id) != since_ns:
        return
    del state.gangs.below[unit_id]
    application, name = unit_id
    members = application.members_in(name)
    left = [member for member in members_of(application) if member.place is AskPlace.PLACED]
    message = (
        f"gang {application.application_id} ran {members.describe_number()} members of {name} for"
        f" {(now_ns - since_ns) / 10**9:g} s (gang.grace)"
    )
    _set_short(application, members, 0)
    eviction.evict_victims(state, left, None, message, now_ns)
    if state.recording:
        state.events.gang_given_up(left, message)
    state.run_at(now_ns + state.preemption.victim_timeout_ns, partial(_look_at_members, state, left))


def _look_at_members(state: PartitionState, left: Sequence[Allocation], _now_ns: int) -> None:
    """Stops counting on the exit of members that have not left in time (preemption.md K14)."""
    for member in left:
        if member.preempted and member not in state.stuck:
            state.stuck[member] = member.queue
            ledger.expect_no_exit(state, member)
