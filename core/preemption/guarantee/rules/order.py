"""Defines the two orders of preemption for guarantees: which victim goes first, and which solution is best
(preemption.md B.5, B.6).

Both are total. A candidate is a tuple of its sort key and what the search needs, so that tuples are compared as they
are. Its class, the first two parts of the key of B.5, is left out, because each class has its own list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kornel.core.model.nodes import Node
from kornel.core.preemption.walk import Candidate
from kornel.core.state.records.victim_index import reluctance_of

SolutionKey = tuple[bool, bool, int, int, int, int, str]
"""(any originator, any opted out, victims, highest adjusted priority, -created of the oldest, -depth of the shallowest
lowest common ancestor, node ID): the smallest is the best."""


def solution_key(victims: Sequence[Candidate], node_id: str) -> SolutionKey:
    """Returns the key of the solution that takes *victims* on *node_id*; the solution without victims has the
    smallest."""
    if not victims:
        return (False, False, 0, 0, 0, 0, node_id)
    return (
        any(victim[4].spec.originator for victim in victims),
        any(not victim[4].spec.allow_preempt_self for victim in victims),
        len(victims),
        max(victim[0] for victim in victims),
        max(victim[1] for victim in victims),
        -min(victim[5].depth for victim in victims),
        node_id,
    )


class Solution(NamedTuple):
    """Victims, in the order of preemption.md B.5, that make room on a node; the smallest key is the best."""

    key: SolutionKey
    node: Node
    victims: tuple[Candidate, ...]

    @property
    def level(self) -> int:
        """The class of the victim that is taken last."""
        return max((reluctance_of(victim[4]) for victim in self.victims), default=0)

    @classmethod
    def of(cls, node: Node, victims: Sequence[Candidate]) -> Solution:
        """Returns the solution that takes *victims* on *node*, with its key."""
        return cls(solution_key(victims, node.node_id), node, tuple(victims))


def full_order(victim: Candidate) -> tuple[int, int, int, int, str]:
    """Returns the whole sort key of preemption.md B.5, with the class in front."""
    return (reluctance_of(victim[4]), *victim[:4])
