"""Keeps what nodes offer to asks that preempt, once for all questions, until they change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

from kornel.core.model.nodes import Node
from kornel.core.model.orders.numbered_nodes import NumberedNodes
from kornel.core.model.queues import Queue
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

    def slots_with(self, leaves: Collection[Queue]) -> Iterable[int]:
        """Returns the slots of the nodes where *leaves* run something; all slots, if that is quicker."""
        in_order = sorted(leaves, key=attrgetter("path"))  # A set has another order in each process.
        applications = [application for leaf in in_order for application in leaf.applications.values()]
        if sum(len(application.allocations) for application in applications) > len(self.slots):
            return self.slots.values()
        nodes = (allocation.node for application in applications for allocation in application.allocations.values())
        return [slot for node in nodes if node is not None and (slot := self.slots.get(node)) is not None]
