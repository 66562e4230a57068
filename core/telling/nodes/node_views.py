"""Views of nodes: what they offer, and what they hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.resources import Resources
from kornel.core.model.nodes import Node
from kornel.core.partition.state import PartitionState
from kornel.core.telling.allocations.allocation_views import AllocationView, ForeignView, KeptViews, Tags, foreign_view


class NodeSummary(NamedTuple):
    """One node as a list of many shows it: cheap to make."""

    node_id: str
    schedulable: bool
    capacity: Resources
    allocated: Resources
    occupied: Resources
    available: Resources
    allocations: int
    reservations: int


class NodeView(NamedTuple):
    """One node. ``available`` = capacity - allocated - occupied; negative when it is over-allocated."""

    node_id: str
    host: str
    rack: str
    attributes: Tags
    capacity: Resources
    allocated: Resources
    occupied: Resources
    available: Resources
    allocations: tuple[AllocationView, ...]
    foreign: tuple[ForeignView, ...]
    schedulable: bool
    reservations: tuple[str, ...]
    """Keys of the asks it is kept free for."""
    drained_by_shim: bool = False
    operator_drain: OperatorDrain | None = None
    """The drain by which an operator keeps it out of scheduling; ``None``: no operator does."""


_HOST: Final = ("si/hostname", "si.io/hostname")
_RACK: Final = ("si/rackname", "si.io/rackname")


def node_views(state: PartitionState, kept: KeptViews) -> Iterator[NodeView]:
    """Shows all nodes, by ID."""
    for node in nodes_by_id(state):
        yield node_view(state, node, kept)


def node_summaries(state: PartitionState, after: str) -> Iterator[NodeSummary]:
    """Shows all nodes in short whose IDs come after *after*, by ID."""
    for node in nodes_by_id(state, after):
        yield node_summary(state, node)


def node_view(state: PartitionState, node: Node, kept: KeptViews) -> NodeView:
    """Shows one node with everything on it."""
    resources, attributes = state.types.to_resources, dict(node.attributes)
    return NodeView(
        node.node_id,
        _first_of(attributes, _HOST),
        _first_of(attributes, _RACK),
        node.attributes,
        resources(node.capacity),
        resources(node.allocated),
        resources(node.occupied),
        resources(node.free),
        tuple(kept.on_node(node)),
        tuple([foreign_view(load) for _, load in sorted(node.foreign_loads.items())]),
        node.schedulable,
        tuple(sorted(node.reservations)),
        node.drained_by_shim,
        node.operator_drain,
    )


def node_summary(state: PartitionState, node: Node) -> NodeSummary:
    """Shows one node without what runs on it."""
    resources = state.types.to_resources
    return NodeSummary(
        node.node_id,
        node.schedulable,
        resources(node.capacity),
        resources(node.allocated),
        resources(node.occupied),
        resources(node.free),
        len(node.allocations),
        len(node.reservations),
    )


def nodes_by_id(state: PartitionState, after: str = "") -> Iterator[Node]:
    """Yields the nodes whose IDs come after *after*, by ID; one that leaves meanwhile is left out."""
    ids = sorted(state.nodes)
    for node_id in ids[bisect_right(ids, after) :] if after else ids:
        node = state.nodes.get(node_id)
        if node is not None:
            yield node


def _first_of(attributes: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((attributes[name] for name in names if attributes.get(name)), "")
