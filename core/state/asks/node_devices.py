"""Finds the nodes for asks that want devices (docs/devices.md).

An ask for a part of a device is placed on a node where parts of a device are held already, if there is one, so that
whole devices stay free for asks that need them. All other asks take the nodes in their order.
"""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState


def first_node(state: PartitionState, ask: Allocation) -> Node | None:
    """Returns the first node that has room for *ask* and its devices free, even if the shim has refused the node."""
    return next(_nodes_with(state, ask), None)


def nodes_for(state: PartitionState, ask: Allocation) -> Iterator[Node]:
    """Yields the nodes that have room for *ask* and its devices free, except those that the shim has refused for it."""
    refused = ask.refused or {}
    return (node for node in _nodes_with(state, ask) if node.node_id not in refused)


def _nodes_with(state: PartitionState, ask: Allocation) -> Iterator[Node]:
    shape = ask.shape
    request = shape.devices
    assert request is not None, "the caller has checked"
    begun: set[Node] = set()
    if not request.number and state.sharing:
        begun = {
            node
            for node, most in state.sharing.items()
            if most >= request.share
            and node in state.node_order
            and node.has_room(shape.pairs)
            and node.devices is not None
            and node.devices.has_room_in_part(request)
        }
        yield from sorted(begun, key=_place_of)
    for node in state.node_order.fitting_nodes(shape.pairs):
        if node not in begun and node.has_devices(request):
            yield node


def _place_of(node: Node) -> tuple[float, str]:
    return (node.score, node.node_id)
