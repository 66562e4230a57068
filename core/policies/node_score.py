"""The score of a node, by which nodes are ordered. Rule: scheduling.md 5.4."""

from __future__ import annotations

from kornel.core.domain.settings import NodeSortPolicy
from kornel.core.model.nodes import Node


class NodeScore:
    """Scores nodes, lower first: ``fair`` by the share in use, ``binpacking`` by the share still free.

    *weights* by type index; types without one do not count. Foreign load counts, and an over-allocated node may score
    above 1.
    """

    __slots__ = ("_binpacking", "_weights")

    def __init__(self, policy: NodeSortPolicy, weights: dict[int, float]) -> None:
        self._binpacking = policy is NodeSortPolicy.BINPACKING
        self._weights = [(t, weight) for t, weight in weights.items() if weight]

    def __call__(self, node: Node) -> float:
        capacity, free = node.capacity, node.free
        total = 0.0
        weighed = 0.0
        for t, weight in self._weights:
            whole = capacity[t]
            if whole:
                total += weight * (1 - free[t] / whole)
                weighed += weight
        usage = total / weighed if weighed else 0.0
        return 1 - usage if self._binpacking else usage
