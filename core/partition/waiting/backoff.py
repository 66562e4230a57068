"""Back-off: applications whose asks fit on no node are not tried for a while, if their queue says so (scheduling.md
7.2, S-17).

Asks that found no node are counted. Once the threshold is reached, no ask of the application is tried until the delay
is over, whatever becomes free meanwhile; then counting begins again.
"""

from __future__ import annotations

from functools import partial

from kornel.core.model.allocations import AskGroup
from kornel.core.model.applications import Application
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting import rooms


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
    application.backoff_until_ns = until_ns = now_ns + properties.unschedulable_backoff_delay_ns
    rooms.back_off(application)
    state.run_at(until_ns, partial(_begin_anew, state, application, until_ns))


def _begin_anew(state: PartitionState, application: Application, until_ns: int, _now_ns: int) -> None:
    # The timer is not cancelled when the application ends or backs off again.
    if application.backoff_until_ns == until_ns:
        application.backoff_until_ns = 0
        application.unschedulable = 0
        rooms.end_back_off(application)
        state.reserving.call_round()
