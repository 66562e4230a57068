"""The levels of the topology into a partition: every node finds its domains, and who waits for one is tried again."""

from __future__ import annotations

from kornel.core.domain.topology import TopologyLevel
from kornel.core.model.allocations import AskGroup
from kornel.core.model.domains import Topology
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.rooms import activate_group, look_again


def set_levels(state: PartitionState, levels: tuple[TopologyLevel, ...]) -> None:
    """Has the nodes stand in domains of *levels* from now on; without levels nobody keeps domains."""
    if state.topology is not None:
        for node in state.nodes.values():
            state.topology.remove_node(node)
    state.topology = Topology(levels) if levels else None
    if state.topology is not None:
        for node in state.nodes.values():
            state.topology.add_node(node, len(state.types.names))
    for waiter in list(state.waiting_for_domain):
        if isinstance(waiter, AskGroup):
            activate_group(waiter)
        else:
            look_again(state, waiter)
