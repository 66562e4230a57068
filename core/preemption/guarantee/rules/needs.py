"""Computes the needs of an ask: what has to be freed before it can run, on the node, under its queues, and inside its
guarantee (preemption.md B.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Vector, holds_pairs
from kornel.core.model.users import Account
from kornel.core.policies.guarantees import project_usage
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.plan import Need

NOTHING_LENT: Final[Mapping[Node, Sequence[Reservation]]] = MappingProxyType({})


class Needs:
    """The needs: a list of amounts, each of which victims must bring to 0 or below.

    The first ``len(ask.shape.pairs)`` needs are for the types of the ask, and every victim counts towards them: the
    node, the queues and a guarantee around the fence are relieved by the same victims, so the largest of their three
    needs is taken. The other needs are swaps inside a guarantee below the fence; only victims below ``scopes[i]`` count
    towards them.

    No need exceeds what the ask asks for, except on an over-allocated node.
    """

    __slots__ = ("ask", "base", "lent", "limits", "owed", "queue", "scopes", "swaps", "types")

    def __init__(
        self,
        ask: Allocation,
        fence: Queue,
        entitled: Entitlement,
        lent: Mapping[Node, Sequence[Reservation]] = NOTHING_LENT,
    ) -> None:
        """*lent*: by node, the claims of others whose room the ask may use."""
        self.ask = ask
        self.lent = lent
        self.queue = _queue_needs(ask, fence)
        """The need ``N_queue`` by type."""
        self.swaps = entitled.swaps
        self.types: list[int] = [t for t, _ in ask.shape.pairs]
        self.limits: dict[int, int] = {}
        """The most that has to leave below a limit of a user or group by type."""
        self.scopes: list[Queue | Account | None] = [None] * len(self.types)
        self.base: list[int] = [self.queue.get(t, 0) for t in self.types]
        """The needs on a node that has room."""
        self.owed: list[bool] = [t in entitled.queues for t in self.types]
        """Tells for each need whether a guarantee covers its type. A need without a guarantee does not justify a
        victim: it is met by victims that leave for other needs anyway, or by what a queue holds above its own guarantee
        of the type."""
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

    def add_limits(self, over: Mapping[tuple[Account, int], int]) -> dict[tuple[Account, int], int]:
        """Adds what has to leave below limits of users and groups, by account and type, to which only victims that are
        counted there contribute. Returns the numbers of these needs."""
        numbers = {key: len(self.types) + n for n, key in enumerate(over)}
        for (account, t), amount in over.items():
            self.types.append(t)
            self.scopes.append(account)
            self.base.append(amount)
            self.owed.append(True)
            self.limits[t] = max(amount, self.limits.get(t, 0))
        return numbers

    def needs_victims_everywhere(self) -> bool:
        """Tells whether victims are needed on every node, even on one that has room."""
        return any(amount > 0 for amount in self.base)

    def needs_on(self, node: Node) -> list[int]:
        """Returns the needs on *node*, which lacks room. Room that others have claimed there does not count as free,
        but for what they lend the ask."""
        needs = self.base.copy()
        room = self._room_on(node)
        for i, (t, amount) in enumerate(self.ask.shape.pairs):
            short = amount - room[t]
            if short > needs[i]:
                needs[i] = short
        return needs

    def met_on(self, node: Node) -> bool:
        """Tells whether *node* has room for the ask beside the claims of others that lend it none, or will have it once
        present victims have left."""
        return holds_pairs(self._room_on(node), self.ask.shape.pairs)

    def _room_on(self, node: Node) -> Vector:
        return node.room_without(self.ask.reservation, self.lent.get(node, ()))

    def describe_needs(self, node: Node, names: list[str]) -> dict[str, dict[str, int]]:
        """Returns the needs of the node, the queue and the guarantee by type name, for the record of the decision;
        empty ones are left out."""
        room = self._room_on(node)
        short = {names[t]: amount - room[t] for t, amount in self.ask.shape.pairs if amount > room[t]}
        by_need = {
            Need.NODE: short,
            Need.QUEUE: {names[t]: amount for t, amount in self.queue.items()},
            Need.LIMIT: {names[t]: amount for t, amount in self.limits.items() if amount},
            Need.GUARANTEE: {names[t]: amount for t, amount in self.swaps.items()},
        }
        return {need.value: amounts for need, amounts in by_need.items() if amounts}


def _queue_needs(ask: Allocation, fence: Queue) -> dict[int, int]:
    """Returns ``N_queue``: by type, the most by which the ask would exceed a max at or above the fence. Below the
    fence, it exceeds none.

    A need is never more than the ask itself: a queue that is above its max already need only stay at what it holds. The
    max of the root is left out, because it is the size of the cluster, and the nodes decide whether there is room.
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
    """Tells whether *ask* may wait for room on *node*: the node is open, large enough, and not claimed for more than it
    has.

    A node on which the ask has waited for victims in vain is left out (preemption.md K14), and so is one that the shim
    has refused for it.
    """
    if not node.schedulable or (ask.stuck and node.node_id in ask.stuck.values()):
        return False
    if ask.refused is not None and node.node_id in ask.refused:
        return False
    return node.could_hold(ask.shape.pairs) and not node.is_overdrawn(ask.shape.pairs)
