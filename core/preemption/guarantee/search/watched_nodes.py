"""Keeps what nodes offer to asks that preempt, once for all questions, until they change."""

from __future__ import annotations

from collections.abc import Mapping

from kornel.core.model.nodes import Node
from kornel.core.model.orders.numbered_nodes import NumberedNodes
from kornel.core.preemption.guarantee.search.node_bounds import NodeOffer


class WatchedNodes(NumberedNodes):
    """The nodes of the last look by slot, with what they offer."""

    __slots__ = ("offers",)

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[int, NodeOffer] = {}
        """The offers of nodes by slot, for those that were judged since they changed."""

    def compare_nodes(self, nodes: Mapping[str, Node]) -> list[int]:
        """Looks at all *nodes*. Returns the slots of those that have gone, which are free from now on."""
        gone = super().compare_nodes(nodes)
        for slot in (*gone, *self.changed_since(self.look - 1)):
            self.offers.pop(slot, None)
        return gone

    def offer_of(self, slot: int) -> NodeOffer:
        """Returns what the node in *slot* has to offer."""
        offer = self.offers.get(slot)
        if offer is None:
            node = self.nodes[slot]
            assert node is not None, "only nodes are judged"
            offer = self.offers[slot] = NodeOffer(node)
        return offer
