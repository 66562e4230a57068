"""Checks whether the books of a partition agree with each other, as a health report names them (rest.md 7).

One node or application is checked at a time, while the core runs. A change between two checks may count as before or
after it, but each check by itself sees books that have to add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kornel.core.domain.names import bare_partition_name
from kornel.core.domain.resources import Resources
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState
from kornel.shared.readable_amounts import write_quantity

_PAUSE_AFTER: Final = 200
"""The number of allocations checked between two pauses."""


class Offender(NamedTuple):
    """An amount that does not add up, with the number of its check."""

    check: int
    what: str


def find_faults(state: PartitionState) -> Iterator[Offender | None]:
    """Yields everything that does not add up, and ``None`` as a pause for other tasks."""
    yield from _negative_totals(state)
    yield from _sum_of_nodes(state)
    looked = 0
    for node_id in sorted(state.nodes):
        node = state.nodes.get(node_id)
        if node is not None:
            yield from list(_check_node(state, node))
            looked += 1 + len(node.allocations)
            if looked > _PAUSE_AFTER:
                looked = 0
                yield None
    for application_id in sorted(state.applications):
        application = state.applications.get(application_id)
        if application is None:
            continue
        for key, placed in list(application.allocations.items()):
            if placed.node is None and key in application.allocations:
                yield Offender(8, f"{key} of {application_id} is on no node")
            elif placed.node is not None and placed.node.allocations.get(key) is not placed:
                yield Offender(8, f"{key} of {application_id} is not on node {placed.node.node_id}")
            elif placed.node is not None and state.nodes.get(placed.node.node_id) is not placed.node:
                yield Offender(8, f"{key} of {application_id} is on node {placed.node.node_id}, which is gone")
            looked += 1
            if looked > _PAUSE_AFTER:
                looked = 0
                yield None


def _negative_totals(state: PartitionState) -> Iterator[Offender]:
    resources = state.types.to_resources
    for what, amounts in (("allocated", resources(state.root.used)), ("total", resources(state.root.max))):
        if amounts.has_negative():
            yield Offender(2, f"{bare_partition_name(state.name)}: {what} {_list_negatives(amounts)}")


def _sum_of_nodes(state: PartitionState) -> Iterator[Offender]:
    total = [0] * len(state.types.names)
    for node in state.nodes.values():
        for t, amount in enumerate(node.capacity):
            total[t] += amount
    for t, amount in enumerate(total):
        known, name = state.root.max.get(t, 0), state.types.names[t]
        if known != amount:
            ours, theirs = (write_quantity(name, each) for each in (known, amount))
            yield Offender(4, f"{bare_partition_name(state.name)}: {name} {ours}, but its nodes have {theirs}")


def _check_node(state: PartitionState, node: Node) -> Iterator[Offender]:
    vectors = {
        "allocated": node.allocated,
        "available": node.free,
        "capacity": node.capacity,
        "occupied": node.occupied,
    }
    for what, vector in vectors.items():
        if vector and min(vector) < 0:
            yield Offender(3, f"{node.node_id}: {what} {_list_negatives(state.types.to_resources(vector))}")
    for t, amount in enumerate(node.capacity):
        if amount != node.allocated[t] + node.occupied[t] + node.free[t]:
            yield Offender(5, f"{node.node_id}: {state.types.names[t]}")
    for key, placed in node.allocations.items():
        application = state.applications.get(placed.application.application_id)
        if application is not placed.application or not (key in application.allocations or key in application.asks):
            yield Offender(7, f"{key} on {node.node_id} of {placed.application.application_id}")


def _list_negatives(amounts: Resources) -> str:
    return ", ".join(f"{name}={write_quantity(name, amount)}" for name, amount in sorted(amounts.items()) if amount < 0)
