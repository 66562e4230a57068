"""Guarantee-driven preemption in its obvious form: everything tried, nothing remembered, no bound, no short cut.

Written from preemption.md A and B alone; the planner must find the same node and the same victims in the same order.
For small worlds only: pools that need the exact search are searched by trying every subset.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from core.domain.settings import GuaranteeMode, PreemptionPolicyKind, PriorityPolicy
from core.model.allocations import Allocation
from core.model.nodes import Node
from core.model.queues import Queue
from core.policies.view import PartitionView

HOUR_NS = 3600 * 10**9

LARGEST_POOL = 12


class TooLarge(Exception):
    """Trying every subset of this pool would take too long."""


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

    def plan(self) -> tuple[str, list[str]] | str:
        """(node, victims in order), or the outcome of the refusal."""
        if not self.entitled:
            return "NO_GUARANTEE"
        if any(self.demand[t] > queue.guaranteed[t] for t, queue in self.entitled.items()):
            return "ASK_EXCEEDS_GUARANTEE"
        if any(queue is self.ask.queue for t, queue in self.entitled.items() if self.swap(t)):
            return "NOT_UNDER_GUARANTEE"
        if self.fence is self.ask.queue:
            return "FENCED_AT_LEAF"
        candidates = sorted(
            (a for node in self.view.nodes.values() for a in node.allocations.values() if self.candidate(a)),
            key=self.order,
        )
        if not candidates:
            return "NO_CANDIDATES"
        solutions = []
        for node in self.view.nodes.values():
            if self.usable(node):
                roomy = all(node.free[t] >= amount for t, amount in self.demand.items())
                pool = [a for a in candidates if roomy or a.node is node]
                victims = self.solve(node, pool)
                if victims:
                    solutions.append((*self.key(victims), node.node_id, [v.key for v in victims]))
        if not solutions:
            return "NO_NODE"
        best = min(solutions)
        return (best[-2], best[-1])

    def projected(self, queue: Queue, t: int) -> int:
        return queue.used[t] - queue.preempting[t] + queue.claimed[t]

    def swap(self, t: int) -> int:
        """What victims inside the entitling queue have to free of type *t*."""
        queue = self.entitled[t]
        held, guaranteed = self.projected(queue, t), queue.guaranteed[t]
        if self.view.guarantee_mode is GuaranteeMode.REACH and held < guaranteed:
            return 0
        return max(0, held + self.demand[t] - guaranteed)

    def _is_fence(self, queue: Queue) -> bool:
        if queue.parent is None or queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return True
        for t, amount in self.demand.items():
            limits = [above.max[t] for above in queue.lineage() if t in above.max]
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
            not victim.spec.allow_preempt_self,
            victim.spec.originator,
            self.adjusted(victim, self.fence),
            -victim.created_ns,
            victim.application.preempted_count,
            victim.key,
        )

    def key(self, victims: Iterable[Allocation]) -> tuple[bool, bool, int, int, int, int]:
        listed = list(victims)
        return (
            any(not v.spec.allow_preempt_self for v in listed),
            any(v.spec.originator for v in listed),
            len(listed),
            max(self.adjusted(v, self.fence) for v in listed),
            -min(v.created_ns for v in listed),
            -min(self.common(v).depth for v in listed),
        )

    def usable(self, node: Node) -> bool:
        return (
            node.schedulable
            and all(node.capacity[t] >= amount for t, amount in self.demand.items())
            and all(
                not r.ask.spec.required_node
                and not r.ask.triggered
                and r.ask.priority < self.ask.priority
                and self.now_ns - r.made_ns > HOUR_NS
                for r in node.reservations.values()
                if r.ask is not self.ask
            )
        )

    def unmet(self, node: Node, victims: list[Allocation]) -> set[tuple[str, int, str]]:
        """The needs that *victims* leave, node, queues and guarantees each for itself."""
        found = set()
        for t, amount in self.demand.items():
            here = sum(dict(v.shape.pairs).get(t, 0) for v in victims if v.node is node)
            if amount > node.free[t] + here:
                found.add(("node", t, ""))
            total = sum(dict(v.shape.pairs).get(t, 0) for v in victims)
            for queue in self.fence.lineage():
                if t in queue.max and self.projected(queue, t) + amount - queue.max[t] > total:
                    found.add(("queue", t, queue.path))
            if t in self.entitled:
                inside = sum(dict(v.shape.pairs).get(t, 0) for v in victims if self.entitled[t] in v.queue.lineage())
                if self.swap(t) > inside:
                    found.add(("guarantee", t, ""))
        return found

    def lowers(self, victim: Allocation, need: tuple[str, int, str]) -> bool:
        kind, t, _ = need
        counts = kind != "guarantee" or self.entitled[t] in victim.queue.lineage()
        return counts and t in dict(victim.shape.pairs)

    def solve(self, node: Node, pool: list[Allocation]) -> list[Allocation]:
        """Victims for *node*; empty: none, or none needed."""
        if not self.unmet(node, []):
            return []
        for level in range(4):
            part = [v for v in pool if 2 * (not v.spec.allow_preempt_self) + v.spec.originator <= level]
            taken: list[Allocation] = []
            for victim in part:
                unmet = self.unmet(node, taken)
                if any(self.lowers(victim, need) for need in unmet) and self.lawful([*taken, victim]):
                    taken.append(victim)
            if self.unmet(node, taken):
                taken = self.exact(node, part)
            if taken:
                return self.pruned(node, taken)
        return []

    def exact(self, node: Node, pool: list[Allocation]) -> list[Allocation]:
        if self.unmet(node, pool):
            return []
        if len(pool) > LARGEST_POOL:
            raise TooLarge
        solutions = [
            list(victims)
            for count in range(1, len(pool) + 1)
            for victims in combinations(pool, count)
            if not self.unmet(node, list(victims)) and self.lawful(victims)
        ]
        return min(solutions, key=self.key, default=[])

    def pruned(self, node: Node, victims: list[Allocation]) -> list[Allocation]:
        for victim in reversed(victims):
            rest = [v for v in victims if v is not victim]
            if not self.unmet(node, rest):
                victims = rest
        return victims
