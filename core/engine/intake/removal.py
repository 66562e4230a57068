"""Ends allocations and applications: releases them, returns them to pending, or removes them."""

from __future__ import annotations

from kornel.core.domain.application_states import AppEvent, AppState
from kornel.core.domain.commands import TerminationType
from kornel.core.domain.effects import ApplicationRemoved
from kornel.core.engine import lifecycle
from kornel.core.engine.gangs import pools, replacement
from kornel.core.engine.withdrawing import withdraw_ask
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.preemption import budgets, eviction
from kornel.core.state.asks import instances, moves
from kornel.core.state.asks.answers import answer_release
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import pausing
from kornel.core.state.waiting.rooms import stop_offering


def remove_allocation(state: PartitionState, allocation: Allocation, termination: int | None, now_ns: int) -> None:
    """Removes *allocation* from all records, with its key (protocol.md 10.1, DB-7). The state of its application is
    left to the caller.

    *termination*: why it ends; ``None``: its node was removed.
    """
    was_victim = allocation.preempted
    lost = was_victim or termination is None
    if allocation.replaced_by is not None:
        replacement.undo_replacement(state, allocation.replaced_by)
    node = allocation.node
    allocation.application.note_end(allocation, now_ns)
    moves.free_allocation(state, allocation)
    instances.forget_request(state, allocation)
    if allocation.spec.placeholder:
        pools.placeholder_gone(state, allocation, lost=lost)
    if allocation.spec.task_group:
        pools.member_gone(state, allocation, now_ns, lost=lost)
    if state.notices.open or state.notices.checkpoints:
        state.notices.allocation_left(allocation, by_us=was_victim)
    if was_victim:
        eviction.victim_left(state, allocation, now_ns)
    if state.recording and node is not None:
        state.events.allocation_removed(allocation, node, termination)


def release_allocation(state: PartitionState, allocation: Allocation, termination: int, now_ns: int) -> None:
    """Removes *allocation*, which ends as *termination* says, and updates the state of its application."""
    remove_allocation(state, allocation, termination, now_ns)
    lifecycle.allocation_removed(state, allocation.application, placeholder=allocation.spec.placeholder, now_ns=now_ns)


def return_to_pending(state: PartitionState, allocation: Allocation, now_ns: int) -> bool:
    """Makes *allocation*, which the shim could not start, an ask again with its priority and age (protocol.md 3.6).

    Other nodes are tried first: its node is left out for it for a while, and longer each time. Returns false, without
    any change, unless its application is Accepted or Running and it is not being released.
    """
    application, node = allocation.application, allocation.node
    if application.state not in (AppState.ACCEPTED, AppState.RUNNING) or allocation.preempted or allocation.released:
        return False
    assert node is not None, "what the shim was to start has a node"
    if state.recording:
        state.events.allocation_returned(allocation, node)
    moves.return_allocation(state, allocation)
    pausing.note_failed_start(state, allocation, node, now_ns)
    if state.notices.open or state.notices.checkpoints:
        state.notices.allocation_left(allocation, by_us=False)
    allocation.outcome = None
    allocation.rearms = 0
    allocation.scale_up = False
    moves.add_ask(state, allocation)
    if allocation.spec.task_group:
        pools.member_gone(state, allocation, now_ns, lost=True)
    lifecycle.allocation_returned(state, application)
    budgets.watch_age(state, allocation)
    return True


def remove_application(state: PartitionState, application: Application, now_ns: int) -> None:
    """Removes *application* at once with everything it has, at the request of the shim. One answer lists what it held
    (protocol.md 6.5)."""
    before = application.state
    had_allocations = bool(application.allocations)
    gone = list(application.allocations.values())
    stop_offering(application)
    for ask in list(application.asks.values()):
        withdraw_ask(state, ask)
    for allocation in gone:
        remove_allocation(state, allocation, TerminationType.STOPPED_BY_RM, now_ns)
    if application.state in (AppState.ACCEPTED, AppState.RUNNING):
        lifecycle.fire_event(state, application, AppEvent.COMPLETE, now_ns)
        if not had_allocations:
            lifecycle.fire_event(state, application, AppEvent.COMPLETE, now_ns)
    elif application.state is AppState.COMPLETING:
        lifecycle.fire_event(state, application, AppEvent.COMPLETE, now_ns)
    application.timer_ns = None
    if application.state not in (AppState.COMPLETED, AppState.FAILED):
        state.effects.append(
            ApplicationRemoved(
                application.application_id,
                before,
                now_ns,
                state.name,
                application.queue.path,
                application.user,
                application.submitted_ns,
            )
        )
    lifecycle.leave_queue(state, application, now_ns)
    state.past.note_removed(application)
    message = f"application {application.application_id} was removed"
    state.effects.extend(answer_release(state, a, TerminationType.STOPPED_BY_RM, message) for a in gone)
