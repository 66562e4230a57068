"""What has to be freed before an ask can run: on the node, under its queues, inside its guarantee (B.6)."""

from __future__ import annotations

from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.model.queues import Queue
from core.policies.preemption.entitlement import Entitlement
from core.policies.preemption.fences import projected

RESERVATION_WAIT_NS = 60 * 60 * 10**9
"""How long a reservation is safe from a more important ask."""


class Needs:
    """One list of amounts, the needs, that a set of victims must bring to 0 or below.

    Need *i* of the first ``len(ask.shape.pairs)`` counts every victim of the pool, for the ask's *i*-th type: what
    the node, the queues and a guarantee around the fence lack are freed by the same victims, so the largest of the
    three decides. The rest are swaps inside a guarantee below the fence; only victims below ``scopes[i]`` count.
    """

    __slots__ = ("ask", "base", "queue", "scopes", "swaps", "types")

    def __init__(self, ask: Allocation, fence: Queue, entitled: Entitlement) -> None:
        self.ask = ask
        self.queue = _queue_needs(ask, fence)
        """``N_queue`` by type."""
        self.swaps = entitled.swaps
        self.types: list[int] = [t for t, _ in ask.shape.pairs]
        self.scopes: list[Queue | None] = [None] * len(self.types)
        self.base: list[int] = [self.queue.get(t, 0) for t in self.types]
        """The needs where the node has room."""
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

    def anywhere(self) -> bool:
        """Whether victims are needed even where the node has room."""
        return any(amount > 0 for amount in self.base)

    def on(self, node: Node) -> list[int]:
        """The needs if *node*, which lacks room, is to be the one."""
        needs = self.base.copy()
        free = node.free
        for i, (t, amount) in enumerate(self.ask.shape.pairs):
            short = amount - free[t]
            if short > needs[i]:
                needs[i] = short
        return needs

    def described(self, node: Node, names: list[str]) -> dict[str, dict[str, int]]:
        """The three needs by type name, for the record of the decision; those without any are left out."""
        short = {names[t]: amount - node.free[t] for t, amount in self.ask.shape.pairs if amount > node.free[t]}
        by_need = {
            "node": short,
            "queue": {names[t]: amount for t, amount in self.queue.items()},
            "guarantee": {names[t]: amount for t, amount in self.swaps.items()},
        }
        return {name: amounts for name, amounts in by_need.items() if amounts}


def _queue_needs(ask: Allocation, fence: Queue) -> dict[int, int]:
    """``N_queue``: by type, the most that the ask would exceed a max at or above the fence; below it, none is."""
    needs: dict[int, int] = {}
    for queue in fence.lineage():
        for t, amount in ask.shape.pairs:
            most = queue.max.get(t)
            if most is not None:
                over = projected(queue, t) + amount - most
                if over > needs.get(t, 0):
                    needs[t] = over
    return needs


def in_the_way(node: Node, ask: Allocation, now_ns: int) -> tuple[Reservation, ...] | None:
    """Reservations to cancel so that *ask* can have *node*; ``None``: the node may not be used (B.6).

    A stranger's reservation gives way only to a more important ask, after an hour, and never if the holder must run
    here or has itself preempted for the room. All of them give way, or none. Nor may a node be used whose victims the
    ask has waited for in vain (K14).
    """
    if not node.schedulable or (ask.stuck and node.node_id in ask.stuck.values()):
        return None
    capacity = node.capacity
    for t, amount in ask.shape.pairs:
        if capacity[t] < amount:
            return None
    if not node.reservations:
        return ()
    foreign = [reservation for reservation in node.reservations.values() if reservation.ask is not ask]
    for reservation in foreign:
        holder = reservation.ask
        if (
            holder.spec.required_node
            or holder.triggered
            or holder.priority >= ask.priority
            or now_ns - reservation.made_ns <= RESERVATION_WAIT_NS
        ):
            return None
    return tuple(sorted(foreign, key=lambda reservation: reservation.ask.key))
