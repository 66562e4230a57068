"""An ask that the shim refused wherever there is room pauses before the same nodes are tried again.

The pause doubles with every refusal in a row. Wherever the ask waits when it ends, it is looked at again; another node
with room ends it early.
"""

from __future__ import annotations

from typing import Final

from core.model.allocations import Allocation
from core.partition.scheduling.waiting import enqueue, leave_refused, look_again, look_for_pairs
from core.partition.state import PartitionState

PAUSE_NS: Final = 10**9
LONGEST_PAUSE_NS: Final = 15 * 10**9


def pause(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """See that what was refused for *ask* is forgotten after a while; a pause under way goes on."""
    if ask.pause_until_ns:
        return
    ask.refusals += 1
    _end_at(state, ask, now_ns + min(PAUSE_NS << min(ask.refusals - 1, 10), LONGEST_PAUSE_NS))


def forgive(state: PartitionState, ask: Allocation) -> None:
    """Nothing is refused for *ask* any more: it is tried again, wherever it waits."""
    ask.refused = None
    ask.pause_until_ns = 0
    waited = leave_refused(state, ask)
    if ask.reservation is not None:
        look_again(state, ask.reservation)
    elif ask.pool is not None:
        look_for_pairs(state, ask.application, ask.pool)
    elif waited:
        enqueue(state, ask)


def _end_at(state: PartitionState, ask: Allocation, until_ns: int) -> None:
    ask.pause_until_ns = until_ns

    def end(now_ns: int) -> None:
        if ask.pause_until_ns != until_ns or not ask.pending or state.requests.get(ask.key) is not ask:
            return
        if ask.inquiry is not None:  # What the shim says now may need the refusals once more.
            _end_at(state, ask, now_ns + PAUSE_NS)
        else:
            forgive(state, ask)

    state.at(until_ns, end)
