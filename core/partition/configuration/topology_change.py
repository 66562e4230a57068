"""The levels of the topology into a partition: every node finds its domains, and who waits for one is tried again."""

from __future__ import annotations

from kornel.core.domain.topology import TopologyLevel
from kornel.core.model.domains import Topology
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.waking import wake_for_domains


def set_levels(state: PartitionState, levels: tuple[TopologyLevel, ...]) -> None:
    """Has the nodes stand in domains of *levels* from now on; without levels nobody keeps domains."""
    if state.topology is not None:
        for node in state.nodes.values():
            state.topology.remove_node(node)
    state.topology = Topology(levels) if levels else None
    if state.topology is not None:
        for node in state.nodes.values():
            state.topology.add_node(node, len(state.types.names))
    wake_for_domains(state)
