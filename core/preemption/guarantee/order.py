"""The two orders of guarantee-driven preemption: who goes first, and which solution is best (preemption.md B.5, B.6).

Both are total. A candidate is its sort key with what the search needs behind it, so that plain tuple comparison sorts
a pool; its class, the first two parts of the key, is what separates the pools and is kept outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.allowances import Kind
from kornel.core.preemption.victim_index import reluctance_of

Candidate = tuple[int, int, int, str, Allocation, Kind]
"""(adjusted priority at the fence, or the price if victims have one, -created, earlier preemptions of
the application, key, allocation, kind)."""

SolutionKey = tuple[bool, bool, int, int, int, int, str]
"""(any originator, any opted out, victims, highest adjusted priority, -created of the oldest, -depth of the shallowest
lowest common ancestor, node ID): the smallest is the best."""


def solution_key(victims: Sequence[Candidate], node_id: str) -> SolutionKey:
    """Returns how good it is to take *victims* for room on *node_id*; best of all is to need none."""
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
    """Victims, in B.5 order, that make room on a node; the smallest key is the best."""

    key: SolutionKey
    node: Node
    victims: tuple[Candidate, ...]

    @classmethod
    def of(cls, node: Node, victims: Sequence[Candidate]) -> Solution:
        """Returns the solution that has *victims* leave *node*, with its key."""
        return cls(solution_key(victims, node.node_id), node, tuple(victims))


def full_order(victim: Candidate) -> tuple[int, int, int, int, str]:
    """Returns the sort key of B.5 with the class in front."""
    return (reluctance_of(victim[4]), *victim[:4])
