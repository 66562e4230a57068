"""Keeps the counts of task groups, which decide whether real asks wait for a placeholder or for a node.

A real ask is *replaceable* while its group is open: a placeholder is left whose place it may take. Such asks are left
out of normal allocation (scheduling.md 10.2) until the last placeholder is used up or gone.
"""

from __future__ import annotations

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.gangs import HARD, read_minimum
from kornel.core.engine.gangs import shortfalls
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.model.task_groups import TaskGroup
from kornel.core.preemption import budgets, eviction
from kornel.core.state.asks import moves, questions
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import forms_unit, minimum_of


def placeholder_appears(state: PartitionState, placeholder: Allocation) -> None:
    """Opens the task group of *placeholder*, which was asked for or recovered; to be called before it is booked."""
    application, name = placeholder.application, placeholder.spec.task_group
    task_group = application.task_groups.get(name)
    if task_group is None:
        spec = placeholder.spec
        task_group = TaskGroup(name, placeholder.shape, read_minimum(spec.tags), spec.topology)
        application.task_groups = {**application.task_groups, name: task_group}
    if placeholder.dependent:
        place_one_by_one(state, application)
    was_open = task_group.open
    task_group.count += 1
    task_group.lost = max(0, task_group.lost - 1)
    _note_asked(state, placeholder)
    if was_open:
        return
    for ask in list(application.asks.values()):
        if ask.pending and ask.spec.task_group == name and not ask.spec.placeholder:
            _wait_for_placeholder(state, ask)
    # This placeholder may be the first to state a minimum of the gang, or a task of the gang may already run.
    unit_id = unit_of(placeholder)
    if forms_unit(state, unit_id) is not (unit_id.key in application.groups):
        regroup_members(state, application)


def member_asked(state: PartitionState, ask: Allocation) -> None:
    """Lets the members that wait with *ask*, a real ask of a task group, wait for further ones; to be called before it
    is booked."""
    application = ask.application
    application.members_in(ask.spec.task_group).gather_until_ns = None
    if ask.dependent:
        place_in_turn(state, ask)
    _note_asked(state, ask)


def _note_asked(state: PartitionState, ask: Allocation) -> None:
    """Has the places that are held for the gang of *ask* looked at again: *ask* may be one of those that have to run,
    and then the others must not run without it."""
    unit_id = unit_of(ask)
    if unit_id in state.gangs.holds:
        state.gangs.broken[unit_id] = None


def place_in_turn(state: PartitionState, ask: Allocation) -> None:
    """Makes the members like *ask*, whose place depends on where others run, be placed one after the other."""
    if ask.spec.placeholder:
        place_one_by_one(state, ask.application)
        return
    members = ask.application.members_in(ask.spec.task_group)
    if not members.in_turn:
        members.in_turn = True
        _dissolve_unit(state, unit_of(ask))


def place_one_by_one(state: PartitionState, application: Application) -> None:
    """Makes the placeholders of *application* be placed one after the other, because the place of one of them depends
    on where others run."""
    if application.asks_in_turn:
        return
    application.asks_in_turn = True
    _dissolve_unit(state, UnitId(application, ""))


def _dissolve_unit(state: PartitionState, unit_id: UnitId) -> None:
    if unit_id in state.gangs.vetting:
        questions.call_off_vetting(state, unit_id)
    if unit_id.key in unit_id.application.groups:
        regroup_members(state, unit_id.application)


def _wait_for_placeholder(state: PartitionState, ask: Allocation) -> None:
    """Makes *ask* wait for a placeholder. The ask gives up a node that it was about to get or that is kept for it, and
    its claim to the room of victims."""
    questions.cancel_question(state, ask)
    eviction.forget_ask(state, ask)
    moves.regroup_ask(state, ask)


def placeholder_replaced(state: PartitionState, placeholder: Allocation) -> None:
    """Counts *placeholder* as replaced: the shim confirmed that it gave its place to a real allocation."""
    task_group = placeholder.application.task_groups[placeholder.spec.task_group]
    task_group.replaced += 1
    _regroup_asks(state, task_group)


