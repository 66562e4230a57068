"""Defines the allocations that may have to leave, and the asks that are to be placed, with the amounts that have to be
freed for each ask (preemption.md E.5)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.monitor.figures import QueueFigures
from kornel.core.preemption.victim_index import reluctance_of

Lack = dict[int, int]
"""The amounts that are lacking, by type."""
Needs = list[tuple[QueueFigures, Lack]]
"""The amounts that have to be freed inside queues that are full."""

ORIGINATORS: Final = 2
"""The lowest class of originators."""


class Whom(Enum):
    """The limits on the victims of an ask."""

    GIVING = 1
    """Tasks of leaves that have to give something up; the last victim may be larger than what is left to give up."""
    WITHIN = 2
    """Tasks of leaves that have to give something up, and no more than that."""
    ANYBODY = 3
    """Tasks of any leaf, as far as the laws allow."""


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
    """Leaves out those of *chosen* whose room is not needed besides that of the others, tried from the last one on."""
    for candidate in reversed(list(chosen)):
        count_freed(candidate, lack, needs, -1)
        if is_met(lack, needs):
            chosen.remove(candidate)
        else:
            count_freed(candidate, lack, needs, 1)


def count_freed(candidate: Candidate, lack: Lack, needs: Needs, times: int) -> None:
    """Subtracts what *candidate* frees from what is lacking; with *times* -1, adds it back."""
    for t, amount in candidate.pairs:
        if t in lack:
            lack[t] -= amount * times
        for queue, need in needs:
            if t in need and queue in candidate.leaf.lineage:
                need[t] -= amount * times
