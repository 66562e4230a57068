"""Back-off: applications are not tried for a while if their asks fit on no node and their queue says so (scheduling.md
7.2, S-17), or if their gang is being preempted as a whole (preemption.md B.10).

Asks that found no node are counted. Once the threshold is reached, no ask of the application is tried until the delay
is over, whatever becomes free meanwhile; then counting begins again.
"""

from __future__ import annotations

from functools import partial

from kornel.core.model.allocations import AskGroup
from kornel.core.model.applications import Application
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import rooms


def count_unplaced(state: PartitionState, group: AskGroup, now_ns: int) -> None:
    """Counts the asks of *group*, for which no node has room, and backs off from its application once there are too
    many."""
    application = group.application
    properties = application.queue.properties
    threshold = properties.unschedulable_backoff
    if not threshold or application.backoff_until_ns:
        return
    application.unschedulable += group.size
    if application.unschedulable < threshold:
        return
    _back_off(state, application, now_ns + properties.unschedulable_backoff_delay_ns)


def wait_for_gang_exit(state: PartitionState, application: Application, until_ns: int) -> None:
    """Backs off from *application*, all running members of which were asked to leave, until the last one has left,
    but no longer than *until_ns*: a new member would run without the others."""
    state.gangs.leaving[application] = None
    _back_off(state, application, until_ns)


def end_early(state: PartitionState, application: Application) -> None:
    """Ends the back-off of *application*, because what it waited for has happened."""
    _begin_anew(state, application, application.backoff_until_ns, 0)


def _back_off(state: PartitionState, application: Application, until_ns: int) -> None:
    application.backoff_until_ns = until_ns
    rooms.back_off(application)
    state.run_at(until_ns, partial(_begin_anew, state, application, until_ns))


def _begin_anew(state: PartitionState, application: Application, until_ns: int, _now_ns: int) -> None:
    # The timer is not cancelled when the application ends or backs off again.
    if application.backoff_until_ns == until_ns:
        application.backoff_until_ns = 0
        application.unschedulable = 0
        state.gangs.leaving.pop(application, None)
        rooms.end_back_off(application)
        state.reserving.call_round()
