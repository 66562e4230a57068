"""The plan for a queue above its max: who goes so that it comes down, and what keeps the rest there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue

KIND: Final = "quota"


class ProtectedBy(StrEnum):
    """The reasons why work stays in a queue above its max."""

    GUARANTEE = "guarantee"
    REQUIRED_NODE = "required-node"
    """Tasks bound to their node are never victims."""
    ENDING = "ending"
    """Tasks that somebody ends already for another reason."""
    GANG = "gang"
    """Members of a gang that would be left with fewer than are of use."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The reason why *amount* of type index *t* stays in a queue above its max.

    For a guarantee: of *queue*, for type index *of* (the tasks may hold that too), which it holds *held* of.
    *smallest*: the least that one of these tasks holds of it.
    """

    reason: ProtectedBy
    t: int
    amount: int
    queue: Queue
    of: int = 0
    guaranteed: int = 0
    held: int = 0
    smallest: int = 0


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """Mark *victims* so that *queue* comes down towards its max (preemption.md D). Amounts by type index.

    ceilings   the max that is enforced
    target     what the queue holds above it, each > 0, whatever protects that; empty: nothing is to be done
    unmet      what of it the victims leave; types with nothing left over are left out
    staying    what victims in flight hold that will not leave, as far as anybody knows
    protected  what keeps there what is unmet
    """

    queue: Queue
    ceilings: Mapping[int, int]
    target: Mapping[int, int]
    victims: tuple[Allocation, ...]
    unmet: Mapping[int, int]
    outcome: Outcome
    staying: Mapping[int, int] = field(default_factory=dict)
    protected: tuple[Protection, ...] = ()

    @property
    def kind(self) -> str:
        """Names the kind of preemption."""
        return KIND
