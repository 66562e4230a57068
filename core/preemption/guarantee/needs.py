"""The needs of an ask, which have to be freed before it can run: on the node, under its queues, inside its guarantee
(B.6)."""

from __future__ import annotations

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.guarantee.entitlement import Entitlement
from kornel.core.preemption.guarantee.fences import project_usage


class Needs:
    """One list of amounts, the needs, that a set of victims must bring to 0 or below.

    Need *i* of the first ``len(ask.shape.pairs)`` counts every victim of the pool, for the ask's *i*-th type: what
    the node, the queues and a guarantee around the fence lack are freed by the same victims, so the largest of the
    three decides. The rest are swaps inside a guarantee below the fence; only victims below ``scopes[i]`` count.

    None exceeds what the ask asks for, but for what an over-allocated node lacks.
    """

    __slots__ = ("ask", "base", "owed", "queue", "scopes", "swaps", "types")

    def __init__(self, ask: Allocation, fence: Queue, entitled: Entitlement) -> None:
        self.ask = ask
        self.queue = _queue_needs(ask, fence)
        """``N_queue`` by type."""
        self.swaps = entitled.swaps
        self.types: list[int] = [t for t, _ in ask.shape.pairs]
        self.scopes: list[Queue | None] = [None] * len(self.types)
        self.base: list[int] = [self.queue.get(t, 0) for t in self.types]
        """The needs where the node has room."""
        self.owed: list[bool] = [t in entitled.queues for t in self.types]
        """By need, whether a guarantee stands behind it. One without entitles to nothing: it takes only what leaves
        for an owed type anyway, or what a queue holds beyond a share of it that it declares."""
        outside = set(fence.lineage())
        for t, amount in entitled.swaps.items():
            queue = entitled.queues[t]
            if queue in outside:
                i = self.types.index(t)
                self.base[i] = max(self.base[i], amount)
            else:
                self.types.append(t)
                self.scopes.append(queue)
                self.base.append(amount)
                self.owed.append(True)

    def is_met_anywhere(self) -> bool:
        """Tells whether victims are needed even where the node has room."""
        return any(amount > 0 for amount in self.base)

    def needs_on(self, node: Node) -> list[int]:
        """Returns the needs if *node*, which lacks room, is to be the one. What others hold there is theirs."""
        needs = self.base.copy()
        room = node.room_without(self.ask.reservation)
        for i, (t, amount) in enumerate(self.ask.shape.pairs):
            short = amount - room[t]
            if short > needs[i]:
                needs[i] = short
        return needs

    def met_on(self, node: Node) -> bool:
        """Tells whether *node* has room for the ask beside what others hold, or will have once victims have left."""
        room = node.room_without(self.ask.reservation)
        return all(room[t] >= amount for t, amount in self.ask.shape.pairs)

    def describe_needs(self, node: Node, names: list[str]) -> dict[str, dict[str, int]]:
        """Returns the three needs by type name, for the record of the decision; those without any are left out."""
        room = node.room_without(self.ask.reservation)
        short = {names[t]: amount - room[t] for t, amount in self.ask.shape.pairs if amount > room[t]}
        by_need = {
            "node": short,
            "queue": {names[t]: amount for t, amount in self.queue.items()},
            "guarantee": {names[t]: amount for t, amount in self.swaps.items()},
        }
        return {name: amounts for name, amounts in by_need.items() if amounts}


def _queue_needs(ask: Allocation, fence: Queue) -> dict[int, int]:
    """Returns ``N_queue``: by type, the most that the ask would exceed a max at or above the fence; below it, none is.

    Never more than the ask itself: a queue that is above its max already is no fuller after a swap, and to bring it
    down is not the ask's business. The root's max is the size of the cluster, and whether there is room a node says.
    """
    needs: dict[int, int] = {}
    for queue in fence.lineage()[:-1]:
        for t, amount in ask.shape.pairs:
            most = queue.max.get(t)
            if most is not None:
                over = min(amount, project_usage(queue, t) + amount - most)
                if over > needs.get(t, 0):
                    needs[t] = over
    return needs


def can_take_claim(node: Node, ask: Allocation) -> bool:
    """Tells whether *ask* may wait for room on *node*: it is open, large enough, and not claimed for more than it has.

    Nor may a node be used whose victims the ask has waited for in vain (K14).
    """
    if not node.schedulable or (ask.stuck and node.node_id in ask.stuck.values()):
        return False
    return node.could_hold(ask.shape.pairs) and not node.is_overdrawn(ask.shape.pairs)
