"""The enforcement of lowered maxima in a round of the periodic cycle (preemption.md F2, H)."""

from __future__ import annotations

from typing import Final

from kornel.core.partition.state import PartitionState
from kornel.core.preemption.quota import drive

ENFORCEMENT_BUDGET: Final = 256
"""The decisions that one round spends on lowered maxima; slices between rounds do the rest."""


def has_queues_due(state: PartitionState) -> bool:
    """Tells whether a max is to be enforced, or asks wait until that is over."""
    return state.enforcement.busy or bool(state.enforcement.deferred)


def enforce_due(state: PartitionState, now_ns: int) -> None:
    """Go on with the lowered maxima that are due."""
    drive.advance_enforcement(state, now_ns, ENFORCEMENT_BUDGET)
