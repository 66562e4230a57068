"""A partition made of model records alone: what a planner reads, without the engine around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import AllocationSpec, ApplicationSpec
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import GuaranteeMode, PreemptionPolicyKind, PriorityPolicy, QueueProperties
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, ResourceTypes
from kornel.core.policies.claim_order import Dues, find_lent
from kornel.core.preemption.plan import PreemptionPlan
from tests.preemption_notation import Case, QueueCase, TaskCase

NOW_NS = 100_000 * 10**9
MINUTE_NS = 60 * 10**9


class World:
    """Queues, nodes and allocations by name; a :class:`kornel.core.policies.view.PartitionView`."""

    def __init__(self, types: list[str], mode: GuaranteeMode = GuaranteeMode.REACH) -> None:
        self.name = "[rm]default"
        self.now_ns = NOW_NS
        self.types = ResourceTypes(self._widen)
        self.guarantee_mode = mode
        self.victim_order = "default"
        self.checkpoints: dict[str, int] = {}
        self.given_up: dict[Allocation, object] = {}
        self.queues: dict[str, Queue] = {}
        self.nodes: dict[str, Node] = {}
        self.allocations: dict[str, Allocation] = {}
        for name in types:
            self.types.index_of(name)
        self.root = self._new_queue("root", None, QueueCase("root"))

    @classmethod
    def of(cls, case: Case) -> World:
        """The state in which the asks of *case* arrive."""
        world = cls(case.types(), GuaranteeMode.STRICT if case.strict else GuaranteeMode.REACH)
        for queue in sorted(case.queues, key=lambda queue: queue.path != "root"):
            world.queue(queue)
        for node_id, capacity in case.nodes:
            world.node(node_id, capacity)
        for task in case.running:
            allocation = world.run(task)
            if task.leaving:
                world.mark(allocation)
        for reservation in case.reservations:
            holder = world.ask(reservation.holder)
            holder.triggered = reservation.holder.triggered
            world.reserve(holder, world.nodes[reservation.node], NOW_NS - reservation.minutes * MINUTE_NS)
        return world

    def _widen(self, width: int) -> None:
        """An ask may name a type that nothing else in the case has."""
        applications = (allocation.application for allocation in self.allocations.values())
        holders: list[Any] = [*self.queues.values(), *self.nodes.values(), *applications]
        for holder in holders:
            holder.widen_amounts(width)

    def queue(self, spec: QueueCase) -> Queue:
        """Add a queue, its parents first where they are missing; ``root`` changes the root's settings."""
        if spec.path == "root":
            self.root.properties = _properties(spec, None)
            return self.root
        parent_path, _, name = spec.path.rpartition(".")
        parent = self.queues.get(parent_path) or self.root
        if parent_path and parent_path not in self.queues:
            parent = self.queue(QueueCase(parent_path))
        return self._new_queue(name, parent, spec)

    def _new_queue(self, name: str, parent: Queue | None, spec: QueueCase) -> Queue:
        queue = Queue(
            name,
            parent,
            leaf=parent is not None,
            properties=_properties(spec, parent),
            width=len(self.types.names),
            order_key=lambda member: member,
        )
        queue.set_limits(self.types.to_sparse(spec.guaranteed), self.types.to_sparse(spec.maximum))
        if parent is not None:
            parent.leaf = False
            parent.children[name] = queue
            self.queues[spec.path] = queue
            self.application(queue, spec.application or f"app-{spec.path}")
        return queue

    def application(self, queue: Queue, application_id: str) -> Application:
        """The application of that ID in *queue*, made if need be."""
        found = queue.applications.get(application_id)
        if found is None:
            spec = ApplicationSpec(application_id, queue.path, self.name)
            found = Application(spec, queue, "user", 0, [0] * len(self.types.names))
            queue.applications[application_id] = found
        return found

    def node(self, node_id: str, capacity: Mapping[str, int]) -> Node:
        node = Node(node_id, (), self.types.to_vector(Resources(capacity)))
        self.nodes[node_id] = node
        total = dict(self.root.max)
        for name, amount in capacity.items():
            t = self.types.index_of(name)
            total[t] = total.get(t, 0) + amount
        self.root.set_limits({}, total)
        return node

    def ask(self, task: TaskCase, application_id: str = "") -> Allocation:
        """A pending ask; not booked as pending, for no planner looks at that."""
        queue = self.queues[task.queue]
        application = (
            self.application(queue, application_id) if application_id else next(iter(queue.applications.values()))
        )
        spec = AllocationSpec(
            task.key,
            application.application_id,
            self.name,
            Resources(task.amounts),
            priority=task.priority,
            originator=task.originator,
            allow_preempt_self=not task.opted_out,
            allow_preempt_other=True,
            required_node=task.node or "n1" if task.required_node else "",
        )
        shape = self.types.shape_of(Resources(task.amounts))
        return Allocation(spec, application, shape, task.tick * 10**9, len(self.allocations))

    def run(self, task: TaskCase, application_id: str = "") -> Allocation:
        """An allocation on its node, booked everywhere."""
        allocation = self.ask(task, application_id)
        self.place(allocation, self.nodes[task.node])
        return allocation

    def place(self, allocation: Allocation, node: Node) -> None:
        allocation.node, allocation.place = node, AskPlace.PLACED
        node.allocations[allocation.key] = allocation
        node.charge_pairs(allocation.shape.pairs)
        application = allocation.application
        application.allocations = {**application.allocations, allocation.key: allocation}
        self.allocations[allocation.key] = allocation
        for queue in allocation.queue.lineage():
            _book(queue.used, allocation)

    def reserve(self, ask: Allocation, node: Node, made_ns: int) -> None:
        """*ask* holds its amount on *node*: because it preempted or must run there, else because it has waited."""
        by_age = not (ask.triggered or ask.spec.required_node)
        ask.reservation = Reservation(ask, node, made_ns, by_age=by_age)
        node.reserve(ask.reservation)

    def find_lent(self, ask: Allocation, pairs: Pairs | None = None) -> Mapping[Node, Sequence[Reservation]]:
        saved = [r for node in self.nodes.values() for r in node.reservations.values() if r.comes_last]
        return find_lent(ask, saved, Dues(self.guarantee_mode), pairs)

    def mark(self, victim: Allocation) -> None:
        """*victim* has been told to leave."""
        victim.place = AskPlace.PREEMPTED
        assert victim.node is not None
        victim.node.expect_exits((victim,))
        victim.application.preempted_count += 1
        for queue in victim.queue.lineage():
            _book(queue.preempting, victim)

    def apply(self, plan: PreemptionPlan) -> None:
        """What the partition does with a plan (preemption.md B.7, steps 1, 2 and 4)."""
        for victim in plan.victims:
            self.mark(victim)
            victim.preemptor = plan.ask
        for queue in plan.ask.queue.lineage():
            _book(queue.claimed, plan.ask)
        plan.ask.triggered = True
        if plan.ask.reservation is not None:
            plan.ask.reservation.node.unreserve(plan.ask.reservation)
        self.reserve(plan.ask, plan.node, NOW_NS)

    def remove(self, allocation: Allocation) -> None:
        """*allocation* has left."""
        node = allocation.node
        assert node is not None
        del node.allocations[allocation.key], allocation.application.allocations[allocation.key]
        del self.allocations[allocation.key]
        node.expect_no_exit(allocation)
        node.refund_pairs(allocation.shape.pairs)
        allocation.node = None
        for queue in allocation.queue.lineage():
            _book(queue.used, allocation, -1)
            if allocation.preempted:
                _book(queue.preempting, allocation, -1)

    def start(self, ask: Allocation) -> None:
        """A triggered ask takes the node it holds."""
        assert ask.reservation is not None
        node = ask.reservation.node
        node.unreserve(ask.reservation)
        ask.reservation, ask.triggered = None, False
        for queue in ask.queue.lineage():
            _book(queue.claimed, ask, -1)
        self.place(ask, node)


def _book(vector: list[int], allocation: Allocation, sign: int = 1) -> None:
    for t, amount in allocation.shape.pairs:
        vector[t] += sign * amount


def _properties(spec: QueueCase, parent: Queue | None) -> QueueProperties:
    """The settings in force: of the policies only ``disabled`` is inherited (preemption.md 0.2)."""
    policy = PreemptionPolicyKind(spec.preemption_policy or "default")
    inherited = parent is not None and parent.properties.preemption_policy is PreemptionPolicyKind.DISABLED
    if spec.preemption_policy is None and inherited:
        policy = PreemptionPolicyKind.DISABLED
    return QueueProperties(
        priority_policy=PriorityPolicy.FENCE if spec.priority_fence else PriorityPolicy.DEFAULT,
        priority_offset=spec.priority_offset,
        preemption_policy=policy,
    )
