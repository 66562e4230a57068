"""Keeps the asks that may try to preempt for a guarantee, and the times from which they may (preemption.md B.1, K3)."""

from __future__ import annotations

from heapq import heappush
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.state.partition_state import PartitionState

RETRY_NS: Final = 15 * 10**9
"""The time after which an ask may preempt again once its last victim has left, and the time between a failed attempt
and the next one if the result depends on more than the books."""


def may_ever_preempt(ask: Allocation) -> bool:
    """Tells whether *ask* may ever preempt for a guarantee."""
    return ask.spec.allow_preempt_other and not ask.spec.required_node


def watch(state: PartitionState, ask: Allocation) -> None:
    """Makes *ask* due to preempt as soon as it is old enough."""
    if may_ever_preempt(ask):
        set_due(state, ask, ask.created_ns + ask.queue.properties.preemption_delay_ns)


def set_due(state: PartitionState, ask: Allocation, when_ns: int) -> None:
    """Makes *ask* due to preempt at *when_ns*, once placement has had its turn."""
    heappush(state.attempts_due, (when_ns, state.next_number(), ask))
