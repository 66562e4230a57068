"""One round of the periodic preemption cycle: the configured kinds, one after the other (preemption.md F2)."""

from __future__ import annotations

from kornel.core.partition.state import PartitionState
from kornel.core.preemption.registry import kind_called


def run(state: PartitionState, now_ns: int) -> None:
    """Give every kind that ``preemption.policies`` lists its turn, in that order."""
    for name in state.preemption.policies:
        kind = kind_called(name)
        if kind is not None:
            kind.driver.in_round(state, now_ns)
