"""Shows the topology: its levels, and what the nodes of each domain have, offer and hold for asks that wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.state.partition_state import PartitionState


class LevelView(NamedTuple):
    """One level of a topology. ``nodes``: the number of nodes in domains of this level; ``nodes_outside``: the number
    of other nodes."""

    name: str
    attribute: str
    domains: int
    nodes: int
    nodes_outside: int


class DomainView(NamedTuple):
    """One domain. ``path``: the values of the attributes that make it, the outermost first.

    free         what is free on its nodes that take work; over-allocated nodes count as 0
    held         the part of ``free`` that is held for asks that wait for it
    schedulable  the number of its nodes that take work
    """

    level: str
    path: tuple[str, ...]
    capacity: Resources
    free: Resources
    held: Resources
    nodes: int
    schedulable: int


def level_views(state: PartitionState) -> list[LevelView]:
    """Shows the levels of the topology, the outermost first; none without a topology. The cost is linear in domains."""
    topology = state.topology
    if topology is None:
        return []
    domains = [0] * len(topology.levels)
    standing = [0] * len(topology.levels)
    for path, domain in topology.domains.items():
        domains[len(path) - 1] += 1
        standing[len(path) - 1] += len(domain.nodes)
    return [
        LevelView(level.name, level.attribute, count, inside, len(state.nodes) - inside)
        for level, count, inside in zip(topology.levels, domains, standing, strict=True)
    ]


def domain_views(state: PartitionState, level: str = "") -> Iterator[DomainView]:
    """Shows the domains of *level*, or of all levels if it is empty, outer domains before those within them, by
    name."""
    topology = state.topology
    if topology is None:
        return
    resources = state.types.to_resources
    for path in sorted(path for path, domain in topology.domains.items() if level in ("", domain.level.name)):
        domain = topology.domains.get(path)
        if domain is not None:  # The last node of the domain has left in the meantime.
            yield DomainView(
                domain.level.name,
                path,
                resources(domain.capacity),
                resources(domain.free),
                resources(domain.held),
                len(domain.nodes),
                sum([node.schedulable for node in domain.nodes]),
            )
