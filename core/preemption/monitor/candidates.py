"""Allocations that may have to leave, and asks that want places, with what each of them needs freed (E.5)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.monitor.figures import QueueFigures
from kornel.core.preemption.victim_index import reluctance_of

Lack = dict[int, int]
"""The amounts that are missing, by type."""
Needs = list[tuple[QueueFigures, Lack]]
"""The amounts that have to be freed inside queues that are full."""

ORIGINATORS: Final = 2
"""The class from which on tasks are originators."""


class Whom(Enum):
    """The limits to who may be taken for an ask."""

    GIVING = 1
    """Tasks of leaves that are to give something up; the last one may be more than that."""
    WITHIN = 2
    """The same, but nothing more than they are to give up."""
    ANYBODY = 3
    """Tasks of any leaf that the laws let go."""


class Candidate:
    """An allocation that may have to leave, with its class as a victim."""

    __slots__ = ("allocation", "kind", "leaf", "node", "pairs", "taken")

    def __init__(self, allocation: Allocation, leaf: QueueFigures, node: Node) -> None:
        self.allocation: Final = allocation
        self.leaf: Final = leaf
        self.node: Final = node
        self.pairs: Final = allocation.shape.pairs
        self.kind: Final = reluctance_of(allocation)
        self.taken = False


class Want:
    """An ask to be placed, with what it needs freed inside queues that are full: (queue, amounts by type)."""

    __slots__ = ("ask", "leaf", "needs", "pairs")

    def __init__(self, ask: Allocation, leaf: QueueFigures, needs: Needs) -> None:
        self.ask: Final = ask
        self.leaf: Final = leaf
        self.pairs: Final = ask.shape.pairs
        self.needs: Final = needs


def is_met(lack: Lack, needs: Needs) -> bool:
    """Tells whether nothing is lacking any more, on the node and inside the queues."""
    for amount in lack.values():
        if amount > 0:
            return False
    return not any(amount > 0 for _, need in needs for amount in need.values())


def leave_out(chosen: list[Candidate], lack: Lack, needs: Needs) -> None:
    """Drop those of *chosen* whose room is not needed with that of the others, the last first."""
    for candidate in reversed(list(chosen)):
        count_freed(candidate, lack, needs, -1)
        if is_met(lack, needs):
            chosen.remove(candidate)
        else:
            count_freed(candidate, lack, needs, 1)


def count_freed(candidate: Candidate, lack: Lack, needs: Needs, times: int) -> None:
    """Count what *candidate* frees as lacking no more; with *times* -1 as lacking again."""
    for t, amount in candidate.pairs:
        if t in lack:
            lack[t] -= amount * times
        for queue, need in needs:
            if t in need and queue in candidate.leaf.lineage:
                need[t] -= amount * times
