"""Moves applications from state to state. Triggers: scheduling.md 11.2; actions: 11.3."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from kornel.core.domain.application_states import TRANSITIONS, AppEvent, AppState
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.effects import ApplicationUpdated
from kornel.core.engine.gangs import placeholders, pools
from kornel.core.engine.withdrawing import withdraw_ask
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.state.books import user_accounting
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission
from kornel.core.state.waiting.rooms import stop_offering

COMPLETING_TIMEOUT_NS: Final = 30 * 10**9

_BEFORE_RUNNING: Final = (AppState.ACCEPTED, AppState.RESUMING)
_RUNNING: Final = AppState.RUNNING
_REJECTED: Final = AppState.REJECTED
_COMPLETING: Final = AppState.COMPLETING
_FAILING: Final = AppState.FAILING
"""Kept as constants, because reading a member from its class costs as much as a call, and every application starts."""
_FINISHED = frozenset({AppState.COMPLETED, AppState.FAILED})
_WAKES_WITH_ASK = frozenset({AppState.NEW, _COMPLETING})

_new: Final = tuple.__new__


def fire_event(
    state: PartitionState, application: Application, event: AppEvent, now_ns: int, message: str = ""
) -> None:
    """Applies *event* to *application*; an event without a meaning in its state is ignored."""
    target = TRANSITIONS.get((application.state, event))
    if target is None or target is application.state:
        return
    before = application.state
    application.enter_state(target, now_ns)
    application.timer_ns = None
    admission.state_changed(state, application, before)
    name = application.application_id
    if target is not _REJECTED:
        where = (state.name, application.queue.path, application.user, application.submitted_ns)
        # The constructor of a named tuple would double its cost.
        state.effects.append(_new(ApplicationUpdated, (name, target, now_ns, message or event, *where)))
    if state.recording:
        state.events.state_entered(name, target, message)
    if target is _COMPLETING:
        _start_timer(state, application, now_ns + COMPLETING_TIMEOUT_NS)
    elif target is _FAILING:
        stop_offering(application)
    elif target in _FINISHED:
        _drop_asks(state, application)
        leave_queue(state, application, now_ns)


def keep_rejected(state: PartitionState, spec: ApplicationSpec, user: str, reason: str, now_ns: int) -> None:
    """Remembers a rejected application of *user* long enough to report its expiry (protocol.md 6.2)."""
    application_id = spec.application_id
    state.past.remember_rejected(spec, user, reason, now_ns)
    if state.recording:
        state.events.state_entered(application_id, AppState.REJECTED, reason)
    _forget_old(state, now_ns)


def _forget_old(state: PartitionState, now_ns: int) -> None:
    """Tells of each application that is no longer remembered that it has expired, unless another one has its ID now.
    Looks again when the next one has been remembered for long enough."""
    for ended in state.past.drop_old(now_ns):
        name = ended.spec.application_id
        if ended.removed or name in state.applications:
            continue
        where = () if ended.state is _REJECTED else (ended.queue, ended.user, ended.submitted_ns)
        state.effects.append(ApplicationUpdated(name, AppState.EXPIRED, now_ns, AppEvent.EXPIRE, state.name, *where))
        if state.recording:
            state.events.state_entered(name, AppState.EXPIRED, "")
    due_ns, looks_ns = state.past.next_due_ns(), state.past.looks_ns
    if due_ns is not None and (looks_ns is None or looks_ns <= now_ns):
        state.past.looks_ns = due_ns
        state.run_at(due_ns, partial(_forget_old, state))


def ask_added(state: PartitionState, application: Application, now_ns: int) -> None:
    """Moves *application* on after an ask was added: it becomes Accepted with its first ask, or runs again if it had
    nothing left to do."""
    if application.state in _WAKES_WITH_ASK:
        fire_event(state, application, AppEvent.RUN, now_ns)


def allocation_recovered(state: PartitionState, application: Application, now_ns: int) -> None:
    """Moves a new *application* to Accepted, because the shim reports that an allocation of it runs."""
    if application.state is AppState.NEW:
        fire_event(state, application, AppEvent.RUN, now_ns)


def allocation_added(state: PartitionState, application: Application, *, placeholder: bool, now_ns: int) -> None:
    """Moves *application* on after an allocation was added. A real one always makes it run; placeholders do so once
    they add up to the amount that was announced."""
    if not placeholder:
        if application.state is not _RUNNING:
            fire_event(state, application, AppEvent.RUN, now_ns)
        return
    # A resuming application waits for the last of its placeholders, so one that comes late must not stay for ever.
    if application.state in _BEFORE_RUNNING and application.placeholder_deadline_ns is None:
        placeholders.start_timer(state, application, now_ns)
    announced = application.spec.placeholder_ask
    if announced is not None and not announced.is_zero():
        held = state.types.to_resources(application.placeholder)
        if held == announced.without_zeros():
            fire_event(state, application, AppEvent.RUN, now_ns)


def asks_withdrawn(state: PartitionState, application: Application, now_ns: int) -> None:
    """Completes *application* if the asks that were withdrawn were all that it had left, or ends its start."""
    if application.asks:
        return
    if application.allocations:
        admission.end_start(application)
        return
    if application.state not in (AppState.FAILING, AppState.COMPLETING):
        fire_event(state, application, AppEvent.COMPLETE, now_ns)


def allocation_removed(state: PartitionState, application: Application, *, placeholder: bool, now_ns: int) -> None:
    """Moves *application* on after an allocation was removed. The last real allocation completes it; the last
    placeholder ends a gang that is failing, resuming or waiting."""
    if placeholder:
        if not application.holds_any(placeholders=True):
            no_placeholder_left(state, application, now_ns)
    elif application.state is AppState.FAILING:
        _fail_when_empty(state, application, now_ns)
    elif application.state is not AppState.COMPLETING and _is_idle(application):
        fire_event(state, application, AppEvent.COMPLETE, now_ns)
    admission.note_allocating_no_more(state, application)


def allocations_removed(
    state: PartitionState, application: Application, gone: Iterable[Allocation], now_ns: int
) -> None:
    """Moves *application* on after several allocations were removed, by at most one event for placeholders and one for
    real ones; with more, it would pass through Completing at once."""
    for placeholder in sorted({allocation.spec.placeholder for allocation in gone}, reverse=True):
        allocation_removed(state, application, placeholder=placeholder, now_ns=now_ns)


def placeholder_replaced(state: PartitionState, application: Application, now_ns: int) -> None:
    """Moves *application* on after a placeholder was replaced (S-7, DB-12). An application that is resuming first waits
    until all placeholders are gone."""
    if application.state is not AppState.RESUMING:
        fire_event(state, application, AppEvent.RUN, now_ns)
    if not application.holds_any(placeholders=True):
        no_placeholder_left(state, application, now_ns)


def allocation_returned(state: PartitionState, application: Application) -> None:
    """Stops the timer of *application* after the shim could not start an allocation of it, unless a placeholder is
    allocated, and gives back its slot if nothing else of it is placed."""
    if not application.holds_any(placeholders=True):
        placeholders.stop_timer(application)
    admission.note_allocating_no_more(state, application)


def no_placeholder_left(state: PartitionState, application: Application, now_ns: int) -> None:
    """Lets *application* go on without its gang, or ends it, now that none of its placeholders is allocated."""
    placeholders.stop_timer(application)
    if application.state is AppState.FAILING:
        _fail_when_empty(state, application, now_ns)
    elif application.state is AppState.RESUMING:
        fire_event(state, application, AppEvent.RUN, now_ns)
        pools.regroup_members(state, application)  # While it was resuming, each placeholder waited by itself.
    elif _is_idle(application):
        fire_event(state, application, AppEvent.COMPLETE, now_ns)
    if application.state is AppState.ACCEPTED and application.holds_any(placeholders=False):
        # It got real allocations while it was resuming: without its gang it is a running application like any other.
        fire_event(state, application, AppEvent.RUN, now_ns)
    admission.note_allocating_no_more(state, application)


def _fail_when_empty(state: PartitionState, application: Application, now_ns: int) -> None:
    """Ends a failing application that holds nothing. A real allocation that was recovered in the meantime delays this,
    because otherwise it would run without an application."""
    if not application.allocations:
        fire_event(state, application, AppEvent.FAIL, now_ns)


def _is_idle(application: Application) -> bool:
    """Tells whether nothing is pending, no real allocation is held, and no replacement is under way (S-6)."""
    return not application.asks and not application.holds_any(placeholders=False)


def _start_timer(state: PartitionState, application: Application, at_ns: int) -> None:
    application.timer_ns = at_ns
    state.run_at(at_ns, partial(_end_state, state, application, at_ns))


def _end_state(state: PartitionState, application: Application, at_ns: int, now_ns: int) -> None:
    if application.timer_ns != at_ns:
        return
    if application.state is AppState.COMPLETING:
        application.timer_ns = None
        if application.holds_any(placeholders=True):
            message = f"application {application.application_id} has nothing left to do"
            placeholders.dismiss_all(state, application, message)
        else:
            fire_event(state, application, AppEvent.COMPLETE, now_ns)


def _drop_asks(state: PartitionState, application: Application) -> None:
    for ask in list(application.asks.values()):
        withdraw_ask(state, ask)


def leave_queue(state: PartitionState, application: Application, now_ns: int) -> None:
    """Removes *application* from its queue and frees its ID."""
    placeholders.stop_timer(application)
    if state.applications.get(application.application_id) is application:
        if application.state is not AppState.NEW:
            state.past.remember_finished(application, state.types, now_ns)
            _forget_old(state, now_ns)
        del state.applications[application.application_id]
        admission.forget_application(application)
        user_accounting.close_accounts(application)
        if state.recording:
            state.events.application_left(application)
    application.queue.applications.pop(application.application_id, None)
    state.root.with_due.pop(application, None)
    # Whoever still looked for a placeholder for it would look below its queue, which may be gone by then.
    for looking in (state.gangs.to_match, state.gangs.without_room, state.gangs.waiting_for_turn):
        looking.pop(application, None)
