"""What is open to whom on a node where room is held: reckoned from the records of asks and victims alone.

A holder gets its amount from its own victims while they are still here, the rest from what is free, in the order of the
claims; everybody else gets what is left. Victims that leave for nobody here count for whoever comes first.
"""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState
from tests.properties.lending import may_use


def holders(state: PartitionState, node: Node) -> list[Allocation]:
    """The asks that hold room on *node*: who must run there, who preempts there, who has waited; the oldest first."""
    asks = [ask for ask in state.requests.values() if ask.reservation is not None and ask.reservation.node is node]
    asks = [ask for ask in asks if ask.held_on is not node]
    order = list(node.reservations)
    return sorted(asks, key=lambda ask: (_rank(ask), order.index(ask.key)))


def _rank(ask: Allocation) -> int:
    assert ask.reservation is not None
    if ask.spec.required_node:
        return 2 if ask.reservation.comes_last else 0
    return 3 if ask.reservation.by_age else 1


def _sum(allocations: Iterable[Allocation], t: int) -> int:
    return sum(amount for a in allocations for u, amount in a.shape.pairs if u == t)


def has_room(state: PartitionState, node: Node, ask: Allocation) -> bool:
    """Whether *ask* may be placed on *node* as things stand, as far as room goes."""
    claims = holders(state, node)
    before = claims[: claims.index(ask)] if ask in claims else claims
    if not ask.spec.required_node:
        before = [other for other in before if _rank(other) < 2 or not may_use(state, ask, other)]
    leaving = [a for a in node.allocations.values() if a.preempted and a not in state.stuck]
    own = {other.key: [a for a in leaving if a.preemptor is other and _rank(other) < 2] for other in claims}
    unowned = [a for a in leaving if not any(a in victims for victims in own.values())]
    for t, amount in ask.shape.pairs:
        taken = sum(max(0, _sum([other], t) - _sum(own[other.key], t)) for other in before)
        if amount > node.free[t] - max(0, taken - _sum(unowned, t)):
            return False
    return True


def lacking(state: PartitionState, node: Node, asks: Iterable[Allocation]) -> list[int]:
    """By type, how much more *asks* hold on *node* than is free there or leaving it; 0: nothing."""
    claims = list(asks)
    leaving = [a for a in node.allocations.values() if a.preempted and a not in state.stuck]
    return [max(0, _sum(claims, t) - _sum(leaving, t) - free) for t, free in enumerate(node.free)]
