"""Limits how many applications run: counts them at their queues, and decides whether one more may start (scheduling.md
12).

Only Accepted applications are held back. An application that holds something by recovery or because the shim placed it
counts, but is never refused. Counters are exact, even above a lowered limit (S-22); limits are only compared when an
application is admitted.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import (
    Gate,
    hold_back,
    may_start_next,
    offer_application,
    offer_slot,
    offer_slots,
    review_newcomer,
)

_ACCEPTED: Final = AppState.ACCEPTED
_RUNNING: Final = AppState.RUNNING
"""Kept as constants, because reading a member from its class costs as much as a call, and every application starts."""
_NOT_RUNNING_YET: Final = frozenset({_ACCEPTED, AppState.RESUMING})


def may_run(state: PartitionState, application: Application, priority: int | None = None) -> Gate | None:
    """Returns the queue, user or group that keeps *application* from starting: by a limit, the root first, or a leaf
    sorted ``stateaware`` because it is the turn of another one; ``None``: it may run. With *priority*: what keeps it
    from starting with asks of this priority once there is room for these."""
    if application.state is not _ACCEPTED:
        return None
    # An application that is allocating counts at its queues already and needs no other slot there. The limit of its
    # user or group counts those that hold or claim something, so it is tested all the same.
    if not application.allocating:
        for queue in reversed(application.queue.lineage()):
            if not queue.open():
                return queue
    for account in application.accounts:
        if not account.open() and not account.is_used_by(application):
            return account
    # This comes last, because whoever an account keeps back is not among those of which one may start.
    return None if may_start_next(application, priority, state.callbacks.now_ns) else application.queue


def keep_from_starting(state: PartitionState, application: Application, gate: Gate) -> None:
    """Holds *application* back at *gate*, and looks at it again when those that are starting count as started."""
    hold_back(application, gate)
    for other in application.queue.starting:
        _limit_start(state, other)


def _begin_start(state: PartitionState, application: Application) -> None:
    """Counts *application*, which runs from now on in a leaf sorted ``stateaware``, as starting if only its originator
    runs (preemption.md G.3)."""
    leaf, running = application.queue, application.allocations.values()
    if running and all(allocation.spec.originator for allocation in running):
        application.settled = False
        leaf.starting[application] = None
        if leaf in leaf.held_back or not application.asks:
            _limit_start(state, application)


def _limit_start(state: PartitionState, application: Application) -> None:
    """Has the start of *application* end in time: another one waits for that, or it has not asked for anything yet."""
    if application.timer_ns is None:
        application.timer_ns = application.start_ends_ns()
        state.run_at(application.timer_ns, partial(review_start, state, application))


def review_start(state: PartitionState, application: Application, now_ns: int) -> None:
    """Ends the start of *application* if its time is over. It has more if it has asked for something meanwhile."""
    leaf = application.queue
    if application not in leaf.starting:
        return
    application.timer_ns = None
    if application.start_ends_ns() <= now_ns:
        end_start(application)
    elif leaf in leaf.held_back:
        _limit_start(state, application)


def end_start(application: Application) -> None:
    """Counts *application* as started, if it was starting: the next one of its leaf may start."""
    leaf = application.queue
    if application in leaf.starting:
        del leaf.starting[application]
        application.settled, application.timer_ns = application.state is _RUNNING, None
        offer_slot(leaf, leaf)


def note_allocating(_state: PartitionState, application: Application) -> None:
    """Counts *application*, which was given an allocation or a reservation, as if it ran while it is Accepted."""
    if application.state is AppState.ACCEPTED and not application.allocating:
        application.allocating = True
        for queue in application.queue.lineage():
            queue.allocating[application] = None
    if application.held_at is not None:
        offer_application(application)


def note_allocating_no_more(_state: PartitionState, application: Application) -> None:
    """Stops counting *application* as if it ran, if it has lost all that it was given: places to which the shim did not
    agree, reservations, or placeholders that have ended. Its asks may never find room, and others wait for its slot."""
    if allocates_nothing(application):
        _stop_allocating(application)
        _free_slots(application)


def allocates_nothing(application: Application, but: Allocation | None = None) -> bool:
    """Tells whether *application*, which counts as if it ran, was given nothing that it still has, *but* for the claim
    of one ask."""
    counts = application.allocating and application.state is AppState.ACCEPTED
    if not counts or application.allocations or application.held_count:
        return False
    claims = (ask.reservation for ask in application.asks.values() if ask is not but)
    return all(claim is None or claim.by_age for claim in claims)


def state_changed(state: PartitionState, application: Application, before: AppState) -> None:
    """Updates the counters for *application*, which has left the state *before*."""
    now = application.state
    if application.queue.newcomers is not None:
        if before is _RUNNING:
            end_start(application)
        elif before is _ACCEPTED and now is _RUNNING:
            _begin_start(state, application)
    freed = before is _RUNNING
    if freed:
        _count_running(application, -1)
    if now is _RUNNING:
        _count_running(application, 1)
    if application.allocating and now not in _NOT_RUNNING_YET:
        _stop_allocating(application)
        # An application that was allocating keeps its slot when it becomes Running, because both count against the same
        # limit.
        freed = now is not _RUNNING
    if freed:
        _free_slots(application)
    if application.held_at is not None and now is not _ACCEPTED:
        offer_application(application)
    if application.queue.newcomers is not None:
        review_newcomer(application)


def forget_application(application: Application) -> None:
    """Removes *application*, which leaves its queue, from all counters, whatever its state (S-10)."""
    end_start(application)
    runs = application.state is AppState.RUNNING
    if runs:
        _count_running(application, -1)
    if application.allocating:
        _stop_allocating(application)
    elif not runs:
        return
    _free_slots(application)


def set_max_applications(queue: Queue, most: int) -> None:
    """Sets the most applications that *queue* admits (0: any number), and looks again at applications that it has held
    back."""
    queue.max_applications = most
    for waiting in list(queue.held_back.values()):
        for application in list(waiting):
            offer_application(application)


def _count_running(application: Application, change: int) -> None:
    for queue in application.queue.lineage():
        queue.running += change


def _stop_allocating(application: Application) -> None:
    application.allocating = False
    for queue in application.queue.lineage():
        del queue.allocating[application]


def _free_slots(application: Application) -> None:
    for queue in application.queue.lineage():
        offer_slots(queue)
