"""Explains why an ask is not on a node, and why a node is not used more, in plain values for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation, together_of
from kornel.core.model.nodes import Node
from kornel.core.state.asks import finding
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.missing_shares import missing_share
from kornel.core.telling.allocations.blockers import find_blockers, find_causes, rank_of
from kornel.core.telling.allocations.explanation import Blocker, BlockerKind, Level
from kornel.core.telling.nodes.domain_blockers import blocker_of_domain, requires_domain
from kornel.core.telling.nodes.node_blockers import blocker_on, find_reasons

FITS: Final = "fits"
"""The verdict on asks that fit on a node and that nothing else keeps back."""


class AskOnNode(NamedTuple):
    """The reasons why an ask is, or is not, on one node.

    runs_on     where it runs; empty: it waits
    blockers    everything about the node that keeps the ask off it; none: it has room
    elsewhere   what keeps the ask waiting whatever the node, the first in front
    first_node  the node that it would get now; empty: none
    """

    key: str
    application_id: str
    queue: str
    state: str
    node_id: str
    resources: Resources
    runs_on: str
    blockers: tuple[Blocker, ...]
    elsewhere: tuple[Blocker, ...]
    first_node: str


class AsksOnNode(NamedTuple):
    """Waiting asks with the same verdict for a node: the first obstacle, or that they fit.

    kind  the kind of the obstacle, or ``fits``
    """

    kind: str
    asks: int
    example: str
    blocker: Blocker | None


class NodeReport(NamedTuple):
    """The reasons why a node is used as it is.

    reservations    the keys of the asks for which room is held
    last_placed_ns  when the youngest of its allocations was placed; 0: it has none
    waiting         the number of asks that wait in the partition
    verdicts        what keeps them from the node, the verdict on most asks first
    """

    node_id: str
    schedulable: bool
    drained_by_manager: bool
    operator_drain: OperatorDrain | None
    capacity: Resources
    available: Resources
    allocations: int
    reservations: tuple[str, ...]
    last_placed_ns: int
    waiting: int
    verdicts: tuple[AsksOnNode, ...]


def explain_ask_on_node(state: PartitionState, ask: Allocation, node: Node, standing: str) -> AskOnNode:
    """Explains what keeps *ask*, whose state is *standing*, from *node*. The cost is linear in nodes."""
    runs_on = ask.node.node_id if ask.node is not None else ""
    on_node = tuple(_blockers_on(state, node, ask)) if runs_on != node.node_id else ()
    elsewhere: tuple[Blocker, ...] = ()
    first_node = ""
    if ask.pending:
        found, _ = find_blockers(state, ask)
        elsewhere = tuple(blocker for blocker in found if blocker.level is not Level.NODE)
        first_node = _first_node(state, ask)
    return AskOnNode(
        ask.spec.key,
        ask.application.application_id,
        ask.queue.path,
        standing,
        node.node_id,
        ask.shape.resources,
        runs_on,
        on_node,
        elsewhere,
        first_node,
    )


def explain_node(state: PartitionState, node: Node) -> NodeReport:
    """Explains what keeps waiting asks from *node*. The cost is linear in waiting asks, and in nodes for members of
    gangs."""
    resources = state.types.to_resources
    waiting = 0
    verdicts: dict[str, AsksOnNode] = {}
    for asks in _group_equals(state).values():
        waiting += len(asks)
        blocker = _first_obstacle(state, node, asks[0])
        kind = FITS if blocker is None else str(blocker.kind)
        known = verdicts.get(kind)
        if known is None:
            verdicts[kind] = AsksOnNode(kind, len(asks), asks[0].spec.key, blocker)
        else:
            verdicts[kind] = known._replace(asks=known.asks + len(asks))
    return NodeReport(
        node.node_id,
        node.schedulable,
        node.drained_by_shim,
        node.operator_drain,
        resources(node.capacity),
        resources(node.free),
        len(node.allocations),
        tuple(sorted(node.reservations)),
        max((placed.bound_ns for placed in node.allocations.values()), default=0),
        waiting,
        tuple(sorted(verdicts.values(), key=lambda verdict: (-verdict.asks, verdict.kind))),
    )


def _group_equals(state: PartitionState) -> dict[tuple[object, ...], list[Allocation]]:
    """Groups the waiting asks of each application that are equal for every node."""
    found: dict[tuple[object, ...], list[Allocation]] = {}
    for application in state.applications.values():
        for ask in application.asks.values():
            if ask.pending:
                alone = ask.spec.key if ask.reservation is not None or ask.refused is not None else ""
                together = together_of(ask.spec)
                alike = (application.application_id, ask.shape, ask.spec.required_node, alone, together)
                found.setdefault(alike, []).append(ask)
    return found


def _first_obstacle(state: PartitionState, node: Node, ask: Allocation) -> Blocker | None:
    """Returns the first obstacle for *ask* on *node*; if there is none, the first one whatever the node."""
    on_node = next(_blockers_on(state, node, ask), None)
    if on_node is not None:
        return on_node
    # The ask fits here, so no other node is looked at: among thousands of asks and nodes that would take many seconds.
    found = [blocker for blocker in find_causes(state, ask) if blocker.level is not Level.NODE]
    return min(found, key=rank_of, default=None)


def _blockers_on(state: PartitionState, node: Node, ask: Allocation) -> Iterator[Blocker]:
    """Yields everything about *node* that keeps *ask* from it."""
    required = ask.spec.required_node
    if required and required != node.node_id:
        detail = f"it must run on {required}"
        yield Blocker(BlockerKind.NODE_NOT_REQUIRED, Level.NODE, node.node_id, detail, (), 1, permanent=True)
        return
    blocked = False
    for kind in find_reasons(node, ask):
        blocked = True
        if kind is BlockerKind.NODE_DRAINING and required:
            continue  # An ask that must run there is placed on a draining node too.
        yield blocker_on(state, ask, kind, node, missing_share(node, ask.shape.pairs))
    if not blocked and requires_domain(ask):
        yield from blocker_of_domain(state, ask, node)


def _first_node(state: PartitionState, ask: Allocation) -> str:
    """Returns the node that *ask* would get now if no limit kept it back; empty: none has room."""
    if ask.spec.required_node:
        node = state.nodes.get(ask.spec.required_node)
        return node.node_id if node is not None and node.has_room_for(ask.shape) else ""
    node = next(finding.acceptable_nodes(state, ask), None)
    return node.node_id if node is not None else ""
