"""Keeps what each node lacks of the shapes for which nodes were reserved lately, so that a round of reservations
computes it again only for nodes that have changed."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from kornel.core.model.nodes import Node
from kornel.core.model.orders.numbered_nodes import NumberedNodes
from kornel.core.model.shapes import Pairs

MOST_BYTES: Final = 8 << 20
"""The most memory that all kept numbers take. The shape that was needed least recently is forgotten first."""


class MissingShares:
    """The missing shares of all nodes for the latest shapes, computed when they are needed."""

    __slots__ = ("_known", "_watched")

    def __init__(self) -> None:
        self._watched = NumberedNodes()
        self._known: dict[Pairs, tuple[int, array[float]]] = {}
        """By shape, the number of the last look, and the missing share of each node by slot. The shape that was needed
        least recently comes first."""

    def order_nodes(self, nodes: Mapping[str, Node], in_order: Iterable[Node], pairs: Pairs) -> deque[Node]:
        """Returns those of *in_order*, a part of *nodes*, that could hold *pairs* if they were empty, the one that
        lacks least first; ties keep their order."""
        watched = self._watched
        watched.compare_nodes(nodes)
        look, shares = self._known.pop(pairs, (0, array("d")))
        shares.extend([inf] * (len(watched.nodes) - len(shares)))
        for slot in watched.changed_since(look):
            node = watched.nodes[slot]
            assert node is not None, "nodes that have gone do not change"
            shares[slot] = missing_share(node, pairs) if node.could_hold(pairs) else inf
        self._known[pairs] = watched.look, shares
        self._forget_oldest()
        # Everything below is done without a step of the interpreter for each node.
        slots = list(map(watched.slots.__getitem__, in_order))
        slots.sort(key=shares.__getitem__)
        del slots[bisect_left(slots, inf, key=shares.__getitem__) :]
        return deque(map(watched.nodes.__getitem__, slots))  # type: ignore[arg-type]

    def forget_gone(self, nodes: Mapping[str, Node]) -> None:
        """Keeps nothing of nodes that are not among *nodes*."""
        self._watched.compare_nodes(nodes)

    def _forget_oldest(self) -> None:
        most = max(1, MOST_BYTES // (8 * max(1, len(self._watched.nodes))))
        while len(self._known) > most:
            del self._known[next(iter(self._known))]


def missing_share(node: Node, pairs: Pairs) -> float:
    """Returns how much of *pairs* *node* has no room for: the sum, over the types, of the missing fraction of the
    amount, between 0 and 1 each."""
    free = node.beside
    missing = 0.0
    for t, amount in pairs:
        if free[t] < amount:
            missing += (amount - free[t]) / amount if free[t] > 0 else 1.0
    return missing
