"""Audits the domains: computes every sum of every domain again from the nodes (docs/topology.md).

It deliberately shares no code with what keeps the sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.model.nodes import Node
from kornel.core.state.books.findings import Broken
from kornel.core.state.partition_state import PartitionState


def check(state: PartitionState) -> Iterator[Broken]:
    """Yields every sum or membership of domains that is wrong."""
    topology = state.topology
    if topology is None:
        yield from (Broken("T1", node.node_id, "stands in a domain") for node in state.nodes.values() if node.domains)
        return
    members: dict[tuple[str, ...], list[Node]] = {}
    for node in state.nodes.values():
        attributes = dict(node.attributes)
        values = [attributes.get(level.attribute, "") for level in topology.levels]
        depth = values.index("") if "" in values else len(values)
        paths = [tuple(values[:at]) for at in range(1, depth + 1)]
        if [domain.path for domain in node.domains] != paths:
            yield Broken("T1", node.node_id, f"stands in {node.domains}, its attributes say {paths}")
        for path in paths:
            members.setdefault(path, []).append(node)
    if members.keys() != topology.domains.keys():
        yield Broken("T1", state.name, f"domains {sorted(members.keys() ^ topology.domains.keys())} differ")
        return
    for path, nodes in members.items():
        domain = topology.domains[path]
        if set(domain.nodes) != set(nodes):
            yield Broken("T1", domain.name, f"has {list(domain.nodes)}, its nodes are {nodes}")
        below = {other for other in members if len(other) == len(path) + 1 and other[: len(path)] == path}
        if set(domain.below) != below or any(topology.domains[inner] is not domain.below[inner] for inner in below):
            yield Broken("T1", domain.name, f"knows {sorted(domain.below)} below it, there are {sorted(below)}")
        usable = [node for node in nodes if node.schedulable]
        for t in range(len(state.types.names)):
            capacity = sum(node.capacity[t] for node in nodes)
            free = sum(max(0, node.free[t]) for node in usable)
            held = free - sum(max(0, node.open[t]) for node in usable)
            if (domain.capacity[t], domain.free[t], domain.held[t]) != (capacity, free, held):
                booked = f"{domain.capacity[t]}, {domain.free[t]} free, {domain.held[t]} held"
                what = state.types.names[t]
                yield Broken("T2", domain.name, f"books {booked} of {what}, adds up to {capacity}, {free}, {held}")
        for pairs, times in domain.counted_rooms.items():
            fits = sum(_times_on(node, pairs) for node in usable)
            if times != fits:
                yield Broken("T2", domain.name, f"says that {pairs} fits {times} times, it fits {fits} times")


def _times_on(node: Node, pairs: tuple[tuple[int, int], ...]) -> int:
    """Returns how many times *pairs* fit into the open room of *node*."""
    room = list(node.open)
    times = 0
    while all(room[t] >= amount for t, amount in pairs):
        for t, amount in pairs:
            room[t] -= amount
        times += 1
    return times