def placeholder_gone(state: PartitionState, placeholder: Allocation, *, lost: bool = False) -> None:
    """Counts *placeholder*, pending or allocated, as gone without a replacement (scheduling.md 10.6, S-8). If it was
    *lost*, to preemption or with its node, its member is still to come."""
    task_group = placeholder.application.task_groups[placeholder.spec.task_group]
    task_group.timed_out += 1
    task_group.lost += lost
    _regroup_asks(state, task_group)


def regroup_members(state: PartitionState, application: Application) -> None:
    """Makes the unplaced members of *application* wait where they belong: together while nothing of the gang, or of the
    task group of real asks, runs, and each by itself from then on."""
    known: dict[UnitId, bool] = {}
    for ask in list(application.asks.values()):
        if not ask.spec.task_group or ask.place in (AskPlace.POOLED, AskPlace.REPLACING):
            continue
        unit_id = unit_of(ask)
        together = known.get(unit_id)
        if together is None:
            together = known[unit_id] = forms_unit(state, unit_id)
        if (ask.group is not None and ask.group.is_unit) is together:
            continue
        if together:
            questions.cancel_question(state, ask)
            eviction.forget_ask(state, ask)
        if ask.place in (AskPlace.WAITING, AskPlace.NOWHERE):
            moves.regroup_ask(state, ask)
        budgets.watch_age(state, ask)


def member_placed(state: PartitionState, member: Allocation, now_ns: int) -> None:
    """Makes waiting members ordinary asks if *member* is the first of their gang to run, and counts it if it was
    missing."""
    application = member.application
    for unit_id in (UnitId(application, ""), UnitId(application, member.spec.task_group)):
        if unit_id.key in application.groups and not forms_unit(state, unit_id):
            regroup_members(state, application)
    shortfalls.note_start(state, member, now_ns)
    if application.leaves_whole and not application.whole_ns and _runs_whole(application):
        application.whole_ns = max(m.bound_ns for m in application.allocations.values() if m.spec.task_group)


def member_gone(state: PartitionState, member: Allocation, now_ns: int, *, lost: bool) -> None:
    """Makes waiting members be placed together again if *member* was the last of its gang, or task group, that ran, and
    counts it as missing if it was *lost*: to preemption, with its node, or because the shim could not start it."""
    application, members = member.application, member.application.members_in(member.spec.task_group)
    if application.whole_ns and not any(group.running for group in application.members.values()):
        application.whole_ns = 0
    if not members.running:
        members.gather_until_ns = None
        if application.asks and (application.task_groups or application.spec.gang_style == HARD):
            regroup_members(state, application)
    shortfalls.note_end(state, member, now_ns, lost=lost)


def _runs_whole(application: Application) -> bool:
    """Tells whether each task group of the gang of *application* runs with its minimum. If the shim states none, all
    that was announced has to run, because not every placeholder may be known yet, as after a restart."""
    running = {**dict.fromkeys(application.task_groups, 0), **{n: m.running for n, m in application.members.items()}}
    if any(count < minimum_of(UnitId(application, name)) for name, count in running.items()):
        return False
    announced, stated = application.spec.placeholder_ask, application.states_minimum
    if announced is None or stated or application.spec.gang_style != HARD:
        return True
    held: dict[str, int] = {}
    for member in application.allocations.values():
        for name, amount in member.shape.resources.items() if member.spec.task_group else ():
            held[name] = held.get(name, 0) + amount
    return all(held.get(name, 0) >= amount for name, amount in announced.items())


def _regroup_asks(state: PartitionState, task_group: TaskGroup) -> None:
    if task_group.open:
        return
    for ask in task_group.asks.sorted_members():
        if ask.proposed_placeholder is not None:
            questions.withdraw_pair(state, ask)
        moves.regroup_ask(state, ask)
        budgets.watch_age(state, ask)
