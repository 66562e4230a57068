"""The plan for a queue above its max: the victims, and what protects the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kornel.core.domain.preemption_kinds import QUOTA
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.state.records.enforcement import Protection

KIND: Final = QUOTA.name


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The plan to mark *victims* so that *queue* comes closer to its max (preemption.md D). Amounts by type index.

    ceilings   the max that is enforced
    target     what the queue holds above it, protected or not, each > 0; empty: there is nothing to do
    unmet      the part of the target that the victims do not free, without types of 0
    staying    what stuck victims in flight hold
    protected  what protects the unmet part
    due_ns     since when the max was due to be enforced; 0: that is not known, as for a forecast
    miss       the percentage of the target that may be left
    """

    queue: Queue
    ceilings: Mapping[int, int]
    target: Mapping[int, int]
    victims: tuple[Allocation, ...]
    unmet: Mapping[int, int]
    outcome: Outcome
    staying: Mapping[int, int] = field(default_factory=dict)
    protected: tuple[Protection, ...] = ()
    miss: int = 0
    due_ns: int = 0

    @property
    def kind(self) -> str:
        """Names the kind of preemption."""
        return KIND
