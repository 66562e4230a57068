"""Runs one round of the periodic preemption cycle: the configured kinds, one after the other (preemption.md F2)."""

from __future__ import annotations

from kornel.core.engine.scheduling import reserved
from kornel.core.preemption.registry import kind_called
from kornel.core.preemption.slices import resume_waiting
from kornel.core.state.partition_state import PartitionState


def run(state: PartitionState, now_ns: int) -> None:
    """Run the round of every kind in ``preemption.policies``, in the order listed there."""
    for name in state.preemption.policies:
        kind = kind_called(name)
        if kind is None:
            continue
        was_busy = kind.driver.is_busy(state)
        kind.driver.in_round(state, now_ns)
        if kind.driver.tries_again is not None:
            reserved.serve(state, now_ns, kind.driver.tries_again)
        if was_busy:
            resume_waiting(state, now_ns)
