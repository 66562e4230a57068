"""The asks that may try to preempt for a guarantee, and the times from which on they may (preemption.md B.1, K3)."""

from __future__ import annotations

from heapq import heappush
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.partition.state import PartitionState

RETRY_NS: Final = 15 * 10**9
"""Time from the last victim's exit to re-arming, and to the next attempt where it hangs on more than the books."""


def may_ever_preempt(ask: Allocation) -> bool:
    """Tells whether *ask* is one that guarantee-driven preemption serves at all."""
    return ask.spec.allow_preempt_other and not ask.spec.required_node and ask.shape.devices is None


def watch(state: PartitionState, ask: Allocation) -> None:
    """Have *ask* considered as soon as it is old enough, and again after every pause."""
    if may_ever_preempt(ask):
        set_due(state, ask, ask.created_ns + ask.queue.properties.preemption_delay_ns)


def set_due(state: PartitionState, ask: Allocation, when_ns: int) -> None:
    """Have *ask* try at *when_ns*, after placement had its turn."""
    heappush(state.attempts_due, (when_ns, state.next_number(), ask))
