"""Nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final

from core.domain.views import AllocationView, NodeSummary, NodeView
from core.model.nodes import Node
from core.partition.state import PartitionState
from core.telling.allocations import allocation_views as work

_HOST: Final = ("si/hostname", "si.io/hostname")
_RACK: Final = ("si/rackname", "si.io/rackname")


def views(state: PartitionState) -> Iterator[NodeView]:
    """All nodes, by ID."""
    for node in _by_id(state):
        yield view(state, node)


def allocations(state: PartitionState) -> Iterator[tuple[AllocationView, ...]]:
    """What is on each node, by ID."""
    for node in _by_id(state):
        yield work.allocations(node)


def summaries(state: PartitionState, after: str) -> Iterator[NodeSummary]:
    """All nodes in short whose IDs come after *after*, by ID."""
    for node in _by_id(state, after):
        yield summary(state, node)


def view(state: PartitionState, node: Node) -> NodeView:
    """One node with everything on it."""
    resources, attributes = state.types.resources, dict(node.attributes)
    return NodeView(
        node.node_id,
        _first(attributes, _HOST),
        _first(attributes, _RACK),
        node.attributes,
        resources(node.capacity),
        resources(node.allocated),
        resources(node.occupied),
        resources(node.free),
        work.allocations(node),
        tuple([work.foreign(load) for _, load in sorted(node.foreign_loads.items())]),
        node.schedulable,
        tuple(sorted(node.reservations)),
        node.drained_by_shim,
        node.operator_drain,
    )


def summary(state: PartitionState, node: Node) -> NodeSummary:
    """One node without what runs on it."""
    resources = state.types.resources
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


def _by_id(state: PartitionState, after: str = "") -> Iterator[Node]:
    ids = sorted(state.nodes)
    for node_id in ids[bisect_right(ids, after) :] if after else ids:
        node = state.nodes.get(node_id)
        if node is not None:
            yield node


def _first(attributes: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((attributes[name] for name in names if attributes.get(name)), "")
