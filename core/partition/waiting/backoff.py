"""Applications whose asks fit nowhere are left alone for a while, where their queue says so (scheduling.md 7.2, S-17).

The threshold counts asks that found no node. Once it is reached, nothing of the application is tried until the delay
is over, whatever becomes free meanwhile; then it begins anew.
"""

from __future__ import annotations

from kornel.core.model.allocations import AskGroup
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting import rooms


def count_unplaced(state: PartitionState, group: AskGroup, now_ns: int) -> None:
    """Counts the asks of *group*, which no node has room for, and backs off from its application once they are too
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

    def begin_anew(_: int) -> None:
        # The timer is not taken back when the application leaves or backs off anew.
        if application.backoff_until_ns == until_ns:
            application.backoff_until_ns = 0
            application.unschedulable = 0
            rooms.end_back_off(application)
            state.reserving.call_round()

    state.run_at(until_ns, begin_anew)
