"""Defines the allocations that may have to leave, and the asks that are to be placed, with the amounts that have to be
freed for each ask (preemption.md E.5)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.monitor.selection.figures import QueueFigures
from kornel.core.state.records.victim_index import reluctance_of

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
    """An allocation that may have to leave, with its class as a victim, its *reluctance*."""

    __slots__ = ("allocation", "leaf", "node", "pairs", "reluctance", "taken")

    def __init__(self, allocation: Allocation, leaf: QueueFigures, node: Node) -> None:
        self.allocation: Final = allocation
        self.leaf: Final = leaf
        self.node: Final = node
        self.pairs: Pairs = allocation.shape.pairs
        self.reluctance = reluctance_of(allocation)
        self.taken = False

    @property
    def members(self) -> tuple[Allocation, ...]:
        """The allocations that leave with the candidate."""
        return (self.allocation,)

    @property
    def here(self) -> Pairs:
        """The amounts that the candidate frees on its node."""
        return self.pairs

    @property
    def originating(self) -> Pairs:
        """The amounts of originators among those that leave, if the candidate is of their class."""
        return self.pairs


class GangCandidate(Candidate):
    """A gang that may have to leave as a whole, looked at on one of the nodes where its members run.

    ``pairs`` are the amounts of all members. ``allocation`` is the member with the highest priority, because law 6
    protects the gang if it protects one member.
    """

    __slots__ = ("_here", "_members", "_originating")

    def __init__(self, members: Sequence[Allocation], leaf: QueueFigures, node: Node) -> None:
        super().__init__(max(members, key=lambda member: member.spec.priority), leaf, node)
        self.pairs = tuple(sum_amounts(members).items())
        self.reluctance = max(map(reluctance_of, members))
        self._members: Final = tuple(members)
        self._here: Final = tuple(sum_amounts(member for member in members if member.node is node).items())
        self._originating: Final = tuple(sum_amounts(member for member in members if member.spec.originator).items())

    @property
    def members(self) -> tuple[Allocation, ...]:
        """The allocations that leave with the candidate."""
        return self._members

    @property
    def here(self) -> Pairs:
        """The amounts that the members on the node free there."""
        return self._here

    @property
    def originating(self) -> Pairs:
        """The amounts of originators among the members."""
        return self._originating


class Want:
    """An ask to be placed, with what it needs freed inside queues that are full: (queue, amounts by type)."""

    __slots__ = ("ask", "leaf", "needs", "pairs")

    def __init__(self, ask: Allocation, leaf: QueueFigures, needs: Needs) -> None:
        self.ask: Final = ask
        self.leaf: Final = leaf
        self.pairs: Final = ask.shape.pairs
        self.needs: Final = needs
