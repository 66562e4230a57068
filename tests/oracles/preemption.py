"""What an ask under a guarantee needs, and who may go for it, in its obvious form: nothing remembered, no short cut.

Written from preemption.md A and B alone, for small worlds.
"""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.domain.settings import GuaranteeMode, PreemptionPolicyKind, PriorityPolicy
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.policies.view import PartitionView


class Oracle:
    """One ask's question to one state."""

    def __init__(self, view: PartitionView, ask: Allocation, now_ns: int) -> None:
        self.view = view
        self.ask = ask
        self.now_ns = now_ns
        self.demand = dict(ask.shape.pairs)
        self.path = ask.queue.lineage()
        self.entitled = {
            t: next(queue for queue in self.path if t in queue.guaranteed)
            for t in self.demand
            if any(t in queue.guaranteed for queue in self.path)
        }
        self.fence = next(queue for queue in self.path if self._is_fence(queue))

    def projected(self, queue: Queue, t: int) -> int:
        return queue.used[t] - queue.preempting[t] + queue.claimed[t]

    def swap(self, t: int) -> int:
        """What victims inside the entitling queue have to free of type *t*."""
        queue = self.entitled[t]
        held, guaranteed = self.projected(queue, t), queue.guaranteed[t]
        if self.view.guarantee_mode is GuaranteeMode.REACH and held < guaranteed:
            return 0
        return min(self.demand[t], max(0, held + self.demand[t] - guaranteed))

    def leaving(self, node: Node, t: int) -> int:
        told = [a for a in node.allocations.values() if a.preempted and a not in self.view.given_up]
        return sum(dict(a.shape.pairs).get(t, 0) for a in told)

    def held(self, node: Node, t: int, *, by_age: bool) -> int:
        others = [r for r in node.reservations.values() if r.ask is not self.ask and r.comes_last is by_age]
        holders = [r.ask for r in others if not (by_age and self.may_use(r.ask))]
        return sum(dict(a.shape.pairs).get(t, 0) for a in holders)

    def may_use(self, holder: Allocation) -> bool:
        """Whether what *holder* saves is not kept from the ask: it is more important where both meet, or it is owed its
        guarantee by a queue in which *holder* is not, who is owed none and may run elsewhere."""
        meet = max((q for q in self.path if q in holder.queue.lineage()), key=lambda queue: queue.depth)
        if meet is self.ask.queue:
            between = meet.properties.sort_by_priority or holder.application is self.ask.application
            more = between and self.ask.priority > holder.priority
        else:
            more = meet.properties.sort_by_priority and self.adjusted(self.ask, meet) > self.adjusted(holder, meet)
        elsewhere = any(queue not in holder.queue.lineage() for queue in self.entitled.values())
        bound = holder.spec.required_node or Oracle(self.view, holder, self.now_ns).is_owed()
        return more or (elsewhere and self.is_owed() and not bound)

    def is_owed(self) -> bool:
        """Whether law 4 lets it have all that it asks for, and nobody has to leave below the guarantee itself."""
        covered = all(self.demand[t] <= queue.guaranteed[t] for t, queue in self.entitled.items())
        return bool(self.entitled) and covered and not any(self.swap(t) for t in self.entitled)

    def available(self, node: Node, t: int) -> int:
        """What is free or leaving, and nobody else's; who has only waited keeps what is there, not what is missing."""
        left = node.free[t] + self.leaving(node, t) - self.held(node, t, by_age=False)
        return left if left < 0 else max(0, left - self.held(node, t, by_age=True))

    def _is_fence(self, queue: Queue) -> bool:
        if queue.parent is None or queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return True
        for t, amount in self.demand.items():
            bounded = [above for above in queue.lineage()[:-1] if t in above.max]
            limits = [max(above.max[t], self.projected(above, t)) for above in bounded]
            if limits and self.projected(queue, t) + amount > min(limits):
                return True
        return False

    def adjusted(self, allocation: Allocation, top: Queue) -> int:
        priority = allocation.priority
        for queue in allocation.queue.lineage():
            if queue is top:
                return priority
            if queue.properties.priority_policy is PriorityPolicy.FENCE:
                priority = 0
            priority += queue.properties.priority_offset
        return priority

    def common(self, victim: Allocation) -> Queue:
        return next(queue for queue in victim.queue.lineage() if queue in self.path)

    def candidate(self, victim: Allocation) -> bool:
        lineage = victim.queue.lineage()
        if self.fence not in lineage or victim.queue is self.ask.queue:
            return False
        if victim.queue.properties.preemption_policy is PreemptionPolicyKind.DISABLED:
            return False
        amounts = dict(victim.shape.pairs)
        if not amounts.keys() & self.demand.keys():
            return False
        if victim.spec.required_node or victim.released or victim.preempted:
            return False
        if victim.application.application_id == self.ask.application.application_id:
            return False
        common = self.common(victim)
        if self.adjusted(victim, common) > self.adjusted(self.ask, common):
            return False
        if not any(queue.depth > common.depth for queue in self.entitled.values()):
            below = [queue for queue in lineage if queue.depth > common.depth]
            if not any(t in queue.guaranteed for queue in below for t in amounts.keys() & self.demand.keys()):
                return False
        return self.lawful([victim])

    def lawful(self, victims: Iterable[Allocation]) -> bool:
        """Law 2 for all *victims* together."""
        leaving: dict[Queue, dict[int, int]] = {}
        for victim in victims:
            for queue in victim.queue.lineage():
                for t, amount in victim.shape.pairs:
                    amounts = leaving.setdefault(queue, {})
                    amounts[t] = amounts.get(t, 0) + amount
        for queue, amounts in leaving.items():
            for t, amount in amounts.items():
                if t not in queue.guaranteed:
                    continue
                net = queue.used[t] - queue.preempting[t]
                if queue in self.path:
                    if net - amount + self.demand.get(t, 0) < min(queue.guaranteed[t], net):
                        return False
                elif net - amount < queue.guaranteed[t]:
                    return False
        return True

    def order(self, victim: Allocation) -> tuple[bool, bool, int, int, int, str]:
        return (
            victim.spec.originator,
            not victim.spec.allow_preempt_self,
            self.adjusted(victim, self.fence),
            -victim.created_ns,
            victim.application.preempted_count,
            victim.key,
        )

    def usable(self, node: Node) -> bool:
        return (
            node.schedulable
            and all(node.capacity[t] >= amount for t, amount in self.demand.items())
            and all(
                not (claimed := self.held(node, t, by_age=False)) or claimed <= node.free[t] + self.leaving(node, t)
                for t in self.demand
            )
        )

    def unmet(self, node: Node, victims: list[Allocation]) -> set[tuple[str, int, str]]:
        """The needs that *victims* leave, node, queues and guarantees each for itself."""
        found = set()
        for t, amount in self.demand.items():
            here = sum(dict(v.shape.pairs).get(t, 0) for v in victims if v.node is node)
            if amount > self.available(node, t) + here:
                found.add(("node", t, ""))
            total = sum(dict(v.shape.pairs).get(t, 0) for v in victims)
            for queue in self.fence.lineage()[:-1]:
                if t in queue.max and min(amount, self.projected(queue, t) + amount - queue.max[t]) > total:
                    found.add(("queue", t, queue.path))
            if t in self.entitled:
                inside = sum(dict(v.shape.pairs).get(t, 0) for v in victims if self.entitled[t] in v.queue.lineage())
                if self.swap(t) > inside:
                    found.add(("guarantee", t, ""))
        return found

    def serves(self, victim: Allocation, need: tuple[str, int, str]) -> bool:
        """Whether *victim* may go for the sake of *need*; without a guarantee of it only beyond a declared share."""
        _, t, _ = need
        common = self.common(victim)
        below = [queue for queue in victim.queue.lineage() if queue.depth > common.depth]
        return t in self.entitled or any(t in queue.guaranteed for queue in below)

    def justified(self, node: Node, victims: Iterable[Allocation]) -> bool:
        """Whether each of *victims* is needed for something that it may go for."""
        listed = list(victims)
        return all(
            any(self.serves(v, need) for need in self.unmet(node, [other for other in listed if other is not v]))
            for v in listed
        )

    def lowers(self, victim: Allocation, need: tuple[str, int, str]) -> bool:
        kind, t, _ = need
        counts = kind != "guarantee" or self.entitled[t] in victim.queue.lineage()
        return counts and t in dict(victim.shape.pairs)
