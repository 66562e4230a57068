"""Keeps the counts of task groups, which decide whether real asks wait for a placeholder or for a node.

A real ask is *replaceable* while its group is open: a placeholder is left whose place it may take. Such asks are left
out of normal allocation (scheduling.md 10.2) until the last placeholder is used up or gone.
"""

from __future__ import annotations

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.gangs import read_minimum
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UNIT_KEY
from kornel.core.model.task_groups import TaskGroup
from kornel.core.partition.asks import moves, questions
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.gathering import forms_unit
from kornel.core.preemption import attempts, eviction


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
    if application in state.gangs.holds:
        # It may be one of those that have to run, and then the others must not run without it.
        state.gangs.broken[application] = None
    if was_open:
        return
    for ask in list(application.asks.values()):
        if ask.pending and ask.spec.task_group == name and not ask.spec.placeholder:
            _wait_for_placeholder(state, ask)
    # This placeholder may be the first to state a minimum of the gang, or a task of the gang may already run.
    if forms_unit(state, application) is not (UNIT_KEY in application.groups):
        regroup_members(state, application)


def place_one_by_one(state: PartitionState, application: Application) -> None:
    """Makes the placeholders of *application* be placed one after the other, because the place of one of them depends
    on where others run."""
    if application.asks_in_turn:
        return
    application.asks_in_turn = True
    if application in state.gangs.vetting:
        questions.call_off_vetting(state, application)
    if UNIT_KEY in application.groups:
        regroup_members(state, application)


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


def placeholder_gone(state: PartitionState, placeholder: Allocation) -> None:
    """Counts *placeholder*, pending or allocated, as gone without a replacement (scheduling.md 10.6, S-8)."""
    task_group = placeholder.application.task_groups[placeholder.spec.task_group]
    task_group.timed_out += 1
    _regroup_asks(state, task_group)


def regroup_members(state: PartitionState, application: Application) -> None:
    """Makes the unplaced placeholders of *application* wait where they belong: together while nothing of the gang runs,
    and each by itself from then on."""
    together = forms_unit(state, application)
    for ask in list(application.asks.values()):
        if not ask.spec.placeholder or (ask.group is not None and ask.group.is_unit) is together:
            continue
        if together:
            questions.cancel_question(state, ask)
            eviction.forget_ask(state, ask)
        if ask.place in (AskPlace.WAITING, AskPlace.NOWHERE):
            moves.regroup_ask(state, ask)
        attempts.watch(state, ask)


def member_placed(state: PartitionState, member: Allocation) -> None:
    """Makes waiting placeholders ordinary asks if *member* is the first of their gang to run."""
    application = member.application
    if UNIT_KEY in application.groups and not forms_unit(state, application):
        regroup_members(state, application)


def member_gone(state: PartitionState, member: Allocation) -> None:
    """Makes waiting placeholders be placed together again if *member* was the last of its gang that ran."""
    application = member.application
    if application.asks and application.task_groups and forms_unit(state, application):
        regroup_members(state, application)


def _regroup_asks(state: PartitionState, task_group: TaskGroup) -> None:
    if task_group.open:
        return
    for ask in task_group.asks.sorted_members():
        if ask.proposed_placeholder is not None:
            questions.withdraw_pair(state, ask)
        moves.regroup_ask(state, ask)
        attempts.watch(state, ask)
