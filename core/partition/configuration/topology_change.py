"""The levels of the topology into a partition: every node finds its domains, and who waits for one is tried again."""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.domain.topology import TopologyLevel
from kornel.core.model.domains import Topology
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.waking import wake_for_domains


def take_level_steps(state: PartitionState, levels: tuple[TopologyLevel, ...]) -> Iterator[None]:
    """Has the nodes stand in domains of *levels* from now on; without levels nobody keeps domains. Yields after each
    node."""
    before, state.topology = state.topology, Topology(levels) if levels else None
    for node in state.nodes.values():
        if before is not None:
            before.remove_node(node)
        if state.topology is not None:
            state.topology.add_node(node, len(state.types.names))
        yield
    wake_for_domains(state)
