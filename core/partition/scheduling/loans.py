"""Lends room that is saved for others to those who come before them or are owed their guarantee (preemption.md B.7).

Saved room lies idle until there is enough for its holder. Whoever may pass the holder uses it meanwhile, as much as it
asks for, if no room serves it that nobody has saved; the holder keeps the rest, its place and its age.
"""

from __future__ import annotations

from functools import cmp_to_key

from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.partition.state import PartitionState
from kornel.core.policies.claim_order import comes_before, lent_to_child, may_pass


def find_lent_node(state: PartitionState, ask: Allocation) -> Node | None:
    """Returns the first open node, in order, that has room for *ask* if it uses room saved for those whom it may pass;
    ``None``: there is none. Limits are not looked at."""
    if ask.spec.required_node or ask.spec.topology is not None:
        return None
    nodes = {claim.node: None for claim in state.reserving.saved}
    refused = ask.refused or {}
    found = [
        node
        for node in nodes
        if node in state.node_order and node.node_id not in refused and _lends_room(state, node, ask)
    ]
    return min(found, key=lambda node: (node.score, node.node_id), default=None)


def is_outranked(state: PartitionState, ask: Allocation) -> bool:
    """Tells whether the cycle is about to try somebody who comes before *ask*, so that it has to wait for its turn."""
    application, priority = ask.application, ask.spec.priority
    group = application.order.first_group()
    if group is not None and group.first_ask().spec.priority > priority:
        return True
    below: Application | Queue = application
    for queue in ask.queue.lineage():
        first = queue.order.first_member()
        shown = priority if queue is ask.queue else lent_to_child(ask, queue)
        sorts = queue.properties.sort_by_priority
        if sorts and first is not None and first is not below and first.priority > shown:
            return True
        below = queue
    return False


def in_line(claims: list[Reservation]) -> list[Reservation]:
    """Returns saved *claims* in the order in which their holders are tried: whoever comes before others first, of
    equals the one that holds longest."""

    def compare(one: Reservation, other: Reservation) -> int:
        return comes_before(other.ask, one.ask) - comes_before(one.ask, other.ask)

    return sorted(sorted(claims, key=lambda claim: claim.made_ns), key=cmp_to_key(compare))


def _lends_room(state: PartitionState, node: Node, ask: Allocation) -> bool:
    claims = node.claims
    assert claims is not None, "room is saved on the node"
    lent = [
        claim
        for claim in claims.reservations.values()
        if claim.comes_last and (claim.ask is ask or may_pass(ask, claim, state.guarantee_mode))
    ]
    if not any(claim.ask is not ask for claim in lent):
        return False
    room = claims.open_room(node.free, lent)
    return all(room[t] >= amount for t, amount in ask.shape.pairs) and node.has_devices(ask.shape.devices, ask)
