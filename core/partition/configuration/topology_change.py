"""Applies the levels of the topology to a partition: assigns every node to its domains, and tries asks again that wait
for a domain."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.domain.topology import TopologyLevel
from kornel.core.model.domains import Topology
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.waking import wake_for_domains


def take_level_steps(state: PartitionState, levels: tuple[TopologyLevel, ...]) -> Iterator[None]:
    """Assigns the nodes to domains of *levels*; without levels, the partition has no domains. Yields after each
    node."""
    before, state.topology = state.topology, Topology(levels) if levels else None
    for node in state.nodes.values():
        if before is not None:
            before.remove_node(node)
        if state.topology is not None:
            state.topology.add_node(node, len(state.types.names))
        yield
    wake_for_domains(state)
